"""The declaration of a setting: its name, type, default, limits and documentation.

A table of settings is a frozen dataclass whose fields are declared with `integer`, `short`, `long`, `boolean`, `text`,
`words`, `password` or `double`. Parsing, validation, warnings, DescribeConfigs and `docs/configuration.md` all read the
table. So a setting cannot be accepted without being documented, nor documented without being accepted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

from strandline.errors import InvalidConfig

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

READ_ONLY: Final = "read-only"
"""Read once, when a broker starts."""
PER_BROKER: Final = "per-broker"
"""Can be changed while a broker runs, for that broker alone."""
CLUSTER_WIDE: Final = "cluster-wide"
"""Can be changed while brokers run, for one of them or as the default of all."""

CONFIG_TYPES: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
"""The numbers of the types in DescribeConfigs; 0 is unknown."""

_RANGES = {"short": (-(2**15), 2**15 - 1), "int": (-(2**31), INT_MAX), "long": (-(2**63), LONG_MAX)}


class ConfigSource(IntEnum):
    """The source of a value in force, with the numbers of the protocol."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


Value = bool | int | float | str | tuple[str, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class Allowed:
    """The values that a setting may take: a range of numbers, a set of words or a form (of each word, for a list).

    `also` is one number outside the range that means something special. Messages show `words` in place of `form`.
    """

    minimum: float | None = None
    maximum: float | None = None
    words: tuple[str, ...] = ()
    also: float | None = None
    form: str = ""

    def __contains__(self, value: Value) -> bool:
        if self.form:
            return all(re.fullmatch(self.form, word) for word in (value if isinstance(value, tuple) else (str(value),)))
        if self.words:
            return all(word in self.words for word in (value if isinstance(value, tuple) else (value,)))
        if not isinstance(value, int | float) or value == self.also:
            return True
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)

    def __str__(self) -> str:
        if self.words:
            return ", ".join(self.words)
        if self.maximum is None:
            return f"at least {self.minimum:.15g}"
        also = "" if self.also is None else f", or {self.also:.15g}"
        return f"{self.minimum:.15g} to {self.maximum:.15g}{also}"


def at_least(minimum: float) -> Allowed:
    return Allowed(minimum=minimum)


def between(minimum: float, maximum: float, *, also: float | None = None) -> Allowed:
    return Allowed(minimum=minimum, maximum=maximum, also=also)


def one_of(*words: str) -> Allowed:
    return Allowed(words=words)


def of_form(form: str, *shown: str) -> Allowed:
    """Allow words that match a regular expression, which messages show as `shown`."""
    return Allowed(words=shown, form=form)


