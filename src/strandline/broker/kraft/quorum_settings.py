"""What a node must know of the metadata quorum before its first request."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.config.listeners import parse_address
from strandline.quorum.raft.raft import RaftTiming

if TYPE_CHECKING:
    from strandline.config.node_config import BrokerConfig

HOUR_MS = 3_600_000
MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True)
class QuorumSettings:
    node_id: int
    directory_id: UUID
    cluster_id: str
    is_controller: bool = True
    """Whether `process.roles` has `controller`; without it the node is an observer, whatever the voters are."""
    static_voters: tuple[tuple[int, str, int], ...] = ()
    """`controller.quorum.voters`: (id, host, port)."""
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    """`controller.quorum.bootstrap.servers`: whom an observer asks first."""
    listener_name: str = "CONTROLLER"
    listener_address: tuple[str, int] | None = None
    """Where this node's own controller listener can be reached; a quorum of one tells it to observers."""
    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    idle_interval_ms: int = 500
    """How long a leader is idle before it writes an empty record; 0 for ever."""
    fetch_max_bytes: int = MIB
    fetch_snapshot_max_bytes: int = MIB
    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * HOUR_MS
    snapshot_after_bytes: int = 20 * MIB
    snapshot_interval_ms: int = HOUR_MS
    retention_bytes: int = 100 * MIB
    retention_ms: int = 168 * HOUR_MS

    @classmethod
    def of(
        cls,
        config: BrokerConfig,
        *,
        node_id: int,
        directory_id: UUID,
        cluster_id: str,
        listener_address: tuple[str, int] | None = None,
    ) -> QuorumSettings:
        """As the node's configuration has it."""
        return cls(
            node_id=node_id,
            directory_id=directory_id,
            cluster_id=cluster_id,
            is_controller="controller" in config.process_roles,
            static_voters=tuple(map(_voter, config.controller_quorum_voters)),
            bootstrap_servers=tuple(map(parse_address, config.controller_quorum_bootstrap_servers)),
            listener_name=(*config.controller_listener_names, "CONTROLLER")[0],
            listener_address=listener_address,
            election_timeout_ms=config.controller_quorum_election_timeout_ms,
            election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
            fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
            idle_interval_ms=config.metadata_max_idle_interval_ms,
            fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
            fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
            segment_bytes=config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
            snapshot_after_bytes=config.metadata_log_max_record_bytes_between_snapshots,
            snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            retention_bytes=config.metadata_max_retention_bytes,
            retention_ms=config.metadata_max_retention_ms,
        )

    def timing(self) -> RaftTiming:
        return RaftTiming(
            election_timeout_s=self.election_timeout_ms / 1000,
            election_backoff_max_s=self.election_backoff_max_ms / 1000,
            fetch_timeout_s=self.fetch_timeout_ms / 1000,
            request_timeout_s=self.request_timeout_ms / 1000,
            retry_backoff_s=self.retry_backoff_ms / 1000,
        )


def _voter(text: str) -> tuple[int, str, int]:
    node_id, _, address = text.partition("@")
    return int(node_id), *parse_address(address)
