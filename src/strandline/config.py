"""The configuration of a node: Kafka's property names, from a file, the environment and the command line.

The node's own settings stand in `broker_settings`; those of topics in `topic_config`, and a node may set their
defaults under the broker's names (`log.segment.bytes` for `segment.bytes`), kept in `topic_defaults`.
Later sources win: default, `server.properties`, `STRANDLINE_...` variables, `-X key=value`.
`python -m strandline.config_docs` prints `docs/configuration.md`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from typing import NamedTuple

from strandline.broker_settings import BrokerSettings
from strandline.errors import InvalidConfig
from strandline.settings import ConfigSource, Setting, Value, environment_name, parse_properties, settings_of
from strandline.topic_config import TOPIC_SETTINGS, TopicConfig

__all__ = ["BrokerConfig", "Listener", "TopicConfig", "TopicConfigEntry"]


class Listener(NamedTuple):
    """One `NAME://host:port`; an empty host means every interface."""

    name: str
    host: str
    port: int


class TopicConfigEntry(NamedTuple):
    """A topic setting in force and where its value comes from (the protocol's ConfigSource)."""

    name: str
    value: str | None
    source: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(BrokerSettings):
    """What holds for this node: its settings, the defaults of its topics, and what was said about them."""

    topic_defaults: TopicConfig = dataclasses.field(default_factory=TopicConfig)
    """What a topic without overrides gets here."""
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Every setting that was set, as text."""
    warnings: tuple[str, ...] = ()
    """Sentences for the person who wrote the configuration."""

    @classmethod
    def load(
        cls,
        content: str = "",
        overrides: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        file_name: str = "server.properties",
    ) -> BrokerConfig:
        """The configuration from a file's content, variables and command line; InvalidConfig names the bad one."""
        sources: list[tuple[str, Mapping[str, str]]] = [
            (file_name, parse_properties(content)),
            ("environment", _from_environment(environ or {})),
            ("-X", overrides or {}),
        ]
        given: dict[str, str] = {}
        values: dict[str, Value] = {}
        origin: dict[str, str] = {}
        warnings: list[str] = []
        for source, properties in sources:
            for name, raw in properties.items():
                if name not in _KNOWN:
                    warnings.append(f"{source}: {unknown_setting(name)}")
                    continue
                setting, factor = _KNOWN[name]
                values[name] = setting.parse(raw, name=name, source=source, factor=factor)
                given[name], origin[name] = raw, source
        config = cls(
            **_resolve(cls, values),  # type: ignore[arg-type]  # the values are typed by their settings
            topic_defaults=TopicConfig(**_resolve(TopicConfig, values)),  # type: ignore[arg-type]
            given=given,
            warnings=tuple(warnings),
        )
        config._check(origin)
        return config

    def _check(self, origin: Mapping[str, str]) -> None:
        """What no single setting can tell: listeners parse, and one data directory is named."""
        for name in ("listeners", "advertised.listeners"):
            raw = self.given.get(name)
            if raw is not None:
                parse_listeners(raw, name=name, source=origin[name])
        if len(self.log_dirs) != 1:
            raise InvalidConfig(f"log.dirs={','.join(self.log_dirs)!r} is not allowed; expected exactly one directory")
        if not self.client_listeners():
            raise InvalidConfig(f"listeners={self.listeners!r} has no listener for clients")

    def client_listeners(self) -> list[Listener]:
        """Where clients connect: every listener that is not the controller's."""
        return [each for each in parse_listeners(self.listeners) if each.name not in self.controller_listener_names]

    def advertised(self) -> list[Listener]:
        """What clients are told, or nothing where that follows from `listeners` and the ports really taken."""
        return (
            parse_listeners(self.advertised_listeners, name="advertised.listeners") if self.advertised_listeners else []
        )

    def topic_config(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """What holds for a topic with these overrides; InvalidConfig for an unknown name or a bad value."""
        return self.topic_defaults.with_overrides(overrides)

    def topic_config_entries(self, overrides: Mapping[str, str | None]) -> list[TopicConfigEntry]:
        """Every topic setting in force and its source, as CreateTopics and DescribeConfigs tell them."""
        entries = []
        texts = self.topic_config(overrides).value_texts()
        for name, (_, setting) in TOPIC_SETTINGS.items():
            if setting.hidden:
                continue
            if name in overrides:
                source = ConfigSource.TOPIC
            elif any(synonym.name in self.given for synonym in setting.synonyms):
                source = ConfigSource.STATIC_BROKER
            else:
                source = ConfigSource.DEFAULT
            entries.append(TopicConfigEntry(name, texts[name], source))
        return entries


BROKER_SETTINGS: dict[str, tuple[str, Setting]] = {
    setting.name: (attribute, setting) for attribute, setting in settings_of(BrokerConfig)
}


def _known_settings() -> dict[str, tuple[Setting, int]]:
    """Every name a node accepts, with the factor that turns its unit into the setting's."""
    known: dict[str, tuple[Setting, int]] = {}
    for _, setting in TOPIC_SETTINGS.values():
        known |= {synonym.name: (setting, synonym.factor) for synonym in setting.synonyms}
    for _, setting in BROKER_SETTINGS.values():
        known |= {synonym.name: (setting, synonym.factor) for synonym in setting.synonyms}
        known[setting.name] = (setting, 1)
    return known


_KNOWN = _known_settings()
_BY_VARIABLE = {environment_name(name): name for name in _KNOWN}


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings among the variables. Others with our prefix belong to the command line and to tests."""
    return {_BY_VARIABLE[variable]: raw for variable, raw in environ.items() if variable in _BY_VARIABLE}


def _resolve(config_class: type[BrokerConfig] | type[TopicConfig], values: Mapping[str, Value]) -> dict[str, Value]:
    """Attribute values that were set; of a setting's several names the first one declared wins, as in Kafka."""
    resolved: dict[str, Value] = {}
    for attribute, setting in settings_of(config_class):
        # The plain name of a topic setting means nothing on a node unless it is also the synonym.
        names = [setting.name] if config_class is BrokerConfig else []
        for name in [*names, *(synonym.name for synonym in setting.synonyms)]:
            if name in values:
                resolved[attribute] = values[name]
                break
    return resolved


def unknown_setting(name: str) -> str:
    """A warning for a name that means nothing to a node, with the name that was probably meant."""
    if name in TOPIC_SETTINGS:
        synonyms = TOPIC_SETTINGS[name][1].synonyms
        advice = f"; for the default of all topics set {synonyms[0].name}" if synonyms else ""
        return f"{name} is a setting of topics, not of nodes, and was ignored{advice}"
    nearest = difflib.get_close_matches(name, _KNOWN, n=1, cutoff=0.75)
    return f"{name} is unknown and was ignored" + (f"; did you mean {nearest[0]}?" if nearest else "")


def parse_listeners(raw: str, *, name: str = "listeners", source: str = "") -> list[Listener]:
    """`NAME://host:port,...`; InvalidConfig for anything else, and for a name or port that stands twice."""
    at = f"{source}: " if source else ""
    listeners = []
    for part in (part.strip() for part in raw.split(",")):
        match = re.fullmatch(r"([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.%]+\]|[^:/\[\]\s]*):([0-9]{1,5})", part)
        if match is None or int(match[3]) > 65_535:
            raise InvalidConfig(f"{at}{name}={part!r} is not allowed; expected NAME://host:port, comma-separated")
        listeners.append(Listener(match[1].upper(), match[2].strip("[]"), int(match[3])))
    if len({listener.name for listener in listeners}) < len(listeners):
        raise InvalidConfig(f"{at}{name}={raw!r} is not allowed; each listener needs a name of its own")
    return listeners
