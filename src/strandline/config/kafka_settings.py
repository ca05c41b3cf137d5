"""Every setting of Apache Kafka that this node does not have, and what becomes of it: refused, or without effect.

Refused is what would leave somebody in a false belief: that connections are encrypted, clients authenticated, limits
kept, data somewhere else. Without effect is what tunes parts that are not here; it does no harm. Together with the
settings that are declared in `broker_settings` and `topic_config` the table is complete, which a test holds against a
running Kafka. The table itself is `kafka_settings.txt`.
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
    name: str
    kind: str
    """Kafka's type in lower case: boolean, int, short, long, double, string, list, class, password."""
    default: str | None
    verdict: str
    reason: str
    is_topic: bool

    def asks_for_more(self, raw: str) -> bool:
        """Whether `raw` wants anything but what holds anyway: only that is refused, a default spelled out is not."""
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
