"""Every name that a node accepts as a setting: its own settings, the defaults of its topics, and those without effect.

Several names may mean one setting (`log.retention.ms`, `.minutes` and `.hours`); then the first one that is set wins.
Only the first of them can be changed while a node runs, so a dynamic setting wins over all names in the file.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Final

from strandline.config.broker_settings import BrokerSettings
from strandline.config.cluster_settings import ClusterSettings
from strandline.config.group_settings import GroupSettings
from strandline.config.kafka_settings import NO_EFFECT, OTHER_SETTINGS, OtherSetting
from strandline.config.quota_settings import QuotaSettings
from strandline.config.security.audit_settings import AuditSettings
from strandline.config.security.authorizer_settings import AuthorizerSettings
from strandline.config.security.sasl_settings import SaslSettings
from strandline.config.security.tls_settings import TlsSettings
from strandline.config.settings import (
    CLUSTER_WIDE,
    CONFIG_TYPES,
    PER_BROKER,
    READ_ONLY,
    Setting,
    Value,
    environment_name,
    settings_of,
    text_of,
)
from strandline.config.share_coordinator_settings import ShareCoordinatorSettings
from strandline.config.share_group_settings import ShareGroupSettings
from strandline.config.storage_settings import StorageSettings
from strandline.config.topic_config import TOPIC_SETTINGS
from strandline.config.transaction_settings import TransactionSettings
from strandline.errors import InvalidConfig

_TABLES: Final = (
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
)
BROKER_SETTINGS: Final[dict[str, tuple[str, Setting]]] = {
    setting.name: (attribute, setting) for table in _TABLES for attribute, setting in settings_of(table)
}
"""By name: the attribute of a `BrokerConfig` that holds the value, and the setting, in the order of the docs."""

_DYNAMIC_WITHOUT_EFFECT: Final = frozenset(
    {
        "background.threads",
        "follower.fetch.last.tiered.offset.enable",
        "group.coordinator.cached.buffer.max.bytes",
        "group.streams.assignment.interval.ms",
        "metric.reporters",
        "num.replica.fetchers",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
        "share.coordinator.cached.buffer.max.bytes",
    }
)
"""The settings without effect that an administrator can change while Kafka runs."""


@dataclasses.dataclass(frozen=True, slots=True)
class NodeSetting:
    """One name. `names` has all names of the setting, the one that wins first; `default` is in this name's unit."""

    name: str
    setting: Setting
    kind: str
    update: str
    default: str | None
    factor: int = 1
    names: tuple[str, ...] = ()

    @property
    def config_type(self) -> int:
        return CONFIG_TYPES[self.kind]

    @property
    def is_dynamic(self) -> bool:
        return self.update != READ_ONLY

    def parse(self, raw: str, *, source: str = "") -> Value:
        """Return the value in the setting's unit. Raise InvalidConfig if it is not allowed."""
        return self.setting.parse(raw, name=self.name, source=source, factor=self.factor)

    def shown(self, raw: str) -> str | None:
        """Format `raw` as Kafka prints it, in this name's unit."""
        return raw.strip() if self.factor > 1 else text_of(self.parse(raw))


def _own() -> Iterator[NodeSetting]:
    for _, setting in BROKER_SETTINGS.values():
        names = (setting.name, *(synonym.name for synonym in setting.synonyms))
        yield NodeSetting(setting.name, setting, setting.kind, setting.update, text_of(setting.default), names=names)
        for synonym in setting.synonyms:
            yield NodeSetting(synonym.name, setting, synonym.kind or setting.kind, synonym.update, None, names=names)


def _defaults_of_topics() -> Iterator[NodeSetting]:
    for _, setting in TOPIC_SETTINGS.values():
        names = tuple(synonym.name for synonym in setting.synonyms)
        for synonym in setting.synonyms:
            default = setting.default if synonym.name == names[-1] else None
            if synonym.factor > 1 and isinstance(default, int):
                default //= synonym.factor
            yield NodeSetting(
                synonym.name,
                setting,
                synonym.kind or setting.kind,
                synonym.update,
                text_of(default),
                synonym.factor,
                names,
            )


