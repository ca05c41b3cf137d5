"""Validation of a connector's config, with the outcome and the words of Kafka Connect.

What Kafka finds only when a task starts is found here: settings of `topic.creation.*`, predicates that are not there,
and names that are slips of the pen. Other unknown settings are let through, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.connect.config import Option
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.herder.interface import RequestFailed
from strandline.connect.plugins import Plugin, Plugins
from strandline.connect.sink import Sink
from strandline.connect.source import Source
from strandline.connect.validation import common_options as common
from strandline.connect.validation.common_options import CONVERTERS, PREDICATES, TRANSFORMS, VERSION_SUFFIX
from strandline.connect.validation.config_infos import REFERENCE, CheckedSetting, ConfigInfos, checked, embedded
from strandline.connect.validation.parts import (
    PART_VERSION,
    PartKind,
    aliases_of,
    converter_config,
    converter_error,
    part_name,
    part_names,
)
from strandline.connect.validation.typos import typos

if TYPE_CHECKING:
    from strandline.connect.transforms.chain import StageOptions

Given = Mapping[str, str | None]
Resolve = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Puts the values of `${...}` into a config. Raises InvalidConnectorConfig."""

WORKER_CONVERTERS: Final = dict(
    zip(CONVERTERS, ("JsonConverter", "JsonConverter", "SimpleHeaderConverter"), strict=True)
)
"""The converters of a worker that says nothing about them."""
_NULL: Final = "Null value can not be supplied as the configuration value."
_HINT: Final = (
    "You can also find the above list of errors at the endpoint `/connector-plugins/{connectorType}/config/validate`"
)
_NOT_EXACTLY_ONCE: Final = (
    "The connector does not support exactly-once semantics with the provided configuration: its source cannot begin "
    "again at a stored position."
)
_NO_BOUNDARIES: Final = (
    "The connector does not support connector-defined transaction boundaries with the given configuration. "
    "Please reconfigure it to use a different transaction boundary definition."
)


def check(
    plugins: Plugins, config: Given, *, defaults: Mapping[str, str] = WORKER_CONVERTERS, resolve: Resolve | None = None
) -> None:
    """Raise RequestFailed with every error if a config is wrong."""
    found = validate(plugins, config, defaults=defaults, resolve=resolve)
    if found.error_count:
        errors = "\n".join(message for each in found.settings.values() for message in each.errors)
        raise RequestFailed(
            400,
            f"Connector configuration is invalid and contains the following {found.error_count} error(s):\n"
            f"{errors}\n{_HINT}",
        )


def validate(
    plugins: Plugins, config: Given, *, defaults: Mapping[str, str] = WORKER_CONVERTERS, resolve: Resolve | None = None
) -> ConfigInfos:
    """Return every setting with its value and errors. Raise RequestFailed if the class is missing or unknown.

    `defaults` has the worker's converters. This may import packages and ask the connector, so it runs in a thread.
    """
    plugin = plugin_of(plugins, config)
    try:
        values = config if resolve is None else _resolved(config, resolve)
        validation = _Validation(plugin, values, defaults)
    except InvalidConnectorConfig as error:
        raise RequestFailed(400, str(error)) from None
    found = validation.run()
    if values is not config:
        _hide(found, config, values)
    return found


def plugin_of(plugins: Plugins, config: Given) -> Plugin:
    """Return the plugin that a config names. Raise RequestFailed if it names none that is known."""
    name = config.get(common.CONNECTOR_CLASS)
    if name is None:
        shown = ", ".join(f"{key}={value}" for key, value in config.items())
        raise RequestFailed(400, f"Connector config {{{shown}}} contains no connector type")
    try:
        return plugins.find(name.strip())
    except InvalidConnectorConfig as error:
        raise RequestFailed(400, str(error)) from None


def options_of(plugin: Plugin) -> dict[str, Option]:
    """Return every setting of a connector: its own, then those that all have. Raise InvalidConnectorConfig."""
    own = {each.name: each for each in plugin.load().Config.options}
    return own | {each.name: each for each in _framework(plugin) if each.name not in own}


def _framework(plugin: Plugin) -> Iterator[Option]:
    for each in common.COMMON_OPTIONS:
        yield replace(each, default=plugin.version) if each.name == common.CONNECTOR_VERSION else each
    yield from common.SINK_OPTIONS if plugin.kind == "sink" else common.SOURCE_OPTIONS
    yield from common.LIMIT_OPTIONS


def _resolved(config: Given, resolve: Resolve) -> Given:
    texts = {name: value for name, value in config.items() if value is not None}
    return {**config, **{name: value for name, value in resolve(texts).items() if name in texts}}


