"""The configuration of a node: Kafka's property names, from a file, the environment, the command line and the cluster.

A node has the settings of several tables (`broker_settings`, `cluster_settings` and so on). It may also set the
defaults of topics under the broker's names (`log.segment.bytes` for `segment.bytes`), kept in `topic_defaults`.
Later sources win: default, `server.properties`, `STRANDLINE_...` variables, `-X key=value`, then the dynamic settings
of the metadata log, first those for every broker, then those for this one (`with_dynamic`).
`python -m strandline.config.docs` prints `docs/configuration.md`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from strandline.config.broker_settings import BrokerSettings
from strandline.config.cluster_checks import (
    check_cluster,
    check_inter_broker,
    check_protocol_map,
    is_loopback,
    why_exposed,
)
from strandline.config.cluster_settings import ClusterSettings
from strandline.config.group_settings import GroupSettings, check_groups
from strandline.config.listeners import (
    SECURITY_PROTOCOLS,
    SSL,
    ListenerAddress,
    NodeListeners,
    parse_listeners,
    security_protocol,
)
from strandline.config.node_settings import (
    BROKER_SETTINGS,
    NODE_SETTINGS,
    check_refused,
    check_unknown,
    from_environment,
    is_refused,
    setting_of_listener,
)
from strandline.config.properties import parse_properties
from strandline.config.quota_settings import QuotaSettings
from strandline.config.security.audit_settings import AUTO, AuditSettings
from strandline.config.security.authorizer_settings import AuthorizerSettings, check_authorizer
from strandline.config.security.sasl_settings import SASL_PROTOCOLS, SaslSettings, check_sasl_listener, sends_secrets
from strandline.config.security.tls_settings import TlsSettings
from strandline.config.settings import ConfigSource, Synonym, Value, settings_of
from strandline.config.share_coordinator_settings import ShareCoordinatorSettings
from strandline.config.share_group_settings import ShareGroupSettings, check_share_groups
from strandline.config.storage_settings import StorageSettings, check_storage
from strandline.config.topic_config import TOPIC_SETTINGS, TopicConfig, other_topic_settings
from strandline.config.transaction_settings import TransactionSettings
from strandline.errors import InvalidConfig

__all__ = ["BROKER_SETTINGS", "BrokerConfig", "TopicConfig", "TopicConfigEntry"]


REPLICAS_OF_CLUSTER = 3
IN_SYNC_OF_CLUSTER = 2
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

COMMAND_LINE = "-X"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
HTTP = "HTTP"
"""The name that `http.listener` has in settings of TLS, such as `listener.name.http.ssl.keystore.location`."""


class TopicConfigEntry(NamedTuple):
    """A topic setting in force and where its value comes from (the protocol's ConfigSource)."""

    name: str
    value: str | None
    source: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(
    ClusterSettings,
    TlsSettings,
    GroupSettings,
    ShareGroupSettings,
    TransactionSettings,
    ShareCoordinatorSettings,
    StorageSettings,
    SaslSettings,
    AuthorizerSettings,
    AuditSettings,
    QuotaSettings,
    BrokerSettings,
):
    """The settings in force on this node, the defaults of its topics, and the layers that they come from.

    The tables are independent of each other. They lie side by side in one object, so that a read is one slot.
    """

    topic_defaults: TopicConfig = dataclasses.field(default_factory=TopicConfig)
    """The settings of a topic without overrides."""
    given: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The settings that were given when the node was started, as text."""
    dynamic_default: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The cluster's dynamic settings for all brokers."""
    dynamic_broker: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """The cluster's dynamic settings for this broker alone."""
    warnings: tuple[str, ...] = ()
    """Messages for the author of the configuration."""

    @classmethod
    def load(
        cls,
        content: str = "",
        overrides: Mapping[str, str] | None = None,
        environ: Mapping[str, str] | None = None,
        *,
        file_name: str = "server.properties",
    ) -> BrokerConfig:
        """Load the configuration from a file's content, variables and command line. InvalidConfig names a bad one."""
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
                elif (of_listener := setting_of_listener(name)) is not None:
                    of_listener.parse(raw, source=source)
                    given[name] = raw
                elif name not in NODE_SETTINGS:
                    warnings.append(check_unknown(name, source, must_be_known=source == COMMAND_LINE))
                else:
                    values[name] = NODE_SETTINGS[name].parse(raw, source=source)
                    given[name], origin[name] = raw, source
        idle = [name for name in given if name in NODE_SETTINGS and name not in _HELD]
        if idle:
            warnings.append(f"without effect here: {', '.join(idle)}; docs/configuration.md says why")
        config = cls(**_resolved(values), given=given, warnings=tuple(warnings))  # type: ignore[arg-type]
        config._check(origin)
        in_the_clear = [
            each.name
            for each in config.client_listeners() + config.controller_listeners()
            if config._is_in_the_clear(each) and sends_secrets(config, each.name)
        ]
        if in_the_clear:
            warning = f"passwords or tokens are sent in the clear to {', '.join(in_the_clear)}: there is no TLS"
            config = dataclasses.replace(config, warnings=(*config.warnings, warning))
        return config

    def with_dynamic(self, default: Mapping[str, str], broker: Mapping[str, str]) -> BrokerConfig:
        """Return this configuration with other dynamic settings. Raise InvalidConfig for a value that is not allowed.

        Unknown names are kept and described, and have no effect.
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
        """Check what depends on several settings, the listeners, and that there is one data directory."""
        for name in ("listeners", "advertised.listeners"):
            raw = self.given.get(name)
            if raw is not None:
                parse_listeners(raw, name=name, source=origin[name])
        if len(self.log_dirs) != 1:
            raise InvalidConfig(f"log.dirs={','.join(self.log_dirs)!r} is not allowed; expected exactly one directory")
        listeners = NodeListeners(
            ",".join(self.listeners), self.client_listeners(), self.controller_listeners(), self._all_advertised()
        )
        check_protocol_map(self.listener_security_protocol_map)
        check_cluster(self, listeners, names_other_voters=self.names_other_voters())
        check_inter_broker(self.inter_broker_listener_name, listeners, given=self.given)
        check_groups(self)
        check_share_groups(self)
        check_storage(self)
        check_authorizer(self)
        if self.http_security_protocol == SSL and any(each.name == HTTP for each in listeners.clients):
            raise InvalidConfig(f"listeners={listeners.given!r} has the name {HTTP}, which is that of http.listener")
        self._check_protocols()

    def _check_protocols(self) -> None:
        for listener in self.client_listeners() + self.controller_listeners():
            if self.security_protocol(listener.name) in SASL_PROTOCOLS:
                check_sasl_listener(self, listener.name, is_in_the_clear=self._is_in_the_clear(listener))

    def _is_in_the_clear(self, listener: ListenerAddress) -> bool:
        """Return whether logins at a listener are sent to other machines without TLS."""
        return self.security_protocol(listener.name) == SASL_PLAINTEXT and not is_loopback(listener.host)

    def _check_dynamic(self) -> None:
        """Check dynamic settings. A node that accepts no connection is rejected, because no client could undo that."""
        before = self.given.get("listener.security.protocol.map")
        check_protocol_map(self.listener_security_protocol_map)
        for listener in self.client_listeners() + self.controller_listeners():
            protocol = security_protocol(listener.name, before)
            if self.security_protocol(listener.name) != protocol:
                raise InvalidConfig(
                    f"listener.security.protocol.map changes listener {listener.name}, which is of {protocol} until "
                    "the node is started again; expected the same protocol"
                )
        check_groups(self)
        check_share_groups(self)
        check_storage(self)
        changed = {**self.dynamic_default, **self.dynamic_broker}
        for name, raw in changed.items():
            if (of_listener := setting_of_listener(name)) is not None:
                of_listener.parse(raw)
        if "max.connections" in changed and self.max_connections < 1:
            raise InvalidConfig("max.connections=0 is not allowed while a node runs; expected at least 1")
        if "max.connections.per.ip" in changed and self.max_connections_per_ip < 1:
            raise InvalidConfig("max.connections.per.ip=0 is not allowed while a node runs; expected at least 1")
        for entry in self.per_host_overrides():
            if not re.fullmatch(r".+:\s*[0-9]+", entry):
                raise InvalidConfig(f"max.connections.per.ip.overrides={entry!r} is not allowed; expected host:count")

    def layers(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        """Return the layers of given values, the one that wins first."""
        return (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic_broker),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.given),
        )

    def text(self, name: str) -> str | None:
        """Return the value in force of one of a node's settings, as text; None where nothing is set."""
        for _, layer in self.layers():
            if name in layer:
                return layer[name]
        return NODE_SETTINGS[name].default

    def per_host_overrides(self) -> list[str]:
        """Return the entries of `max.connections.per.ip.overrides`, which is one text in Kafka."""
        return [entry.strip() for entry in self.max_connections_per_ip_overrides.split(",") if entry.strip()]

    def security_protocol(self, listener_name: str) -> str:
        """Return the protocol of a listener: as mapped, else its name if that is a protocol, else PLAINTEXT."""
        return security_protocol(listener_name, self.listener_security_protocol_map)

    def is_audited(self) -> bool:
        """Return whether this node writes to the audit topic."""
        if self.strandline_audit_enable != AUTO:
            return self.strandline_audit_enable == "true"
        listeners = self.client_listeners() + self.controller_listeners()
        return bool(self.authorizer_class_name) or any(
            self.security_protocol(each.name) in SASL_PROTOCOLS for each in listeners
        )

    def listener_text(self, listener_name: str, key: str, mechanism: str = "") -> str | None:
        """Return the text in force of a setting for this listener: its own, else the one of the node; None if unset.

        `listener.name.<name>.<mechanism>.<key>` is its own text for one SASL mechanism.
        """
        prefix = f"listener.name.{listener_name.lower()}."
        names = (f"{prefix}{mechanism.lower()}.{key}", f"{prefix}{key}") if mechanism else (f"{prefix}{key}",)
        for name in names:
            for _, layer in self.layers():
                if name in layer:
                    return layer[name]
        return self.text(key)

    def listener_number(self, listener_name: str, key: str) -> int | None:
        """Return the number that is set for this listener alone; None if there is none."""
        name = f"listener.name.{listener_name.lower()}.{key}"
        for _, layer in self.layers():
            if name in layer:
                value = NODE_SETTINGS[key].parse(layer[name])
                assert isinstance(value, int)
                return value
        return None

    def inter_broker_listener(self) -> tuple[str | None, int]:
        """Return the name of the listener that brokers use among themselves, and the number of its protocol.

        Without a name it is the listener that is called like `security.inter.broker.protocol`, else the first one.
        """
        return _inter_broker_listener(
            self.listeners,
            self.controller_listener_names,
            self.listener_security_protocol_map,
            self.inter_broker_listener_name,
            self.security_inter_broker_protocol,
        )

    def controller_listener(self) -> str | None:
        """Return the name of the listener that nodes reach controllers by; None if no controller has one."""
        return next((name.upper() for name in self.controller_listener_names), None)

    def listeners_between_nodes(self) -> set[str]:
        """Return the names of the listeners that nodes use among themselves."""
        return {name for name in (self.inter_broker_listener()[0], self.controller_listener()) if name is not None}

    def tls_listeners(self) -> dict[str, bool]:
        """Return each listener of TLS that this node has or uses, and whether it is one of its own."""
        own = {each.name for each in self.client_listeners() + self.controller_listeners()}
        names = sorted(own | self.listeners_between_nodes())
        found = {name: name in own for name in names if self.security_protocol(name).endswith("SSL")}
        return found | {HTTP: True} if self.http_security_protocol == SSL else found

    def exposed_listeners(self) -> list[str]:
        """Return a sentence for each listener that serves other machines without authentication."""
        own = self.client_listeners() + self.controller_listeners()
        found = [
            why_exposed(each, self.security_protocol(each.name), self.listener_text(each.name, "ssl.client.auth"))
            for each in own
        ]
        return [each for each in found if each is not None]

    def client_listeners(self) -> list[ListenerAddress]:
        """Return the listeners for clients and brokers: all that are not for controllers."""
        return [each for each in parse_listeners(",".join(self.listeners)) if not self.is_for_quorum(each.name)]

    def controller_listeners(self) -> list[ListenerAddress]:
        """Return the listeners for the quorum, in the order of `listeners`; none if the node is no controller."""
        if not self.is_controller:
            return []
        return [each for each in parse_listeners(",".join(self.listeners)) if self.is_for_quorum(each.name)]

    def advertised(self) -> list[ListenerAddress]:
        """Return the addresses advertised to clients; none where they follow from `listeners` and the ports taken."""
        return [each for each in self._all_advertised() if not self.is_for_quorum(each.name)]

    def advertised_controllers(self) -> list[ListenerAddress]:
        """Return the addresses of this controller advertised to other nodes; none as above."""
        return [each for each in self._all_advertised() if self.is_for_quorum(each.name)]

    def _all_advertised(self) -> list[ListenerAddress]:
        if not self.advertised_listeners:
            return []
        return parse_listeners(",".join(self.advertised_listeners), name="advertised.listeners")

    def names_other_voters(self) -> bool:
        """Return whether the configured quorum has a node besides this one.

        The data directory may hold another set of voters, which wins.
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
        """Return the replication factor of a topic that is created without one."""
        if "default.replication.factor" in self.given or broker_count < REPLICAS_OF_CLUSTER:
            return self.default_replication_factor
        return REPLICAS_OF_CLUSTER

    def in_sync_min_of_new_topic(self, replication_factor: int) -> int | None:
        """Return the `min.insync.replicas` that a new topic gets as its own setting; None where a default is set.

        With two replicas it stays 1, because otherwise the loss of either would stop writers.
        """
        is_set = any("min.insync.replicas" in layer for _, layer in self.layers())
        return None if is_set or replication_factor < REPLICAS_OF_CLUSTER else IN_SYNC_OF_CLUSTER

    def topic_config(self, overrides: Mapping[str, str | None]) -> TopicConfig:
        """Return the settings of a topic with these overrides. Raise InvalidConfig for a bad name or value."""
        resolved = self.topic_defaults.with_overrides(overrides)
        if resolved.audit_chain and not self.is_audited():
            raise InvalidConfig(
                "strandline.audit.chain=true needs an audit: set strandline.audit.enable=true on all nodes"
            )
        return resolved

    def topic_config_in_force(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the settings of an existing topic, without overrides that this version does not know."""
        resolved = self.topic_defaults.with_stored(overrides)
        if resolved.retention_lock_ms > self.strandline_retention_lock_max_ms:
            resolved = dataclasses.replace(resolved, retention_lock_ms=self.strandline_retention_lock_max_ms)
        return resolved

    def topic_config_entries(self, overrides: Mapping[str, str | None]) -> list[TopicConfigEntry]:
        """Return every topic setting in force with its source, as CreateTopics returns them."""
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
"""Names whose values the configuration holds. All others are accepted without effect."""


@lru_cache(maxsize=64)
def _inter_broker_listener(
    listeners: tuple[str, ...], controller_names: tuple[str, ...], protocols: str | None, name: str | None, wanted: str
) -> tuple[str | None, int]:
    if name is None:
        for_quorum = {each.upper() for each in controller_names}
        names = [each.name for each in parse_listeners(",".join(listeners)) if each.name not in for_quorum]
        of_protocol = [each for each in names if security_protocol(each, protocols) == wanted]
        name = wanted if wanted in names else next(iter(of_protocol or names), None)
    if name is None:
        return None, SECURITY_PROTOCOLS.index(wanted)
    return name.upper(), SECURITY_PROTOCOLS.index(security_protocol(name.upper(), protocols))


def _resolved(values: Mapping[str, Value]) -> dict[str, object]:
    """Return the attributes of a BrokerConfig that were set. Of several names the first one declared wins."""
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
