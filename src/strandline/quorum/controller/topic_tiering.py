"""What the controller checks of tiered topics and object topics.

A topic is tiered with `remote.storage.enable=true`: is there a store, and how is tiering turned off? The messages are
Kafka's. Where a topic keeps its records is chosen at its creation (`strandline.storage`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.config import remote_origin
from strandline.config.node_config import BrokerConfig
from strandline.config.remote_origin import RemoteOrigin
from strandline.config.topic_config import TopicConfig
from strandline.errors import ErrorCode, InvalidConfig, RequestError
from strandline.quorum.controller.topic_names import CLUSTER_METADATA, OBJECT_COMMITS, is_internal
from strandline.quorum.image.cluster_image import RESOURCE_TOPIC, ClusterImage, Topic

REMOTE_STORAGE: Final = "remote.storage.enable"
STORAGE: Final = "strandline.storage"
OBJECT_ACK: Final = "strandline.object.ack"


def check_tiering_of(name: str, asked: TopicConfig, *, image: ClusterImage, config: BrokerConfig) -> None:
    """Raise InvalidConfig if a topic may not be tiered, or may not stop being so with these settings."""
    stored: Mapping[str, str] = image.configs.get((RESOURCE_TOPIC, name), {})
    _check_origin(name, asked, stored, image)
    if name == OBJECT_COMMITS and (asked.compact or max(asked.retention_ms, asked.retention_bytes) >= 0):
        raise InvalidConfig(
            f"{name} says what the objects of object topics mean. It needs cleanup.policy=delete, retention.ms=-1 and "
            "retention.bytes=-1; brokers delete what a checkpoint has."
        )
    if name in image.topics:
        for setting, value, default in (STORAGE, asked.storage, "local"), (OBJECT_ACK, asked.object_ack, "object"):
            before = stored.get(setting, default)
            if value != before:
                raise InvalidConfig(
                    f"{setting}={value} is not possible: topic {name} was created with {before}; create another topic"
                )
    if asked.remote_storage_enable or asked.storage == "object":
        if not config.remote_log_storage_system_enable:
            raise InvalidConfig(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage."
            )
        if is_internal(name) or name == CLUSTER_METADATA:
            raise InvalidConfig(f"{REMOTE_STORAGE}=true is not allowed for the internal topic {name}.")
    elif stored.get(REMOTE_STORAGE) == "true" and name in image.topics and not asked.remote_log_delete_on_disable:
        raise InvalidConfig(
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data "
            "and turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want "
            "to disable remote storage and delete all remote data, please set "
            "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
        )


def check_commit_log_stays(name: str, image: ClusterImage) -> None:
    """Raise RequestError (POLICY_VIOLATION) for the deletion of the commit log while there are object topics."""
    if name == OBJECT_COMMITS and any(map(keeps_objects, image.topics.values())):
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic '{name}' cannot be deleted while there are object topics: without it their records are lost.",
        )


def keeps_objects(topic: Topic) -> bool:
    """Return whether only an object store has the records of a topic."""
    settings = topic.config_overrides
    return settings.get(STORAGE) == "object" and settings.get(OBJECT_ACK) != "wal"


def _check_origin(name: str, asked: TopicConfig, stored: Mapping[str, str], image: ClusterImage) -> None:
    origin = asked.strandline_remote_origin
    if name in image.topics and origin != stored.get(remote_origin.SETTING, ""):
        if origin or asked.is_tiered:
            raise InvalidConfig(
                f"{remote_origin.SETTING} of {name} cannot be changed, because it says where its logs begin."
            )
    elif origin and not asked.is_tiered:
        # A new replica would begin behind records that no store has any more.
        raise InvalidConfig(
            f"{name} begins with records of another topic in the object store. Make it local with `strandline topic "
            f"alter {name} --storage local`, or take {remote_origin.SETTING} away in the same request."
        )


def origin_of(overrides: Mapping[str, str], partition_count: int, image: ClusterImage) -> RemoteOrigin | None:
    """Return where a new topic begins, if it is a clone or a restored one. Raise InvalidConfig if it cannot be."""
    text = overrides.get(remote_origin.SETTING)
    if not text:
        return None
    origin = RemoteOrigin.decode(text)
    if len(origin.partitions) != partition_count:
        raise InvalidConfig(
            f"{remote_origin.SETTING} is of {len(origin.partitions)} partitions, and the topic has {partition_count}."
        )
    if image.topic_by_id(origin.topic_id) is not None:
        raise InvalidConfig(f"There is a topic with the id {origin.topic_id} already.")
    return origin
