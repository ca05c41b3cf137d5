"""The configuration of a node: Kafka's property names, from a file, the environment, the command line and the cluster.

The node's own settings stand in `broker_settings`; those of topics in `topic_config`, and a node may set their
defaults under the broker's names (`log.segment.bytes` for `segment.bytes`), kept in `topic_defaults`.
Later sources win: default, `server.properties`, `STRANDLINE_...` variables, `-X key=value`; over all of these stand the
dynamic settings that the metadata log holds, first those for every broker, then those for this one (`with_dynamic`).
`python -m strandline.config.docs` prints `docs/configuration.md`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import NamedTuple

from strandline.config.broker_settings import BrokerSettings
from strandline.config.cluster_checks import check_cluster
from strandline.config.cluster_settings import ClusterSettings
from strandline.config.group_settings import GroupSettings, check_groups
from strandline.config.listeners import ListenerAddress, NodeListeners, parse_listeners
from strandline.config.node_settings import (
    BROKER_SETTINGS,
    NODE_SETTINGS,
    check_refused,
    check_unknown,
    from_environment,
    is_refused,
)
from strandline.config.properties import parse_properties
from strandline.config.settings import ConfigSource, Synonym, Value, settings_of
from strandline.config.storage_settings import StorageSettings, check_storage
from strandline.config.topic_config import TOPIC_SETTINGS, TopicConfig, other_topic_settings
from strandline.config.transaction_settings import TransactionSettings
from strandline.errors import InvalidConfig

__all__ = ["BROKER_SETTINGS", "BrokerConfig", "TopicConfig", "TopicConfigEntry"]


REPLICAS_OF_CLUSTER = 3
IN_SYNC_OF_CLUSTER = 2
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

COMMAND_LINE = "-X"
PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class TopicConfigEntry(NamedTuple):
    """A topic setting in force and where its value comes from (the protocol's ConfigSource)."""

    name: str
    value: str | None
    source: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ClusterSettings, GroupSettings, TransactionSettings, StorageSettings, BrokerSettings):
    """The settings in force on this node, the defaults of its topics, and the layers that they come from.

    The tables are independent of each other. They lie side by side in one object, so that a read is one slot.
    """

    topic_defaults: TopicConfig = dataclasses.field(default_factory=TopicConfig)
    """What a topic without overrides gets here."""
    given: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Every setting that was set where the node was started, as text."""
    dynamic_default: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What the cluster says for all brokers."""
    dynamic_broker: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What the cluster says for this broker alone."""
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
            ("environment", from_environment(environ or {})),
            (COMMAND_LINE, overrides or {}),
        ]
        given: dict[str, str] = {}
        values: dict[str, Value] = {}
        origin: dict[str, str] = {}
        warnings: list[str] = []
        for source, properties in sources:
            for name, raw in properties.items():
                if is_refused(name):
                    check_refused(name, raw, source)
                elif name not in NODE_SETTINGS:
                    warnings.append(check_unknown(name, source, must_be_known=source == COMMAND_LINE))
                else:
                    values[name] = NODE_SETTINGS[name].parse(raw, source=source)
                    given[name], origin[name] = raw, source
        idle = [name for name in given if name not in _HELD]
        if idle:
            warnings.append(f"without effect here: {', '.join(idle)}; docs/configuration.md says why")
        config = cls(**_resolved(values), given=given, warnings=tuple(warnings))  # type: ignore[arg-type]
        config._check(origin)
        return config

    def with_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """This node with other dynamic settings; InvalidConfig for a value that is not allowed.

        Names that mean nothing here are kept and told, and nothing else.
        """
        merged = {**self.given, **default, **broker}
        values = {name: NODE_SETTINGS[name].parse(raw) for name, raw in merged.items() if name in NODE_SETTINGS}
        config = BrokerConfig(
            **_resolved(values),  # type: ignore[arg-type]  # the values are typed by their settings
            given=self.given,
            dynamic_default=dict(default),
            dynamic_broker=dict(broker),
            warnings=self.warnings,
        )
        config._check_dynamic()
        return config

    def _check(self, origin: Mapping[str, str]) -> None:
        """What no single setting can tell: listeners parse, and one data directory is named."""
        for name in ("listeners", "advertised.listeners"):
            raw = self.given.get(name)
            if raw is not None:
                parse_listeners(raw, name=name, source=origin[name])
        if len(self.log_dirs) != 1:
            raise InvalidConfig(f"log.dirs={','.join(self.log_dirs)!r} is not allowed; expected exactly one directory")
        listeners = NodeListeners(
            ",".join(self.listeners), self.client_listeners(), self.controller_listeners(), self._all_advertised()
        )
        check_cluster(self, listeners, names_other_voters=self.names_other_voters())
        check_groups(self)
        check_storage(self)
        self._check_protocols()

    def _check_protocols(self) -> None:
        for listener in self.client_listeners() + self.controller_listeners():
            protocol = self.security_protocol(listener.name)
            if protocol != PLAINTEXT:
                raise InvalidConfig(
                    f"listener {listener.name} is of {protocol}, and there is no TLS and no authentication yet; a node "
                    "that only looked secure would be worse than one that does not start. Expected: PLAINTEXT"
                )

    def _check_dynamic(self) -> None:
        """A running node must not be told to shut everybody out, or nobody could ever tell it otherwise."""
        self._check_protocols()
        check_groups(self)
        check_storage(self)
        changed = {**self.dynamic_default, **self.dynamic_broker}
        if "max.connections" in changed and self.max_connections < 1:
            raise InvalidConfig("max.connections=0 is not allowed while a node runs; expected at least 1")
        if "max.connections.per.ip" in changed and self.max_connections_per_ip < 1:
            raise InvalidConfig("max.connections.per.ip=0 is not allowed while a node runs; expected at least 1")
        for entry in self.per_host_overrides():
            if not re.fullmatch(r".+:\s*[0-9]+", entry):
                raise InvalidConfig(f"max.connections.per.ip.overrides={entry!r} is not allowed; expected host:count")

    def layers(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        """What was set, from the source that wins to the one that loses."""
        return (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.given),
        )

    def text(self, name: str) -> str | None:
        """The value in force of one of the names a node takes, as text; None where nothing is set."""
        for _, layer in self.layers():
            if name in layer:
                return layer[name]
        return NODE_SETTINGS[name].default

    def per_host_overrides(self) -> list[str]:
        """The entries of `max.connections.per.ip.overrides`, which Kafka takes for one text."""
        return [entry.strip() for entry in self.max_connections_per_ip_overrides.split(",") if entry.strip()]

    def security_protocol(self, listener_name: str) -> str:
        """What a listener of that name speaks; a name that says nothing, and is mapped to nothing, is PLAINTEXT."""
        for entry in (self.listener_security_protocol_map or "").split(","):
            name, _, protocol = entry.partition(":")
            if name.strip().upper() == listener_name:
                return protocol.strip().upper()
        return listener_name if listener_name in SECURITY_PROTOCOLS else PLAINTEXT

    def client_listeners(self) -> list[ListenerAddress]:
        """Where clients and brokers connect: every listener that is not the controller's. None without that role."""
        return [each for each in parse_listeners(",".join(self.listeners)) if not self.is_for_quorum(each.name)]

    def controller_listeners(self) -> list[ListenerAddress]:
        """Where the quorum connects, in the order of `listeners`; none where the node is no controller."""
        if not self.is_controller:
            return []
        return [each for each in parse_listeners(",".join(self.listeners)) if self.is_for_quorum(each.name)]

    def advertised(self) -> list[ListenerAddress]:
        """What clients are told, or nothing where that follows from `listeners` and the ports really taken."""
        return [each for each in self._all_advertised() if not self.is_for_quorum(each.name)]

    def advertised_controllers(self) -> list[ListenerAddress]:
        """What other nodes are told of this controller, or nothing, likewise."""
        return [each for each in self._all_advertised() if self.is_for_quorum(each.name)]

    def _all_advertised(self) -> list[ListenerAddress]:
        if not self.advertised_listeners:
            return []
        return parse_listeners(",".join(self.advertised_listeners), name="advertised.listeners")

    def names_other_voters(self) -> bool:
        """Whether the quorum, as far as it is configured, has a node besides this one.

        Only the directory knows for sure: it may hold a set of voters.
        """
        voters = self.quorum_voters()
        if voters:
            return voters.keys() != {self.node_id}
        own = {listener.port for listener in self.controller_listeners()}
        hosts = {listener.host for listener in self.controller_listeners() + self.advertised_controllers()}
        own |= {listener.port for listener in self.advertised_controllers()}
        return any(
            port not in own or host not in hosts | LOOPBACK_HOSTS for host, port in self.quorum_bootstrap_servers()
        )

    def replication_factor_of_new_topics(self, broker_count: int) -> int:
        """What a topic gets that was created without a number of replicas."""
        if "default.replication.factor" in self.given or broker_count < REPLICAS_OF_CLUSTER:
            return self.default_replication_factor
        return REPLICAS_OF_CLUSTER

    def in_sync_min_of_new_topic(self, replication_factor: int) -> int | None:
        """The `min.insync.replicas` that a new topic gets as its own setting; None where somebody set a default.

        With two replicas it stays 1: else the loss of either would stop writers.
        """
        is_set = any("min.insync.replicas" in layer for _, layer in self.layers())
        return None if is_set or replication_factor < REPLICAS_OF_CLUSTER else IN_SYNC_OF_CLUSTER

    def topic_config(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """What holds for a topic with these overrides; InvalidConfig for an unknown name or a bad value."""
        return self.topic_defaults.with_overrides(overrides)

    def topic_config_in_force(self, overrides: Mapping[str, str]) -> TopicConfig:
        """What holds for a topic that exists; an override that this version does not take is passed over."""
        return self.topic_defaults.with_stored(overrides)

    def topic_config_entries(self, overrides: Mapping[str, str | None]) -> list[TopicConfigEntry]:
        """Every topic setting in force and its source, as CreateTopics tells them."""
        texts = self.topic_config(overrides).value_texts()
        entries = [
            TopicConfigEntry(
                name,
                texts[name],
                ConfigSource.TOPIC if name in overrides else self._source_of_default(setting.synonyms),
            )
            for name, (_, setting) in TOPIC_SETTINGS.items()
            if not setting.hidden
        ]
        for name, other in other_topic_settings().items():
            raw = overrides.get(name)
            entries.append(
                TopicConfigEntry(name, other.default, ConfigSource.DEFAULT)
                if raw is None
                else TopicConfigEntry(name, raw, ConfigSource.TOPIC)
            )
        return entries

    def _source_of_default(self, synonyms: tuple[Synonym, ...]) -> ConfigSource:
        for source, layer in self.layers():
            if any(synonym.name in layer for synonym in synonyms):
                return source
        return ConfigSource.DEFAULT


_HELD = frozenset(
    name
    for name, node_setting in NODE_SETTINGS.items()
    if node_setting.setting.name in BROKER_SETTINGS | TOPIC_SETTINGS
)
"""What is no mere name: a value that somebody reads, or will once the part that reads it is there."""


def _resolved(values: Mapping[str, Value]) -> dict[str, object]:
    """The attributes of a BrokerConfig whose settings were set; of several names the first one declared wins."""
    resolved: dict[str, object] = {}
    for attribute, setting in BROKER_SETTINGS.values():
        for name in NODE_SETTINGS[setting.name].names:
            if name in values:
                resolved[attribute] = values[name]
                break
    defaults: dict[str, Value] = {}
    for attribute, setting in settings_of(TopicConfig):
        # The plain name of a topic setting means nothing on a node unless it is also the synonym.
        for synonym in setting.synonyms:
            if synonym.name in values:
                defaults[attribute] = values[synonym.name]
                break
    resolved["topic_defaults"] = TopicConfig(**defaults)  # type: ignore[arg-type]  # typed by their settings
    return resolved
