"""Converters, transforms and predicates as parts of a connector: their names and settings, looked up late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

from strandline._version import __version__
from strandline.connect.config import Config
from strandline.connect.failures import InvalidConnectorConfig

PartKind = Literal["transformation", "predicate", "converter", "header_converter"]
PART_KINDS: Final[tuple[PartKind, ...]] = ("transformation", "predicate", "converter", "header_converter")
PART_VERSION: Final = __version__
_HEADERS_ONLY: Final = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


def part_names(kind: PartKind) -> Sequence[str]:
    """Return the whole names of all parts of a kind."""
    if kind in ("transformation", "predicate"):
        from strandline.connect.transforms.chain import predicate_names, transform_names

        return transform_names() if kind == "transformation" else predicate_names()
    from strandline.connect.convert.choosing import CONVERTERS

    return sorted(each for each in CONVERTERS if kind == "header_converter" or each != _HEADERS_ONLY)


def part_name(kind: PartKind, name: str) -> str:
    """Return the whole name of what a config calls by a short one."""
    if kind in ("converter", "header_converter"):
        from strandline.connect.convert.choosing import ALIASES

        return ALIASES.get(name, name)
    return next((each for each in part_names(kind) if each.endswith(f".{name}")), name)


def converter_config(name: str) -> type[Config]:
    """Return the settings of a converter. Raise InvalidConnectorConfig if there is none, or it cannot be used."""
    from strandline.connect.convert.choosing import converter_class

    return converter_class(name).Config


def converter_error(setting: str, kind: PartKind, name: str) -> str | None:
    """Return what is wrong with the class of a converter."""
    try:
        converter_config(name)
    except InvalidConnectorConfig as error:
        is_known = part_name(kind, name) in part_names(kind)
        why = str(error) if is_known else f"Class {name} could not be found."
        return f"Invalid value {name} for configuration {setting}: {why}"
    return None


def part_config(name: str) -> type[Config] | None:
    """Return the settings of a converter, transform or predicate by its name; None if there is none."""
    from strandline.connect.transforms.chain import config_of

    try:
        return config_of(name) or converter_config(name)
    except InvalidConnectorConfig:
        return None


def aliases_of(given: Mapping[str, str | None], setting: str) -> list[str]:
    """Return the names that a setting lists, each once."""
    return list(dict.fromkeys(each.strip() for each in (given.get(setting) or "").split(",") if each.strip()))
