"""The entries of DescribeConfigs for a resource: each setting, its value, its source and its synonyms.

The synonyms of a setting are its value in force and the values that it would fall back to. Their order and their
sources are Kafka's: a node's own dynamic setting, the cluster's, the file's, the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from strandline.config.node_config import BrokerConfig
from strandline.config.node_settings import NODE_SETTINGS, NodeSetting, setting_of_listener
from strandline.config.resource_settings import CLIENT_METRICS_SETTINGS, GROUP_SETTINGS
from strandline.config.settings import CONFIG_TYPES, ConfigSource, Setting, Synonym, text_of
from strandline.config.topic_config import TOPIC_SETTINGS, other_topic_settings

UNKNOWN_TYPE = 0


class ConfigSynonym(NamedTuple):
    """One value that a setting has or would fall back to."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting of a resource."""

    name: str
    value: str | None
    source: ConfigSource
    config_type: int
    doc: str | None
    synonyms: tuple[ConfigSynonym, ...] = ()
    read_only: bool = False
    is_sensitive: bool = False


def broker_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Yield every setting of this node."""
    for name, node_setting in NODE_SETTINGS.items():
        if not node_setting.setting.hidden:
            yield _broker_entry(name, node_setting, config)
    for name in {**config.given, **config.dynamic_default, **config.dynamic_broker}:
        if name not in NODE_SETTINGS:
            yield _other_entry(name, config)


def default_broker_entries(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Yield the cluster's settings for all brokers, without what only this node has."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    for name, raw in config.dynamic_default.items():
        node_setting = NODE_SETTINGS.get(name)
        if node_setting is None:
            yield _unknown_entry(name, [source])
            continue
        yield ConfigEntry(
            name,
            node_setting.shown(raw),
            source,
            node_setting.config_type,
            node_setting.setting.doc,
            (ConfigSynonym(name, raw, source),),
            read_only=not node_setting.is_dynamic,
        )


def _broker_entry(name: str, node_setting: NodeSetting, config: BrokerConfig) -> ConfigEntry:
    synonyms = _node_synonyms(name, config)
    is_sensitive = node_setting.setting.is_sensitive
    is_set = any(name in layer for _, layer in config.layers())
    value = node_setting.shown(config.text(name) or "") if is_set else node_setting.default
    return ConfigEntry(
        name,
        None if is_sensitive else value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        node_setting.config_type,
        node_setting.setting.doc,
        synonyms,
        read_only=not node_setting.is_dynamic,
        is_sensitive=is_sensitive,
    )


def _other_entry(name: str, config: BrokerConfig) -> ConfigEntry:
    """Return the entry of a setting of one listener, or of a dynamic one that this version does not know."""
    layers = [(source, layer[name]) for source, layer in config.layers() if name in layer]
    of_listener = setting_of_listener(name)
    if of_listener is None:
        return _unknown_entry(name, [source for source, _ in layers])
    setting = of_listener.setting
    synonyms = tuple(
        ConfigSynonym(name, None if setting.is_sensitive else of_listener.shown(raw), source) for source, raw in layers
    )
    return ConfigEntry(
        name,
        synonyms[0].value,
        synonyms[0].source,
        of_listener.config_type,
        setting.doc,
        synonyms,
        read_only=not of_listener.is_dynamic,
        is_sensitive=setting.is_sensitive,
    )


def _unknown_entry(name: str, sources: list[ConfigSource]) -> ConfigEntry:
    # The value of an unknown setting may be a secret.
    synonyms = tuple(ConfigSynonym(name, None, source) for source in sources)
    return ConfigEntry(name, None, sources[0], UNKNOWN_TYPE, None, synonyms, read_only=True, is_sensitive=True)


def _node_synonyms(name: str, config: BrokerConfig) -> tuple[ConfigSynonym, ...]:
    """Return the values of this name and its other names, then the defaults, from this name on."""
    node_setting = NODE_SETTINGS.get(name)
    if node_setting is None:
        return ()
    found = [
        ConfigSynonym(each, layer[each], source)
        for source, layer in config.layers()
        for each in node_setting.names
        if each in layer
    ]
    found += [
        ConfigSynonym(each, default, ConfigSource.DEFAULT)
        for each in node_setting.names
        if (default := NODE_SETTINGS[each].default) is not None
    ]
    first = next((place for place, synonym in enumerate(found) if synonym.name == name), len(found))
    if node_setting.setting.is_sensitive:
        found = [synonym._replace(value=None) for synonym in found]
    return tuple(found[first:])


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield every setting of a topic with these overrides."""
    texts = config.topic_config_in_force(overrides).value_texts()
    for name, (_, setting) in TOPIC_SETTINGS.items():
        if not setting.hidden or name in overrides:
            yield _entry(setting, texts[name], ConfigSource.TOPIC, config, is_override=name in overrides)
    for name, other in other_topic_settings().items():
        of_node = f"log.{name}" if f"log.{name}" in NODE_SETTINGS else None
        synonyms = (Synonym(of_node),) if of_node else ()
        setting = Setting(name, other.kind, other.default, None, other.reason, synonyms=synonyms, effect=False)
        default = config.text(of_node) if of_node else other.default
        value = text_of(setting.parse(overrides[name])) if name in overrides else default
        yield _entry(setting, value, ConfigSource.TOPIC, config, is_override=name in overrides)


def group_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield every setting of a group, whether or not the group exists."""
    for name, setting in GROUP_SETTINGS.items():
        default = config.text(setting.synonyms[0].name) if setting.synonyms else text_of(setting.default)
        value = text_of(setting.parse(overrides[name])) if name in overrides else default
        entry = _entry(setting, value, ConfigSource.GROUP, config, is_override=name in overrides)
        if not setting.synonyms:
            fallback = ConfigSynonym(name, text_of(setting.default), ConfigSource.DEFAULT)
            entry = entry._replace(synonyms=(*entry.synonyms, fallback))
        yield entry


def client_metrics_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield every setting of a client metrics subscription, whether or not it exists."""
    for name, setting in CLIENT_METRICS_SETTINGS.items():
        value = text_of(setting.parse(overrides[name]) if name in overrides else setting.default)
        yield _entry(setting, value, ConfigSource.CLIENT_METRICS, config, is_override=name in overrides)


def _entry(
    setting: Setting, value: str | None, source: ConfigSource, config: BrokerConfig, *, is_override: bool
) -> ConfigEntry:
    synonyms = _node_synonyms(setting.synonyms[0].name, config) if setting.synonyms else ()
    if is_override:
        synonyms = (ConfigSynonym(setting.name, value, source), *synonyms)
    in_force = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(setting.name, value, in_force, CONFIG_TYPES[setting.kind], setting.doc, synonyms)


def logger_entries(levels: Mapping[str, str]) -> Iterator[ConfigEntry]:
    for name, level in levels.items():
        yield ConfigEntry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, UNKNOWN_TYPE, "")
