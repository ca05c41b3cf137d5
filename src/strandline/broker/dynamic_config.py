"""Settings that change while the node runs: read from the cluster's image, put into force where they are obeyed.

Most readers ask `node.config` whenever they need a value, and a fresh one stands there. Whoever holds a copy is told
here. What the metadata log holds was checked before it was written; should it hold something that this version does
not take (an older node wrote it, or Apache Kafka), the node goes on without that setting and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from strandline.broker.network.admission import parse_overrides
from strandline.broker.network.descriptors import descriptors_max, share_out
from strandline.config.node_config import BrokerConfig
from strandline.config.node_settings import NODE_SETTINGS, refusal_of_change
from strandline.errors import InvalidConfig
from strandline.quorum.image.cluster_image import RESOURCE_BROKER

if TYPE_CHECKING:
    from strandline.broker.node import Node

log = logging.getLogger("strandline.config")


class DynamicConfig:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._static = node.config

    def apply(self) -> None:
        """Make `node.config` what the image says now, and tell whoever holds a copy of a value."""
        node, before = self._node, self._node.config
        default = node.image.configs.get((RESOURCE_BROKER, ""), {})
        broker = node.image.configs.get((RESOURCE_BROKER, str(node.node_id)), {})
        if default == before.dynamic_default and broker == before.dynamic_broker:
            return
        try:
            node.config = self._static.with_dynamic(
                _usable(default, for_one_broker=False), _usable(broker, for_one_broker=True)
            )
        except InvalidConfig as error:
            log.error("dynamic settings are not in force: %s", error)
            return
        self._tell(node.config, before)

    def _tell(self, config: BrokerConfig, before: BrokerConfig) -> None:
        node = self._node
        node.controller.configure(config)
        if "groups" in node.__dict__:
            node.groups.configure(config)
        if "transactions" in node.__dict__:
            node.transactions.configure(config)
        if "cleaner" in node.__dict__:
            node.cleaner.configure()
        share = share_out(descriptors_max(), open_files_max=config.open_files_max)
        node.directory.open_files.open_files_max = share.open_files_max
        admission = node.listener.admission
        admission.connections_room = share.connections_max
        admission.connections_max = config.max_connections
        admission.connections_per_host_max = config.max_connections_per_ip
        admission.creations_per_s_max = config.max_connection_creation_rate
        deadlines = node.dispatcher.deadlines
        deadlines.first_request_timeout_ms = config.connection_first_request_timeout_ms
        deadlines.partial_request_timeout_ms = config.connection_partial_request_timeout_ms
        entries = config.per_host_overrides()
        if entries != before.per_host_overrides():
            # Names in it are looked up, which may take seconds.
            node.runtime.in_thread(partial(parse_overrides, entries), self._on_overrides)

    def _on_overrides(self, overrides: dict[str, int] | None, error: BaseException | None) -> None:
        if overrides is None:
            log.error("max.connections.per.ip.overrides is not in force: %s", error)
        else:
            self._node.listener.admission.per_host_overrides = overrides


def _usable(settings: Mapping[str, str], *, for_one_broker: bool) -> dict[str, str]:
    """What can be put into force; the rest is told and left out."""
    usable = {}
    for name, raw in settings.items():
        try:
            refusal = refusal_of_change(name, for_one_broker=for_one_broker)
            if refusal is not None:
                raise InvalidConfig(refusal)
            if name in NODE_SETTINGS:
                NODE_SETTINGS[name].parse(raw)
        except InvalidConfig as error:
            log.error("a dynamic setting is ignored: %s", error)
        else:
            usable[name] = raw
    return usable
