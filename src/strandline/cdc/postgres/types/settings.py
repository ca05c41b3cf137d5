"""Settings of the types: Debezium's, and those of the sessions that values are read in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from strandline.connect.failures import InvalidConnectorConfig

SESSION_SETTINGS: Final = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}
"""What a session needs before its text is converted: one of a snapshot, and one of replication."""

_CHOICES: Final = {
    "decimal": ("decimal.handling.mode", ("precise", "double", "string")),
    "time": (
        "time.precision.mode",
        ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
    ),
    "binary": ("binary.handling.mode", ("bytes", "base64", "base64-url-safe", "hex")),
    "interval": ("interval.handling.mode", ("numeric", "string")),
    "hstore": ("hstore.handling.mode", ("json", "map")),
}
_HEX: Final = "hex:"


def session_options() -> str:
    """Return `SESSION_SETTINGS` as the `options` of a connection, the only way for one of replication."""
    return " ".join(f"-c {name}={value}" for name, value in SESSION_SETTINGS.items())


@dataclass(frozen=True)
class TypeSettings:
    """Debezium's settings of types, with its values and defaults."""

    decimal: str = "precise"
    time: str = "adaptive"
    binary: str = "bytes"
    interval: str = "numeric"
    hstore: str = "json"
    money_digits: int = 2
    include_unknown: bool = False
    placeholder: str = "__debezium_unavailable_value"
    """The value of `unavailable.value.placeholder`; with the prefix `hex:` its bytes in hex."""

    def __post_init__(self) -> None:
        """Raise InvalidConnectorConfig for a value that a setting does not have."""
        for field, (setting, choices) in _CHOICES.items():
            if getattr(self, field) not in choices:
                raise InvalidConnectorConfig(
                    f"{setting} is {getattr(self, field)!r}, but must be one of {', '.join(choices)}."
                )
        if self.money_digits < 0:
            raise InvalidConnectorConfig(f"money.fraction.digits is {self.money_digits}, but must not be negative.")
        if self.placeholder.startswith(_HEX):
            try:
                bytes.fromhex(self.placeholder.removeprefix(_HEX))
            except ValueError:
                raise InvalidConnectorConfig(
                    f"unavailable.value.placeholder is {self.placeholder!r}, but hex digits must follow {_HEX!r}."
                ) from None

    @cached_property
    def placeholder_bytes(self) -> bytes:
        """Return what stands for a value that the database did not send."""
        if self.placeholder.startswith(_HEX):
            return bytes.fromhex(self.placeholder.removeprefix(_HEX))
        return self.placeholder.encode()
