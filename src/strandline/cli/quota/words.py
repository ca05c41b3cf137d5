"""Quotas as people say them (pure): entities, rates and shares, there and back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.plain_words import size
from strandline.config.quota_keys import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    refusal_of_value,
)

OPTIONS: Final = {
    PRODUCER_BYTE_RATE: "--produce",
    CONSUMER_BYTE_RATE: "--fetch",
    REQUEST_PERCENTAGE: "--requests",
    CONTROLLER_MUTATION_RATE: "--changes",
    CONNECTION_CREATION_RATE: "--connections",
}
_BYTES: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE)
_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_NOUNS: Final = {USER: "user", CLIENT_ID: "client id", IP: "address"}
_DECIMAL: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclass(frozen=True)
class QuotaEntity:
    """Who has a quota: types with a name, or None for the default of the type."""

    parts: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        return ", ".join(
            f"every {_NOUNS[kind]} without its own" if name is None else f"{_NOUNS.get(kind, kind)} {name}"
            for kind, name in self.parts
        )

    def as_json(self) -> dict[str, str | None]:
        return {kind.replace("-", "_"): name for kind, name in self.parts}


def entity_of(
    user: str | None, default_user: bool, client_id: str | None, default_client: bool, ip: str | None, default_ip: bool
) -> QuotaEntity | None:
    """Return the entity that options name; None if they name none."""
    named = ((USER, user, default_user), (CLIENT_ID, client_id, default_client), (IP, ip, default_ip))
    parts = []
    for kind, name, is_default in named:
        if name is not None and is_default:
            raise UsageFailed(f"{_NOUNS[kind]} {name!r} and the default cannot both be meant")
        if name == "":
            raise UsageFailed(f"an empty {_NOUNS[kind]} has no quota")
        if name is not None or is_default:
            parts.append((kind, name))
    if len(parts) > 1 and any(kind == IP for kind, _ in parts):
        raise UsageFailed("a quota is for an address, or for a user and a client id, not for both")
    return QuotaEntity(tuple(parts)) if parts else None


def parse_quota(key: str, text: str) -> float:
    """Return the value of an option: `10MB/s`, `50%`, `20/s`, or a plain number."""
    option, plain = OPTIONS[key], text.strip().lower().removesuffix("/s")
    if key == REQUEST_PERCENTAGE:
        plain = plain.removesuffix("%")
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)", plain)
    unit = _UNITS.get(match[2]) if match and (key in _BYTES or not match[2]) else None
    if match is None or unit is None:
        example = "10MB/s" if key in _BYTES else "50%" if key == REQUEST_PERCENTAGE else "20/s"
        raise UsageFailed(f"{option} {text!r} is no quota; say for example {option} {example}")
    value = float(match[1]) * unit
    if value == 0:
        raise UsageFailed(f"{option} of zero would stop the client; a quota is above zero")
    refusal = refusal_of_value(key, value)
    if refusal is not None:
        raise UsageFailed(f"{option} {text!r}: {refusal}")
    return value


def quota_words(key: str, value: float) -> str:
    """`10000000.0` bytes as `10 MB/s`."""
    if key in _BYTES:
        units = () if value % 1000 and value % 1024 == 0 else _DECIMAL
        for unit, name in units:
            if value >= unit:
                return f"{value / unit:,.6g} {name}/s"
        return f"{size(int(value))}/s"
    if key == REQUEST_PERCENTAGE:
        return f"{value:g}% of a broker's time"
    if key == CONTROLLER_MUTATION_RATE:
        return f"{value:g} partitions/s"
    return f"{value:g} connections/s" if key == CONNECTION_CREATION_RATE else f"{value:g}"
