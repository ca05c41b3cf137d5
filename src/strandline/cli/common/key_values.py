"""The pairs that users write as KEY=VALUE: client properties, settings of nodes, topics and Spark."""

from __future__ import annotations

from strandline.cli.common.failures import UsageFailed


def key_values(pairs: list[str] | None, *, option: str) -> dict[str, str]:
    """Return `["a=1", "b=x=y"]` as a dict; the first `=` divides."""
    parsed: dict[str, str] = {}
    for pair in pairs or []:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageFailed(f"{option} {pair!r} is not KEY=VALUE")
        parsed[key] = value
    return parsed