def _without_effect() -> Iterator[NodeSetting]:
    for other in OTHER_SETTINGS:
        if other.verdict == NO_EFFECT and not other.is_topic:
            update = CLUSTER_WIDE if other.name in _DYNAMIC_WITHOUT_EFFECT else READ_ONLY
            setting = Setting(other.name, other.kind, None, None, other.reason, effect=False, update=update)
            yield NodeSetting(other.name, setting, other.kind, update, other.default, names=(other.name,))


NODE_SETTINGS: Final[dict[str, NodeSetting]] = {
    each.name: each for source in (_without_effect, _defaults_of_topics, _own) for each in source()
}
REFUSED_SETTINGS: Final[dict[str, OtherSetting]] = {
    other.name: other for other in OTHER_SETTINGS if other.verdict != NO_EFFECT and not other.is_topic
}
_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.(.+)")
_PER_LISTENER = re.compile(
    r"(ssl|sasl|strandline\.sasl|max\.connections?|connections\.max\.reauth|principal\.builder)(\..+)?"
)
_BY_VARIABLE = {environment_name(name): name for name in (*NODE_SETTINGS, *REFUSED_SETTINGS)}


def setting_of_listener(name: str) -> NodeSetting | None:
    """Return the setting that `listener.name.<listener>.[<mechanism>.]<name>` gives to one listener; None if none."""
    match = _OF_LISTENER.fullmatch(name)
    if match is None:
        return None
    key = match[1] if match[1] in NODE_SETTINGS else match[1].partition(".")[2]
    return NODE_SETTINGS.get(key) if _PER_LISTENER.fullmatch(key) else None


def refusal_of_change(name: str, *, for_one_broker: bool) -> str | None:
    """Return why the setting cannot be changed while the node runs, at that level; None if it can.

    An unknown name can be set, because Kafka keeps such names for plug-ins.
    """
    refused = REFUSED_SETTINGS.get(name)
    if refused is not None:
        return f"{name} is refused: {refused.reason}"
    known = NODE_SETTINGS.get(name) or setting_of_listener(name)
    if known is None:
        return None
    if name.startswith("ssl.") and known.is_dynamic:
        # Kafka's words.
        why = "These security configs can be dynamically updated only per-listener using the listener prefix"
        return f"{why}: [{name}]"
    if not known.is_dynamic:
        return f"Cannot update these configs dynamically: [{name}]"
    if known.update == PER_BROKER and not for_one_broker:
        return f"Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
    return None


def is_refused(name: str) -> bool:
    """Return whether it is a setting that must not be ignored, for the node or for one listener."""
    return _without_listener(name) in REFUSED_SETTINGS


def _without_listener(name: str) -> str:
    """Return `sasl.jaas.config` for `listener.name.external.scram-sha-256.sasl.jaas.config`, and other names as is."""
    match = _OF_LISTENER.fullmatch(name)
    if match is None:
        return name
    return match[1] if match[1] in REFUSED_SETTINGS else match[1].partition(".")[2]


def check_refused(name: str, raw: str, source: str) -> None:
    """Raise InvalidConfig for a setting that must not be ignored, unless it only states the default."""
    refused = REFUSED_SETTINGS[_without_listener(name)]
    if refused.asks_for_more(raw):
        raise InvalidConfig(f"{source}: {name} is refused. {refused.reason} Expected: leave it out.")


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings among the variables. Others with our prefix belong to the command line and to tests."""
    return {_BY_VARIABLE[variable]: raw for variable, raw in environ.items() if variable in _BY_VARIABLE}


def check_unknown(name: str, source: str, *, must_be_known: bool) -> str:
    """Return a warning for an unknown name, because Kafka's files may have settings of plug-ins.

    Raise InvalidConfig if another name was probably meant, and if the name `must_be_known`.
    """
    if name in TOPIC_SETTINGS:
        synonyms = TOPIC_SETTINGS[name][1].synonyms
        advice = f"; the default of all topics is {synonyms[0].name}" if synonyms else ""
        raise InvalidConfig(f"{source}: {name} is a setting of topics, not of nodes{advice}")
    nearest = difflib.get_close_matches(name, NODE_SETTINGS, n=1, cutoff=0.75)
    if nearest:
        raise InvalidConfig(f"{source}: {name} is unknown; did you mean {nearest[0]}?")
    if must_be_known:
        raise InvalidConfig(f"{source}: {name} is unknown; docs/configuration.md has all that there are")
    return f"{source}: {name} is unknown and was ignored"