@dataclasses.dataclass(frozen=True, slots=True)
class Synonym:
    """Another name of a setting on a broker; for a topic setting, the one that gives it its default.

    `factor` converts its unit to the setting's; `kind` is its type where that differs.
    """

    name: str
    factor: int = 1
    update: str = READ_ONLY
    kind: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `update` is Kafka's update mode on a broker. Settings of a topic can always be changed."""

    name: str
    kind: str
    default: Value
    allowed: Allowed | None
    doc: str
    synonyms: tuple[Synonym, ...] = ()
    effect: bool = True
    hidden: bool = False
    update: str = READ_ONLY

    @property
    def config_type(self) -> int:
        """Return the number of the type in DescribeConfigs."""
        return CONFIG_TYPES[self.kind]

    @property
    def is_sensitive(self) -> bool:
        """Return whether the value is a secret, which is never sent or shown."""
        return self.kind == "password"

    def parse(self, raw: str, *, name: str | None = None, source: str = "", factor: int = 1) -> Value:
        """Return the typed value of `raw`. InvalidConfig names the source, the key, the value and what is allowed."""
        value = self._typed(raw.strip(), name or self.name, source)
        if factor != 1 and isinstance(value, int):
            # -1 in milliseconds, because all hours and minutes below zero mean "no limit".
            value = value * factor if value >= 0 else -1
        if self.allowed is not None and value not in self.allowed:
            raise self._refusal(raw, name or self.name, source)
        return value

    def _typed(self, raw: str, name: str, source: str) -> Value:
        match self.kind:
            case "boolean":
                if raw.lower() not in ("true", "false"):
                    raise self._refusal(raw, name, source)
                return raw.lower() == "true"
            case "short" | "int" | "long":
                # Checked here, because Python also accepts "1_000" and the digits of other alphabets.
                if not re.fullmatch(r"[+-]?[0-9]{1,19}", raw):
                    raise self._refusal(raw, name, source)
                number, (lowest, highest) = int(raw), _RANGES[self.kind]
                if not lowest <= number <= highest:
                    raise self._refusal(raw, name, source)
                return number
            case "double":
                try:
                    fraction = float(raw)
                except ValueError:
                    raise self._refusal(raw, name, source) from None
                if fraction != fraction:
                    raise self._refusal(raw, name, source)
                return fraction
            case "list":
                return tuple(word.strip() for word in raw.split(",") if word.strip())
            case _:
                return raw

    def _refusal(self, raw: str, name: str, source: str) -> InvalidConfig:
        at = f"{source}: " if source else ""
        return InvalidConfig(f"{at}{name}={raw!r} is not allowed; expected {self.expected()}")

    def expected(self) -> str:
        """Describe the allowed values."""
        if self.kind == "boolean":
            return "true or false"
        if self.kind == "list":
            return f"a list of: {self.allowed}" if self.allowed else "a comma-separated list"
        if self.allowed is not None:
            return str(self.allowed) if self.allowed.words else f"{self.kind}, {self.allowed}"
        return {
            "short": "a 16-bit number",
            "int": "a 32-bit number",
            "long": "a 64-bit number",
            "double": "a number",
        }.get(self.kind, "text")


def text_of(value: Value) -> str | None:
    """Format a value as Kafka prints it in configs: `true`, `a,b`, or None where nothing is set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return str(value).replace("e+", "E").replace("e-", "E-")
    return str(value)


def _field(setting: Setting) -> Any:
    return dataclasses.field(default=setting.default, metadata={"setting": setting})


def boolean(name: str, default: bool, doc: str, **more: Any) -> Any:
    return _field(Setting(name, "boolean", default, None, doc, **more))


def integer(name: str, default: int | None, allowed: Allowed | None, doc: str, **more: Any) -> Any:
    return _field(Setting(name, "int", default, allowed, doc, **more))


def short(name: str, default: int, allowed: Allowed | None, doc: str, **more: Any) -> Any:
    return _field(Setting(name, "short", default, allowed, doc, **more))


def long(name: str, default: int | None, allowed: Allowed | None, doc: str, **more: Any) -> Any:
    return _field(Setting(name, "long", default, allowed, doc, **more))


def double(name: str, default: float, allowed: Allowed | None, doc: str, **more: Any) -> Any:
    return _field(Setting(name, "double", default, allowed, doc, **more))


def text(name: str, default: str | None, allowed: Allowed | None, doc: str, **more: Any) -> Any:
    return _field(Setting(name, "string", default, allowed, doc, **more))


def class_name(name: str, allowed: Allowed, doc: str, **more: Any) -> Any:
    """Declare a setting that names one of Java's classes, whose part is built in here."""
    return _field(Setting(name, "class", None, allowed, doc, **more))


def password(name: str, doc: str, **more: Any) -> Any:
    """Declare a secret without a default. It is never sent or shown."""
    return dataclasses.field(
        default=None, repr=False, metadata={"setting": Setting(name, "password", None, None, doc, **more)}
    )


def words(name: str, default: tuple[str, ...] | None, allowed: Allowed | None, doc: str, **more: Any) -> Any:
    return _field(Setting(name, "list", default, allowed, doc, **more))


def settings_of(config_class: Any) -> Iterator[tuple[str, Setting]]:
    """Yield (attribute, setting) of every declared field, in the order of declaration."""
    for field in dataclasses.fields(config_class):
        if "setting" in field.metadata:
            yield field.name, field.metadata["setting"]


def environment_name(name: str) -> str:
    """Return `STRANDLINE_LOG_SEGMENT_BYTES` for `log.segment.bytes`."""
    return "STRANDLINE_" + re.sub(r"[.\-]", "_", name).upper()
