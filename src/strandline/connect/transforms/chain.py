"""The chain of a connector's transforms, from its config.

transforms=mask,route
transforms.mask.type=org.apache.kafka.connect.transforms.MaskField$Value
transforms.mask.fields=password
transforms.route.type=RegexRouter
...
transforms.route.predicate=isOrder
predicates=isOrder
predicates.isOrder.type=TopicNameMatches
predicates.isOrder.pattern=order.*
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple

from strandline.connect.config import ClassName, Config, Option, option
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.records import ConnectRecord
from strandline.connect.transforms.interface import Predicate, Side, SidedTransform, Transform
from strandline.connect.transforms.python_function import Python

StageKind = Literal["transforms", "predicates"]
Chain = Callable[[ConnectRecord], ConnectRecord | None]
_Step = tuple[Chain, Callable[[ConnectRecord], bool] | None, bool]

_PACKAGE: Final = "org.apache.kafka.connect.transforms"
_OURS: Final = "strandline.connect.transforms"

SIDED: Final[Mapping[str, str]] = {
    "Cast": "casting",
    "ExtractField": "fields",
    "Flatten": "flattening",
    "HeaderFrom": "record_headers",
    "HoistField": "fields",
    "InsertField": "inserting",
    "MaskField": "fields",
    "ReplaceField": "fields",
    "SetSchemaMetadata": "fields",
    "TimestampConverter": "timestamps",
}
"""Transforms of the key or the value, and the module of each; configs name them `Cast$Key` and `Cast$Value`."""
UNSIDED: Final[Mapping[str, str]] = {
    "DropHeaders": "record_headers",
    "Filter": "record_headers",
    "InsertHeader": "record_headers",
    "RegexRouter": "routing",
    "TimestampRouter": "routing",
    "ValueToKey": "fields",
}
NAMED: Final[Mapping[str, str]] = {
    "io.debezium.transforms.ByLogicalTableRouter": "strandline.cdc.transforms.table_router",
    "io.debezium.transforms.ExtractChangedRecordState": "strandline.cdc.transforms.changed_fields",
    "io.debezium.transforms.ExtractNewRecordState": "strandline.cdc.transforms.flat_records",
    "io.debezium.transforms.outbox.EventRouter": "strandline.cdc.transforms.outbox_router",
}
"""Transforms of other packages, by their full names, and the module of each; configs may give the class alone."""
PREDICATES: Final = ("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches")
_LABELS: Final[Mapping[StageKind, str]] = {"transforms": "Transformation", "predicates": "Predicate"}
_GROUPS: Final[Mapping[StageKind, str]] = {"transforms": "Transforms", "predicates": "Predicates"}


class _Named(NamedTuple):
    """A class that a config may name."""

    found: type[Transform] | type[Predicate]
    side: Side | None = None


class _TypeConfig(Config):
    """The settings of every predicate."""

    type: ClassName = option("The class.", importance="HIGH", width="LONG")


class _TransformConfig(_TypeConfig):
    """The settings of every transform."""

    predicate: str | None = option(
        "The alias of a predicate used to determine whether to apply this transformation.", default=None
    )
    negate: bool = option("Whether the configured predicate should be negated.", default=False)


@dataclass(frozen=True)
class StageOptions:
    """What the REST API shows of one alias."""

    kind: StageKind
    alias: str
    config: type[Config] | None
    """Settings of its class; None if there is no such class."""
    options: tuple[Option, ...]
    """All settings, with their full names."""
    errors: dict[str, list[str]]
    """What is wrong, by the full name of the setting."""


def transform_names() -> list[str]:
    """Return the full names of all transforms."""
    sided = [f"{_PACKAGE}.{name}${side}" for name in SIDED for side in ("Key", "Value")]
    return sorted([*sided, *(f"{_PACKAGE}.{name}" for name in UNSIDED), *NAMED, f"{_OURS}.Python"])


def predicate_names() -> list[str]:
    """Return the full names of all predicates."""
    return [f"{_PACKAGE}.predicates.{name}" for name in PREDICATES]


def config_of(name: str) -> type[Config] | None:
    """Return the settings of a transform or predicate; None if there is none of that name."""
    found = _named("transforms", name) or _named("predicates", name)
    return None if found is None else found.found.Config


def _named(kind: StageKind, name: str) -> _Named | None:
    """Return the class of a name: a whole one, or without its package. A `$` may be a dot, or be left out."""
    if kind == "predicates":
        short = name.removeprefix(f"{_PACKAGE}.predicates.")
        return _Named(_loaded("predicates", short)) if short in PREDICATES else None
    if name in (f"{_OURS}.Python", "Python"):
        return _Named(Python)
    full = next((each for each in NAMED if name in (each, each.rpartition(".")[2])), None)
    if full is not None:
        return _Named(getattr(import_module(NAMED[full]), full.rpartition(".")[2]))
    short = name.removeprefix(f"{_PACKAGE}.")
    if short in UNSIDED:
        return _Named(_loaded(UNSIDED[short], short))
    for side in ("key", "value"):
        plain = short.removesuffix(side.title()).removesuffix("$")
        if short.endswith(side.title()) and plain in SIDED:
            return _Named(_loaded(SIDED[plain], plain), "key" if side == "key" else "value")
    return None


def _loaded(module: str, name: str) -> type[Transform] | type[Predicate]:
    found: type[Transform] | type[Predicate] = getattr(import_module(f"{_OURS}.{module}"), name)
    return found


def transform_options(properties: Mapping[str, str]) -> list[StageOptions]:
    """Return the settings of each transform and predicate of a config, and what is wrong with them."""
    return [
        _stage_options(kind, alias, properties)
        for kind in _LABELS
        for alias in dict.fromkeys(_aliases(kind, properties))
    ]


def alias_errors(properties: Mapping[str, str]) -> dict[str, list[str]]:
    """Return what is wrong with the lists of aliases."""
    found: dict[str, list[str]] = {}
    for kind in _LABELS:
        aliases = _aliases(kind, properties)
        if len(set(aliases)) < len(aliases):
            shown = f"Invalid value [{', '.join(aliases)}] for configuration {kind}"
            found[kind] = [f"{shown}: Duplicate alias provided."]
    return found


def _aliases(kind: StageKind, properties: Mapping[str, str]) -> list[str]:
    return [each.strip() for each in (properties.get(kind) or "").split(",") if each.strip()]


def _stage_options(kind: StageKind, alias: str, properties: Mapping[str, str]) -> StageOptions:
    prefix = f"{kind}.{alias}."
    given = {name.removeprefix(prefix): each for name, each in properties.items() if name.startswith(prefix)}
    basics: type[Config] = _TransformConfig if kind == "transforms" else _TypeConfig
    errors = basics.errors_of(given)
    name = given.get("type", "").strip()
    named = _named(kind, name)
    config = None if named is None else named.found.Config
    if config is not None:
        errors |= config.errors_of(given)
    elif "type" in given:
        errors["type"] = [f"Invalid value {name} for configuration {prefix}type: Class {name} could not be found."]
    if kind == "transforms":
        for setting, message in _predicate_errors(prefix, given, properties):
            errors.setdefault(setting, []).append(message)
    return StageOptions(
        kind,
        alias,
        config,
        tuple(_with_prefix(kind, alias, basics, config)),
        {f"{prefix}{setting}": [_full(each, setting, prefix) for each in found] for setting, found in errors.items()},
    )


def _with_prefix(kind: StageKind, alias: str, basics: type[Config], config: type[Config] | None) -> Iterator[Option]:
    label = _LABELS[kind]
    shown = {
        "doc": f"Class for the '{alias}' {label.lower()}.",
        "display": f"{label} type for {alias}",
        "choices": (),
    }
    options = [*basics.options, *(config.options if config is not None else ())]
    for order, each in enumerate(options):
        changes: dict[str, Any] = shown if each.name == "type" else {"display": each.display}
        name = f"{kind}.{alias}.{each.name}"
        yield replace(each, name=name, group=f"{_GROUPS[kind]}: {alias}", order=order, **changes)


def _full(message: str, setting: str, prefix: str) -> str:
    """Return a message with the full name of its setting."""
    return message.replace(f'configuration "{setting}"', f'configuration "{prefix}{setting}"').replace(
        f"configuration {setting}:", f"configuration {prefix}{setting}:"
    )


def _predicate_errors(
    prefix: str, given: Mapping[str, str], properties: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    alias = given.get("predicate")
    if alias is None:
        if "negate" in given:
            yield (
                "type",
                f"Config '{prefix}negate' was provided but there is no config '{prefix}predicate' defining a predicate "
                "to be negated.",
            )
    elif alias.strip() not in _aliases("predicates", properties):
        yield "predicate", f"Unknown configuration 'predicates.{alias.strip()}.type'"


def transform_chain(properties: Mapping[str, str], allowed_modules: Collection[str] = ()) -> Chain | None:
    """Return a function that applies all transforms of a config; None if it has none.

    `allowed_modules` are those whose functions a config may name. Raise InvalidConnectorConfig with the first error.
    """
    errors = alias_errors(properties)
    for each in transform_options(properties):
        errors |= each.errors
    if errors:
        raise InvalidConnectorConfig(next(iter(errors.values()))[0])
    predicates = {alias: _predicate(alias, properties).test for alias in _aliases("predicates", properties)}
    stages: list[_Step] = []
    for alias in _aliases("transforms", properties):
        general = _TransformConfig.with_prefix(properties, f"transforms.{alias}.")
        test = None if general.predicate is None else predicates[general.predicate]
        stages.append((_transform(alias, properties, allowed_modules).apply, test, general.negate))
    return _Stages(stages) if stages else None


class _Stages:
    """Transforms in order, each with its predicate."""

    def __init__(self, stages: list[_Step]) -> None:
        self._stages = stages

    def __call__(self, record: ConnectRecord) -> ConnectRecord | None:
        for apply, test, is_negated in self._stages:
            if test is None or test(record) != is_negated:
                changed = apply(record)
                if changed is None:
                    return None
                record = changed
        return record


def _predicate(alias: str, properties: Mapping[str, str]) -> Predicate:
    prefix = f"predicates.{alias}."
    named = _named("predicates", properties[f"{prefix}type"].strip())
    assert named is not None
    assert issubclass(named.found, Predicate)
    return named.found(named.found.Config.with_prefix(properties, prefix))


def _transform(alias: str, properties: Mapping[str, str], allowed_modules: Collection[str]) -> Transform:
    prefix = f"transforms.{alias}."
    named = _named("transforms", properties[f"{prefix}type"].strip())
    assert named is not None
    assert issubclass(named.found, Transform)
    config = named.found.Config.with_prefix(properties, prefix)
    if named.found is Python:
        return Python(config, allowed_modules)
    if named.side is not None:
        assert issubclass(named.found, SidedTransform)
        return named.found(config, named.side)
    return named.found(config)