def _hide(found: ConfigInfos, config: Given, values: Given) -> None:
    """Show references as they were given, because what they stand for is secret."""
    for name, setting in found.settings.items():
        given, value = config.get(name), values.get(name)
        if given is None or not value or REFERENCE not in given:
            continue
        if setting.value is not None:
            setting.value = given
        setting.errors = [each.replace(value, given) for each in setting.errors]


class _Validation:
    """One validation under way."""

    def __init__(self, plugin: Plugin, given: Given, defaults: Mapping[str, str]) -> None:
        self._plugin = plugin
        self._class = plugin.load()
        self._given = given
        self._defaults = defaults
        self._free: list[str] = [*common.CLIENT_PREFIXES, common.TOPIC_CREATION]
        """Beginnings of names that are no typos, because they name what the config does not use."""
        self._found = ConfigInfos(given[common.CONNECTOR_CLASS] or "")

    def run(self) -> ConfigInfos:
        for each in _framework(self._plugin):
            self._check_framework(each)
        self._check_stages()
        if self._plugin.kind == "sink":
            self._check_topics()
        else:
            self._check_source()
        self._check_own()
        for name in (CONVERTERS[2], *CONVERTERS[:2]):
            self._check_converter(name)
        self._check_unknown()
        return self._found

    def _add(self, option: Option) -> CheckedSetting:
        found = checked(option, self._given)
        self._found.settings[option.name] = found
        return found

    def _check_framework(self, option: Option) -> None:
        name = option.name
        if name in CONVERTERS:
            self._check_converter_class(option)
        elif name.endswith(VERSION_SUFFIX):
            is_connector = name == common.CONNECTOR_VERSION
            version = self._plugin.version if is_connector else self._part_version(name.removesuffix(VERSION_SUFFIX))
            found = self._add_version(replace(option, default=version), version)
            found.is_visible = version is not None
        else:
            self._add(option)

    def _add_version(self, option: Option, version: str | None) -> CheckedSetting:
        found = self._add(option)
        found.recommended = () if version is None else (version,)
        given = self._given.get(option.name)
        # A range, such as `[1.0,2.0)`, is let through.
        if given and version is not None and given != version and given[0] not in "[(":
            found.errors.append(
                f"Invalid value {given} for configuration {option.name}: the worker has version {version} only"
            )
        return found

    def _part_version(self, setting: str) -> str | None:
        errors = self._found.settings[setting].errors
        return None if errors else PART_VERSION

    def _check_converter_class(self, option: Option) -> None:
        kind: PartKind = "header_converter" if option.name == CONVERTERS[2] else "converter"
        default = part_name(kind, self._defaults.get(option.name, WORKER_CONVERTERS[option.name]))
        found = self._add(replace(option, default=default))
        found.recommended = part_names(kind)
        if found.value is None or found.errors:
            return
        if error := converter_error(found.name, kind, found.value):
            found.errors.append(error)
            found.value = None
        else:
            found.value = part_name(kind, found.value)

    # Transforms and predicates

    def _check_stages(self) -> None:
        from strandline.connect.transforms.chain import transform_options

        for stage in transform_options({name: value for name, value in self._given.items() if value is not None}):
            self._check_stage(stage)
        for setting in (TRANSFORMS, PREDICATES):
            self._free += _unused(self._given, setting)

    def _check_stage(self, stage: StageOptions) -> None:
        kind: PartKind = "transformation" if stage.kind == TRANSFORMS else "predicate"
        prefix, group, title = f"{stage.kind}.{stage.alias}.", f"{stage.kind.capitalize()}: {stage.alias}", kind.title()

        def own(name: str, type_name: str, order: int, doc: str, **more: Any) -> Option:
            display = f"{title} {'type' if order == 0 else 'version'} for {stage.alias}"
            option = Option(prefix + name, type_name, doc, importance="HIGH", group=group, order=order, width="LONG")
            return replace(option, display=display, **more)

        found = self._add(own("type", "CLASS", 0, f"Class of the {kind} {stage.alias}."))
        found.recommended = part_names(kind)
        version = None if stage.config is None else PART_VERSION
        doc = f"Version of the {kind}. A worker has one version of each, so it need not be set."
        self._add_version(own("plugin.version", "STRING", 1, doc, default=version), version)
        if stage.config is None:
            found.value = None
            self._free.append(prefix)
        else:
            assert found.value is not None
            found.value = part_name(kind, found.value)
            options = [*stage.config.options, *(_PREDICATE_OPTIONS if kind == "transformation" else ())]
            for each in embedded(options, prefix, group, 2):
                self._add(each)
        self._add_errors(stage.errors)

    # The kinds of connectors

    def _check_topics(self) -> None:
        assert issubclass(self._class, Sink)
        topics = [each.strip() for each in (self._given.get(common.TOPICS) or "").split(",") if each.strip()]
        regex = (self._given.get(common.TOPICS_REGEX) or "").strip()
        dead = (self._given.get(common.DEAD_LETTER_TOPIC) or "").strip()
        if bool(topics) == bool(regex):
            both = f"{common.TOPICS} and {common.TOPICS_REGEX} are mutually exclusive options, but both are set."
            none = f"Must configure one of {common.TOPICS} or {common.TOPICS_REGEX}"
            for name in (common.TOPICS, common.TOPICS_REGEX):
                self._found.add_error(name, both if topics else none)
        if dead and dead in topics:
            listed = ", ".join(dict.fromkeys(topics))
            self._found.add_error(
                common.TOPICS,
                f"The DLQ topic '{dead}' may not be included in the list of topics ('topics=[{listed}]') "
                "consumed by the connector",
            )
        if dead and regex and common.matches(regex, dead):
            self._found.add_error(
                common.TOPICS_REGEX,
                f"The DLQ topic '{dead}' may not be matched by the regex for the topics ('topics.regex={regex}') "
                "consumed by the connector",
            )

    def _check_source(self) -> None:
        assert issubclass(self._class, Source)
        if (self._given.get(common.EXACTLY_ONCE) or "").strip().lower() == "required" and not self._class.exactly_once:
            self._found.add_error(common.EXACTLY_ONCE, _NOT_EXACTLY_ONCE)
        if (self._given.get(common.BOUNDARY) or "").strip().lower() == "connector":
            self._found.add_error(common.BOUNDARY, _NO_BOUNDARIES)
        if any(each.startswith(common.TOPIC_CREATION) for each in self._given):
            groups = [each for each in aliases_of(self._given, common.TOPIC_CREATION_GROUPS) if each != "default"]
            for group in ("default", *groups):
                for option in common.topic_creation_options(group, is_default=group == "default"):
                    self._add(option)

    # What the connector and its converters declare

    def _check_own(self) -> None:
        own = self._class.Config
        for each in own.options:
            self._add(each)
        self._add_errors(own.errors_of(self._given))

    def _check_converter(self, setting: str) -> None:
        """Check the settings of a converter that the connector has of its own."""
        name = self._found.settings[setting].value
        if self._given.get(setting) is None or name is None:
            # Its settings are the worker's, or those of a class that is not known.
            self._free.append(f"{setting}.")
            return
        config = converter_config(name)
        for each in config.options:
            self._add(replace(each, name=f"{setting}.{each.name}", display=each.display or each.name))
        errors = config.errors_of(_below(self._given, f"{setting}."))
        self._add_errors({f"{setting}.{each}": messages for each, messages in errors.items()})

    def _add_errors(self, errors: Mapping[str, list[str]]) -> None:
        """Add what a class finds wrong with its settings together; what each has alone is there."""
        for name, messages in errors.items():
            setting = self._found.settings.setdefault(name, CheckedSetting(name))
            if not setting.errors:
                setting.errors += messages

    def _check_unknown(self) -> None:
        for name, value in self._given.items():
            if value is None:
                self._found.add_error(name, _NULL)
        known = {*self._found.settings, *_KNOWN_BESIDES}
        for name, meant in typos(self._given, known, tuple(self._free)):
            self._found.add_error(name, f"unknown setting {name}: did you mean {meant}?")


_KNOWN_BESIDES: Final = ("topic", "task.class", "converter.type")
"""Settings that the worker reads, or writes itself, though no class declares them."""
_PREDICATE_OPTIONS: Final = (
    Option("predicate", "STRING", "Name of the predicate of records that are transformed; all are if unset.", None),
    Option("negate", "BOOLEAN", "Whether the transform is for records that the predicate does not hold for.", False),
)


def _below(given: Given, prefix: str) -> Given:
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}


def _unused(given: Given, setting: str) -> list[str]:
    """Return the beginnings of settings of aliases that are not listed: people take one off the list for a while."""
    listed = aliases_of(given, setting)
    prefix = f"{setting}."
    aliases = {name.removeprefix(prefix).partition(".")[0] for name in given if name.startswith(prefix)}
    return [f"{prefix}{each}." for each in aliases if each not in listed]
