"""Every setting of Apache Kafka that this node does not have, and whether it is refused or has no effect.

A setting is refused if ignoring it would mislead an operator: that connections are encrypted, clients authenticated,
limits kept, or data stored elsewhere. One that tunes a part that does not exist here has no effect. A test compares
this table and the declared settings with a running Kafka. The table itself is `kafka_settings.txt`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

REFUSED: Final = "refused"
NO_EFFECT: Final = "no effect"

_HEADING = re.compile(r"\[(node|topic), (refused|no effect)\] (.+)")


class OtherSetting(NamedTuple):
    """A setting of Kafka that this node does not have."""

    name: str
    kind: str
    """Kafka's type in lower case: boolean, int, short, long, double, string, list, class, password."""
    default: str | None
    verdict: str
    reason: str
    is_topic: bool

    def asks_for_more(self, raw: str) -> bool:
        """Return whether `raw` differs from the default. Only such a value is refused."""
        value = raw.strip()
        if self.kind == "boolean":
            value = value.lower()
        return value != (self.default or "")


def read_table(content: str) -> Iterator[OtherSetting]:
    heading: re.Match[str] | None = None
    for line in content.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            heading = _HEADING.fullmatch(line)
            assert heading is not None, f"a heading that says too little: {line}"
            continue
        assert heading is not None, "a setting needs a heading"
        name, kind, *default = line.split(" ")
        yield OtherSetting(
            name,
            kind,
            default[0].strip('"') if default else None,
            verdict=heading[2],
            reason=heading[3],
            is_topic=heading[1] == "topic",
        )


OTHER_SETTINGS: Final[tuple[OtherSetting, ...]] = tuple(
    read_table(Path(__file__).with_name("kafka_settings.txt").read_text(encoding="utf-8"))
)
