"""The settings that this program knows, for explaining and completing them without a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.config.kafka_settings import OTHER_SETTINGS
from strandline.config.node_config import BROKER_SETTINGS
from strandline.config.settings import Setting, text_of
from strandline.config.topic_config import TOPIC_SETTINGS

_UPDATE_WORDS = {
    "read-only": "only in server.properties or with -X, and a restart",
    "per-broker": "while it runs, per broker: strandline config set --broker ID",
    "cluster-wide": "while it runs: strandline config set --all-brokers, or --broker ID",
}
# What the settings behind the promise of an acknowledgement mean, shown where a user looks them up.
_SURVIVES = {
    "flush.mode": "auto and ack: kill -9 and a power cut, even with one replica; async: kill -9, not a power cut",
    "flush.messages": "1: a power cut, whatever flush.mode says; every record is flushed before it is acknowledged",
    "flush.ms": "a power cut takes at most what came within this time, where flush.mode=async",
    "min.insync.replicas": "with acks=all, a record survives the loss of all but one of so many replicas",
    "unclean.leader.election.enable": "true: acknowledged records may be lost at an election",
    "replication.factor": "so many machines but one may be lost",
}


@dataclass(frozen=True)
class Explained:
    """Everything that can be said of a setting without asking a broker, in words."""

    name: str
    owner: str
    kind: str
    default: str | None
    allowed: str
    doc: str
    broker_names: list[str]
    update: str
    verdict: str
    survives: str


def topic_setting_names() -> list[str]:
    return sorted(name for name, (_, setting) in TOPIC_SETTINGS.items() if not setting.hidden)


def broker_setting_names() -> list[str]:
    names = {name for name, (_, setting) in BROKER_SETTINGS.items() if not setting.hidden}
    for _, setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        names |= {synonym.name for synonym in setting.synonyms if not setting.hidden}
    return sorted(names)


def setting_names() -> list[str]:
    return sorted({*topic_setting_names(), *broker_setting_names(), *(other.name for other in OTHER_SETTINGS)})


def explanations(name: str) -> list[Explained]:
    """One for each kind of thing that has a setting of this name: a topic, a broker."""
    found = []
    if name in TOPIC_SETTINGS:
        found.append(_of_topic(name, TOPIC_SETTINGS[name][1]))
    if name in BROKER_SETTINGS:
        found.append(_of_broker(name, BROKER_SETTINGS[name][1]))
    if not found:
        found += _of_synonym(name)
    found += [
        Explained(
            name,
            "topics" if other.is_topic else "brokers",
            other.kind,
            other.default,
            "",
            "A setting of Apache Kafka.",
            [],
            "not at all",
            f"{other.verdict}: {other.reason}",
            "",
        )
        for other in OTHER_SETTINGS
        if other.name == name
    ]
    return found


def _of_topic(name: str, setting: Setting) -> Explained:
    update = "while it runs: strandline config set --topic NAME"
    names = [synonym.name for synonym in setting.synonyms]
    return _explained(name, "topics", setting, names, update)


def _of_broker(name: str, setting: Setting) -> Explained:
    return _explained(name, "brokers", setting, [], _UPDATE_WORDS[setting.update])


def _of_synonym(name: str) -> list[Explained]:
    """Return a broker's name for the default of a topic setting, or an older name of a broker setting."""
    for topic_name, (_, setting) in TOPIC_SETTINGS.items():
        for synonym in setting.synonyms:
            if synonym.name == name:
                owner = f"brokers: the default of {topic_name} of their topics"
                return [_explained(name, owner, setting, [], _UPDATE_WORDS[synonym.update])]
    for broker_name, (_, setting) in BROKER_SETTINGS.items():
        if any(synonym.name == name for synonym in setting.synonyms):
            return [
                _explained(name, f"brokers: another name of {broker_name}", setting, [], _UPDATE_WORDS[setting.update])
            ]
    return []


def _explained(name: str, owner: str, setting: Setting, broker_names: list[str], update: str) -> Explained:
    return Explained(
        name=name,
        owner=owner,
        kind=setting.kind,
        default=text_of(setting.default),
        allowed=setting.expected(),
        doc=setting.doc.replace("`", ""),
        broker_names=broker_names,
        update=update,
        verdict="yes" if setting.effect else "accepted, without effect yet",
        survives=_SURVIVES.get(name, ""),
    )
