"""The outcome of a validation, in the JSON of Kafka Connect: each setting with its definition, value and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from strandline.connect.config import Option, text_of
from strandline.connect.failures import InvalidConnectorConfig

HIDDEN: Final = "[hidden]"
"""What stands for a password wherever a config is shown."""
REFERENCE: Final = "${"
"""What a value begins with that the worker resolves, such as `${env:PASSWORD}`."""
_IMPORTANCES: Final = ("HIGH", "MEDIUM", "LOW")


@dataclass
class CheckedSetting:
    """One setting: what is known about it, what its value is, and what is wrong with that."""

    name: str
    option: Option | None = None
    value: str | None = None
    errors: list[str] = field(default_factory=list)
    recommended: Sequence[str] = ()
    is_visible: bool = True

    def json(self) -> dict[str, Any]:
        return {
            "definition": None if self.option is None else definition_json(self.option),
            "value": {
                "name": self.name,
                "value": self.value,
                "recommended_values": list(self.recommended),
                "errors": self.errors,
                "visible": self.is_visible,
            },
        }


@dataclass
class ConfigInfos:
    """Every setting of a connector. `name` is its class as the config calls it."""

    name: str
    settings: dict[str, CheckedSetting] = field(default_factory=dict)

    @property
    def error_count(self) -> int:
        return sum(len(each.errors) for each in self.settings.values())

    @property
    def groups(self) -> list[str]:
        found = (each.option.group for each in self.settings.values() if each.option is not None)
        return list(dict.fromkeys(each for each in found if each is not None))

    def add_error(self, name: str, message: str) -> None:
        self.settings.setdefault(name, CheckedSetting(name)).errors.append(message)

    def json(self) -> dict[str, Any]:
        ordered = sorted(self.settings.values(), key=lambda each: each.option is not None)
        return {
            "name": self.name,
            "error_count": self.error_count,
            "groups": self.groups,
            "configs": [each.json() for each in ordered],
        }


def definition_json(option: Option) -> dict[str, Any]:
    """Return the definition of a setting."""
    return {
        "name": option.name,
        "type": option.type,
        "required": option.is_required,
        "default_value": option.default_text,
        "importance": option.importance,
        "documentation": option.doc,
        "group": option.group,
        "width": option.width,
        "display_name": option.display or option.name,
        "dependents": list(option.dependents),
        "order_in_group": option.order,
    }


def checked(option: Option, given: Mapping[str, str | None]) -> CheckedSetting:
    """Return a setting with its value; the errors are those that Kafka's ConfigDef has."""
    found = CheckedSetting(option.name, option)
    text = given.get(option.name)
    if option.name in given and text is None:
        if option.choices:
            found.errors.append(f"Invalid value null for configuration {option.name}: {_choices(option)}")
        return found
    try:
        value = _unchecked(option).parse(text)
    except InvalidConnectorConfig as error:
        found.errors.append(str(error))
        if text is not None and (option.low is not None or option.high is not None):
            # Kafka goes on to check the range of the value that it could not read.
            found.errors.append(f"Invalid value null for configuration {option.name}: Value must be non-null")
        return found
    found.value = HIDDEN if option.type == "PASSWORD" and value is not None else text_of(value)
    try:
        option.parse(text)
    except InvalidConnectorConfig as error:
        found.errors.append(str(error))
    return found


def _unchecked(option: Option) -> Option:
    return replace(option, choices=(), low=None, high=None, check=None)


def _choices(option: Option) -> str:
    return f"String must be one of: {', '.join(option.choices)}"


def embedded(options: Iterable[Option], prefix: str, group: str, first: int) -> list[Option]:
    """Return the settings of a transform or predicate as those of its connector, in the order that Kafka gives them."""
    options = list(options)
    groups = list(dict.fromkeys(each.group for each in options if each.group is not None))

    def place(option: Option) -> tuple[Any, ...]:
        at = -1 if option.group is None else groups.index(option.group)
        return at, option.order, not option.is_required, _IMPORTANCES.index(option.importance), option.name

    return [
        replace(
            each,
            name=prefix + each.name,
            group=group if each.group is None else f"{group}: {each.group}",
            order=number,
            display=each.display or each.name,
            dependents=tuple(prefix + other for other in each.dependents),
        )
        for number, each in enumerate(sorted(options, key=place), first)
    ]
