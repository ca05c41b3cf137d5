"""The settings that make a node part of a cluster: its identity, quorum, session and replicas."""

from __future__ import annotations

import dataclasses

from strandline.config.listeners import parse_address
from strandline.config.settings import (
    Synonym,
    at_least,
    between,
    boolean,
    integer,
    long,
    of_form,
    one_of,
    short,
    text,
    words,
)

MIB = 1024 * 1024
HOUR_MS = 60 * 60 * 1000

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_ADDRESS = r"(\[[0-9A-Fa-f:.%]+\]|[^@:/\[\]\s]+):[0-9]{1,5}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The table of cluster settings. Each attribute is the setting of that name with underscores for dots."""

    # Who this node is.
    node_id: int = integer(
        "node.id", 1, at_least(0), "The id of this node in the cluster.", synonyms=(Synonym("broker.id"),)
    )
    process_roles: tuple[str, ...] = words(
        "process.roles",
        ("broker", "controller"),
        one_of("broker", "controller"),
        "What this node does: serve clients and keep their records (`broker`), vote on the cluster's metadata "
        "(`controller`), or both. Apache Kafka has no default.",
    )
    log_dirs: tuple[str, ...] = words(
        "log.dirs",
        ("strandline-data",),
        None,
        "The data directory. Exactly one for now.",
        synonyms=(Synonym("log.dir"),),
    )
    broker_rack: str | None = text(
        "broker.rack", None, None, "The rack of this node, sent to clients; replicas are spread over racks."
    )

    replica_selector_class: str | None = text(
        "replica.selector.class",
        None,
        one_of("org.apache.kafka.common.replica.LeaderSelector", RACK_AWARE_SELECTOR),
        "With `RackAwareReplicaSelector` a leader sends consumers with `client.rack` to an in-sync replica whose "
        "`broker.rack` is the same (KIP-392). Classes of one's own cannot be loaded.",
    )

    # The quorum.
    controller_listener_names: tuple[str, ...] = words(
        "controller.listener.names",
        (),
        None,
        "Which of `listeners` are for the quorum and for brokers that talk to it. A node that is a quorum of one needs "
        "none, and opens those it has all the same.",
    )
    controller_quorum_voters: tuple[str, ...] = words(
        "controller.quorum.voters",
        (),
        of_form(rf"[0-9]{{1,10}}@{_ADDRESS}", "`id@host:port`"),
        "The controllers, as `id@host:port`, the same on every node. Not needed where the directory was formatted with "
        "`--standalone` or `--initial-controllers`, which writes them into the metadata.",
    )
    controller_quorum_bootstrap_servers: tuple[str, ...] = words(
        "controller.quorum.bootstrap.servers",
        (),
        of_form(_ADDRESS, "`host:port`"),
        "Controllers that a node asks who leads, until it knows the voters from the metadata.",
    )
    controller_quorum_election_timeout_ms: int = integer(
        "controller.quorum.election.timeout.ms",
        1_000,
        at_least(1),
        "How long a candidate waits for votes before it tries again; each wait is up to twice as long, at random.",
    )
    controller_quorum_fetch_timeout_ms: int = integer(
        "controller.quorum.fetch.timeout.ms",
        2_000,
        at_least(1),
        "How long a follower goes without an answer of the leader before it asks for votes, and a leader without a "
        "fetch of a majority before it resigns.",
    )
    controller_quorum_election_backoff_max_ms: int = integer(
        "controller.quorum.election.backoff.max.ms",
        1_000,
        at_least(0),
        "The longest random wait after an election without a winner.",
    )
    controller_quorum_append_linger_ms: int = integer(
        "controller.quorum.append.linger.ms",
        25,
        at_least(0),
        "How long writes of the metadata may wait to be flushed together. Here those that come while a flush is under "
        "way go together in the next one, and none waits longer.",
        effect=False,
    )
    controller_quorum_request_timeout_ms: int = integer(
        "controller.quorum.request.timeout.ms",
        2_000,
        at_least(1),
        "How long a controller waits for an answer of another one.",
    )
    controller_quorum_retry_backoff_ms: int = integer(
        "controller.quorum.retry.backoff.ms",
        20,
        at_least(0),
        "How long a request to another controller waits after one that failed.",
    )
    controller_quorum_fetch_max_bytes: int = integer(
        "controller.quorum.fetch.max.bytes",
        MIB,
        at_least(1),
        "The most a fetch of the metadata log is answered with; one batch is sent whatever its size.",
    )
    controller_quorum_fetch_snapshot_max_bytes: int = integer(
        "controller.quorum.fetch.snapshot.max.bytes",
        MIB,
        at_least(1),
        "The most that one request for a snapshot is answered with.",
    )

    # The metadata log.
    metadata_log_segment_bytes: int = integer(
        "metadata.log.segment.bytes",
        1_073_741_824,
        at_least(8 * MIB),
        "Segment size of `__cluster_metadata`.",
    )
    metadata_log_segment_ms: int = long(
        "metadata.log.segment.ms", 168 * HOUR_MS, at_least(1), "The age at which a segment of it is closed."
    )
    metadata_log_max_record_bytes_between_snapshots: int = long(
        "metadata.log.max.record.bytes.between.snapshots",
        20 * MIB,
        at_least(1),
        "A snapshot of the metadata is written after so many bytes of records.",
    )
    metadata_log_max_snapshot_interval_ms: int = long(
        "metadata.log.max.snapshot.interval.ms",
        HOUR_MS,
        at_least(0),
        "A snapshot is written at least this often while there are new records; 0 leaves it to their size.",
    )
    metadata_max_idle_interval_ms: int = integer(
        "metadata.max.idle.interval.ms",
        500,
        at_least(0),
        "How often an idle active controller writes an empty record, so that all followers see the log move; 0 never. "
        "A quorum of one has no followers and writes none.",
    )
    metadata_max_retention_bytes: int = long(
        "metadata.max.retention.bytes",
        100 * MIB,
        None,
        "The size of log and snapshots from which old ones that a newer snapshot covers are deleted; below 0 no limit.",
    )
    metadata_max_retention_ms: int = long(
        "metadata.max.retention.ms",
        168 * HOUR_MS,
        None,
        "The age from which snapshots, and log that they cover, are deleted; below 0 no limit.",
    )

    # The session of a broker with the controller.
    broker_session_timeout_ms: int = integer(
        "broker.session.timeout.ms",
        9_000,
        at_least(1),
        "A broker whose heartbeats stay away for so long is fenced, and its leaderships go to others.",
    )
    broker_death_detection_enable: bool = boolean(
        "broker.death.detection.enable",
        True,
        "Strandline's own. Whether the active controller fences a broker as soon as it knows that its process is gone: "
        "the connection of its heartbeats is closed, and its address refuses connections, twice. A broker that cannot "
        "be reached is left to its session.",
    )
    broker_heartbeat_interval_ms: int = integer(
        "broker.heartbeat.interval.ms", 2_000, at_least(1), "How often a broker tells the controller that it lives."
    )
    initial_broker_registration_timeout_ms: int = integer(
        "initial.broker.registration.timeout.ms",
        60_000,
        at_least(1),
        "How long a broker that starts tries to register before it ends with status 1.",
    )
    controlled_shutdown_enable: bool = boolean(
        "controlled.shutdown.enable",
        True,
        "Give leaderships away before stopping, so that clients never wait for a session to end.",
    )

    # Replicas and their leaders.
    replica_lag_time_max_ms: int = long(
        "replica.lag.time.max.ms",
        30_000,
        at_least(1),
        "A follower that has not caught up with its leader for so long leaves the in-sync set.",
    )
    replica_fetch_wait_max_ms: int = integer(
        "replica.fetch.wait.max.ms",
        500,
        at_least(0),
        "How long a leader may hold a follower's fetch while there is nothing new.",
    )
    replica_fetch_min_bytes: int = integer(
        "replica.fetch.min.bytes",
        1,
        at_least(0),
        "How much a follower would wait for; here it is answered as soon as there is anything for it.",
        effect=False,
    )
    replica_fetch_max_bytes: int = integer(
        "replica.fetch.max.bytes",
        MIB,
        at_least(0),
        "The most a follower asks of one partition; one batch is sent whatever its size.",
    )
    replica_fetch_response_max_bytes: int = integer(
        "replica.fetch.response.max.bytes", 10 * MIB, at_least(0), "The most a follower asks for in one fetch."
    )
    replica_fetch_backoff_ms: int = integer(
        "replica.fetch.backoff.ms", 1_000, at_least(0), "How long a follower waits after a fetch that failed."
    )
    replica_socket_timeout_ms: int = integer(
        "replica.socket.timeout.ms", 30_000, at_least(1), "How long a follower waits for the answer to a fetch."
    )
    replica_high_watermark_checkpoint_interval_ms: int = long(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        at_least(1),
        "How often high watermarks are written.",
    )
    auto_leader_rebalance_enable: bool = boolean(
        "auto.leader.rebalance.enable", True, "Give leadership back to preferred replicas that are in sync again."
    )
    leader_imbalance_check_interval_seconds: int = long(
        "leader.imbalance.check.interval.seconds",
        300,
        at_least(1),
        "How often the active controller looks for partitions that their preferred replica does not lead.",
    )
    default_replication_factor: int = integer(
        "default.replication.factor",
        1,
        between(1, 32_767),
        "Replicas of a topic created without a number. Where it is not set, 3 in a cluster of three or more brokers; "
        "a topic of three or more replicas then gets `min.insync.replicas=2`, unless that is set.",
    )
    offsets_topic_replication_factor: int = short(
        "offsets.topic.replication.factor",
        3,
        between(1, 32_767),
        "Replicas of `__consumer_offsets`, which is created when so many brokers are registered and not before. Where "
        "it is not set, no more than there are nodes, so a single node needs no setting.",
    )

    @property
    def is_broker(self) -> bool:
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.process_roles

    def is_for_quorum(self, listener_name: str) -> bool:
        """Return whether controllers, and not clients, connect to the listener of this name."""
        return any(listener_name == name.upper() for name in self.controller_listener_names)

    def quorum_voters(self) -> dict[int, tuple[str, int]]:
        """Return the addresses of `controller.quorum.voters` by node id, in the order given."""
        voters = {}
        for entry in self.controller_quorum_voters:
            voter_id, _, address = entry.partition("@")
            voters[int(voter_id)] = parse_address(address)
        return voters

    def quorum_bootstrap_servers(self) -> list[tuple[str, int]]:
        """Return the addresses of `controller.quorum.bootstrap.servers`."""
        return [parse_address(entry) for entry in self.controller_quorum_bootstrap_servers]
