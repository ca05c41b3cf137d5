"""What the controller checks of tiered topics: whether the cluster has a store, and how tiering is turned off.

A topic is tiered with `remote.storage.enable=true`. The messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from strandline.config.node_config import BrokerConfig
from strandline.config.topic_config import TopicConfig
from strandline.errors import InvalidConfig
from strandline.quorum.controller.topic_names import CLUSTER_METADATA, is_internal
from strandline.quorum.image.cluster_image import RESOURCE_TOPIC, ClusterImage

REMOTE_STORAGE: Final = "remote.storage.enable"


def check_tiering_of(name: str, asked: TopicConfig, *, image: ClusterImage, config: BrokerConfig) -> None:
    """Raise InvalidConfig if a topic may not be tiered, or may not stop being so with these settings."""
    stored: Mapping[str, str] = image.configs.get((RESOURCE_TOPIC, name), {})
    if asked.remote_storage_enable:
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
