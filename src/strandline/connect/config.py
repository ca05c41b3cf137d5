"""Typed settings of connectors, converters and transforms: declared once, as a class, with their documentation.

    class MySink(Sink):
        class Config(connect.Config):
            url: str = option("Address of the server.")
            batch_size: int = option("Rows of one request.", default=500, low=1)
            password: Password = option("Of the user.", default=None)

`batch_size` is the setting `batch.size`. A value is a text, as everywhere in Kafka Connect; its type is that of the
annotation. Errors have the words of Kafka's ConfigDef, because tools show them and people search for them.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self, get_args, get_origin

from strandline.connect.failures import InvalidConnectorConfig

Importance = Literal["HIGH", "MEDIUM", "LOW"]
Width = Literal["NONE", "SHORT", "MEDIUM", "LONG"]
Check = Callable[[Any], str | None]
"""Returns what is wrong with a value that has the right type, None if nothing is."""

_MISSING: Final = object()
_BOUNDS: Final = {
    "SHORT": (-(2**15), 2**15 - 1),
    "INT": (-(2**31), 2**31 - 1),
    "LONG": (-(2**63), 2**63 - 1),
}
_TRUE_FALSE: Final = {"true": True, "false": False}


class ResolvedText(str):
    """A setting with a secret in it, which knows how it was written: what is stored or shown names that."""

    __slots__ = ("written",)
    written: str

    @classmethod
    def of(cls, text: str, written: str) -> ResolvedText:
        made = cls(text)
        made.written = written
        return made


def as_written(text: str) -> str:
    """Return a setting as its config has it, without secrets."""
    return text.written if isinstance(text, ResolvedText) else text


class Password(str):
    """A text that is not shown: its `repr` hides it, and it is masked wherever a config is shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


class ClassName(str):
    """The name of a converter, transform or predicate."""

    __slots__ = ()


class Long(int):
    """A number of 64 bits; a plain `int` is one of 32, as in Kafka."""


_TYPES: Final[dict[Any, str]] = {
    str: "STRING",
    int: "INT",
    Long: "LONG",
    float: "DOUBLE",
    bool: "BOOLEAN",
    list: "LIST",
    Password: "PASSWORD",
    ClassName: "CLASS",
}


@dataclass(frozen=True)
class Option:
    """One setting. `type` is Kafka's name of it."""

    name: str
    type: str
    doc: str
    default: Any = _MISSING
    importance: Importance = "MEDIUM"
    group: str | None = None
    order: int = -1
    width: Width = "NONE"
    display: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    check: Check | None = None
    dependents: tuple[str, ...] = ()

    @property
    def is_required(self) -> bool:
        return self.default is _MISSING

    @property
    def default_text(self) -> str | None:
        """The default as a text; None if there is none."""
        return None if self.is_required else text_of(self.default)

    def parse(self, given: str | None) -> Any:
        """Return the value of a text, or the default. Raise InvalidConnectorConfig with Kafka's words."""
        if given is None:
            if self.is_required:
                raise InvalidConnectorConfig(
                    f'Missing required configuration "{self.name}" which has no default value.'
                )
            return self.default
        value = self._typed(given)
        wrong = self._wrong(value)
        if wrong is not None:
            shown = "[hidden]" if self.type == "PASSWORD" else _shown(value)
            raise InvalidConnectorConfig(f"Invalid value {shown} for configuration {self.name}: {wrong}")
        return value

    def _typed(self, given: str) -> Any:
        text = given.strip()
        match self.type:
            case "STRING":
                return text
            case "CLASS":
                return ClassName(text)
            case "PASSWORD":
                return Password(text)
            case "LIST":
                return [each.strip() for each in text.split(",")] if text else []
            case "BOOLEAN":
                if text.lower() in _TRUE_FALSE:
                    return _TRUE_FALSE[text.lower()]
                raise self._invalid(given, "Expected value to be either true or false")
            case "DOUBLE":
                try:
                    return float(text)
                except ValueError:
                    raise self._invalid(given, "Not a number of type DOUBLE") from None
        low, high = _BOUNDS[self.type]
        try:
            number = int(text)
        except ValueError:
            number = high + 1
        if not low <= number <= high:
            raise self._invalid(given, f"Not a number of type {self.type}")
        return number

    def _invalid(self, given: str, why: str) -> InvalidConnectorConfig:
        return InvalidConnectorConfig(f"Invalid value {given} for configuration {self.name}: {why}")

    def _wrong(self, value: Any) -> str | None:
        if self.choices:
            for each in value if isinstance(value, list) else [value]:
                if each not in self.choices:
                    return f"String must be one of: {', '.join(self.choices)}"
        if self.low is not None and value < self.low:
            return f"Value must be at least {text_of(self.low)}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {text_of(self.high)}"
        return None if self.check is None else self.check(value)


