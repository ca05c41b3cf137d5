"""Whose data directory this is: read from `meta.properties`, and held against the configuration.

An empty directory is formatted for a new cluster of one. Where the configuration names others, that would be wrong: a
node that made itself a cluster of its own could never join the one it was meant for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.errors import InvalidConfig
from strandline.quorum.raft.state_files import MetaProperties, uuid_text

if TYPE_CHECKING:
    from strandline.config.node_config import BrokerConfig
    from strandline.log.log_directory import LogDirectory


def identify(directory: LogDirectory, config: BrokerConfig, new_uuid: Callable[[], UUID]) -> MetaProperties:
    """Cluster, node and directory id; InvalidConfig, in a sentence, for a directory that cannot be this node's."""
    text = directory.read_meta_properties()
    if text is None:
        if config.names_other_voters() or not config.is_controller:
            raise InvalidConfig(
                f"{directory.path} is not formatted, and the configuration names a quorum of other nodes: format it "
                f"for their cluster first, with `strandline format --cluster-id ID` and the same configuration"
            )
        meta = MetaProperties(uuid_text(new_uuid()), config.node_id, new_uuid())
        directory.write_meta_properties(meta.text())
        return meta
    meta = MetaProperties.parse(text)
    is_named = "node.id" in config.given or "broker.id" in config.given
    if meta.node_id != config.node_id and is_named:
        raise InvalidConfig(
            f"{directory.path} belongs to node {meta.node_id}, and node.id is {config.node_id}: "
            "correct node.id, or choose another directory"
        )
    return meta