def option(
    doc: str,
    *,
    default: Any = _MISSING,
    name: str | None = None,
    importance: Importance = "MEDIUM",
    group: str | None = None,
    width: Width = "NONE",
    display: str = "",
    choices: Sequence[str] = (),
    low: float | None = None,
    high: float | None = None,
    check: Check | None = None,
) -> Any:
    """Declare a setting of a Config class. Without a default it is required; `default=None` means that it is optional.

    `check` takes a value of the right type and returns what is wrong with it.
    """
    return _Declared(doc, default, name, importance, group, width, display, tuple(choices), low, high, check)


@dataclass(frozen=True)
class _Declared:
    doc: str
    default: Any
    name: str | None
    importance: Importance
    group: str | None
    width: Width
    display: str
    choices: tuple[str, ...]
    low: float | None
    high: float | None
    check: Check | None


class Config:
    """Base of the settings of one class; its attributes are their values."""

    options: ClassVar[tuple[Option, ...]] = ()
    _attributes: ClassVar[dict[str, str]] = {}
    """Attribute by the name of the setting."""

    def __init__(self, properties: Mapping[str, str | None] | None = None, /) -> None:
        """Raise InvalidConnectorConfig with the first setting that is wrong."""
        given = properties or {}
        self.properties: dict[str, str] = {name: value for name, value in given.items() if value is not None}
        """Everything that was given, also what no option declares."""
        for each in self.options:
            setattr(self, self._attributes[each.name], each.parse(given.get(each.name)))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found: dict[str, Option] = {}
        attributes: dict[str, str] = {}
        for base in reversed(cls.__bases__):
            if issubclass(base, Config):
                found |= {each.name: each for each in base.options}
                attributes |= base._attributes
        hints: dict[str, Any] | None = None
        for attribute, declared in vars(cls).copy().items():
            if not isinstance(declared, _Declared):
                continue
            hints = typing.get_type_hints(cls) if hints is None else hints
            name = declared.name or attribute.replace("_", ".")
            kind, choices = _kind_of(hints[attribute])
            found[name] = Option(
                name,
                kind,
                declared.doc,
                declared.default,
                declared.importance,
                declared.group,
                len(found) + 1 if declared.group is not None else -1,
                declared.width,
                declared.display or name,
                declared.choices or choices,
                declared.low,
                declared.high,
                declared.check,
            )
            attributes[name] = attribute
        cls.options = tuple(found.values())
        cls._attributes = attributes

    @classmethod
    def errors_of(cls, properties: Mapping[str, str | None]) -> dict[str, list[str]]:
        """Return what is wrong, by setting. If each is right alone, `cls.check_all` looks at them together."""
        errors: dict[str, list[str]] = {}
        for each in cls.options:
            try:
                each.parse(properties.get(each.name))
            except InvalidConnectorConfig as error:
                errors[each.name] = [str(error)]
        if not errors:
            for name, message in cls(properties).check_all():
                errors.setdefault(name, []).append(message)
        return errors

    def check_all(self) -> Sequence[tuple[str, str]]:
        """Return settings that do not fit together, each with a sentence. Subclasses override this."""
        return ()

    @classmethod
    def with_prefix(cls, properties: Mapping[str, str], prefix: str) -> Self:
        """Return the settings whose names begin with a prefix, without it."""
        return cls({name.removeprefix(prefix): value for name, value in properties.items() if name.startswith(prefix)})


def _shown(value: Any) -> str | None:
    """Return a value as Kafka's messages have it."""
    return f"[{', '.join(value)}]" if isinstance(value, list) else text_of(value)


def text_of(value: Any) -> str | None:
    """Return a value as the text that a config has for it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(str(each) for each in value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _kind_of(hint: Any) -> tuple[str, tuple[str, ...]]:
    """Return Kafka's name of a type, and the values that a Literal allows."""
    origin = get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (hint,) = (each for each in get_args(hint) if each is not type(None))
        origin = get_origin(hint)
    if origin is Literal:
        return "STRING", tuple(get_args(hint))
    return _TYPES[origin or hint], ()
