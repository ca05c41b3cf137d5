"""What nodes say to each other, said wrong: stale epochs, another cluster's id, ids of nobody, empty and odd requests.

Each case names whom it is sent to, the request, and the error code that must be in the answer. Where Apache Kafka 4.3.1
answers the same table otherwise: an empty FetchSnapshot ends it, one of an old epoch is an UNKNOWN_SERVER_ERROR, and a
Fetch in a follower's name is served without the epoch of its registration.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from strandline.codec.message import Message
from strandline.codec.message_codec import encode
from strandline.codec.messages import (
    allocate_producer_ids_request,
    alter_partition_reassignments_request,
    alter_partition_request,
    assign_replicas_to_dirs_request,
    begin_quorum_epoch_request,
    broker_heartbeat_request,
    broker_registration_request,
    controller_registration_request,
    create_topics_request,
    elect_leaders_request,
    end_quorum_epoch_request,
    envelope_request,
    fetch_request,
    fetch_snapshot_request,
    list_offsets_request,
    offset_for_leader_epoch_request,
    produce_request,
    unregister_broker_request,
    vote_request,
)
from strandline.errors import ErrorCode

STRANGER = 99
"""The id of a broker that does not exist."""
OTHER_CLUSTER = "b3RoZXItY2x1c3Rlci1pZA"
LATER = 1_000
RECORDS_END = 100
"""How many records the topic has: a fetch from there acknowledges all of them."""
METADATA = "__cluster_metadata"
METADATA_ID = UUID(int=1)
ANONYMOUS = b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"
LOOPBACK = bytes([127, 0, 0, 1])


@dataclass(frozen=True, slots=True)
class Facts:
    """What a stranger could know of the cluster."""

    cluster_id: str
    quorum_leader: int
    quorum_epoch: int
    topic: str
    topic_id: UUID
    leader: int
    leader_epoch: int
    follower: int


class Case(NamedTuple):
    name: str
    to: str
    """`active` or `passive` controller (their own listener), `leader` or `follower` of the topic (the clients')."""
    request: Callable[[Facts], Message]
    version: int
    expected: ErrorCode


def vote(facts: Facts, *, cluster_id: str | None = None, **fields: Any) -> Message:
    partition = vote_request.PartitionData(replica_id=STRANGER, **fields)
    topic = vote_request.TopicData(topic_name=METADATA, partitions=[partition])
    return vote_request.VoteRequest(cluster_id=cluster_id or facts.cluster_id, voter_id=-1, topics=[topic])


def begin(facts: Facts, *, cluster_id: str | None = None, **fields: Any) -> Message:
    partition = begin_quorum_epoch_request.PartitionData(**fields)
    topic = begin_quorum_epoch_request.TopicData(topic_name=METADATA, partitions=[partition])
    endpoint = begin_quorum_epoch_request.LeaderEndpoint(name="CONTROLLER", host="127.0.0.1", port=1)
    return begin_quorum_epoch_request.BeginQuorumEpochRequest(
        cluster_id=cluster_id or facts.cluster_id, voter_id=-1, topics=[topic], leader_endpoints=[endpoint]
    )


def end(facts: Facts, *, cluster_id: str | None = None, **fields: Any) -> Message:
    partition = end_quorum_epoch_request.PartitionData(**fields)
    topic = end_quorum_epoch_request.TopicData(topic_name=METADATA, partitions=[partition])
    return end_quorum_epoch_request.EndQuorumEpochRequest(cluster_id=cluster_id or facts.cluster_id, topics=[topic])


def metadata_fetch(facts: Facts, *, cluster_id: str | None = None, **fields: Any) -> Message:
    asked: dict[str, Any] = {"current_leader_epoch": facts.quorum_epoch, "last_fetched_epoch": 0, **fields}
    partition = fetch_request.FetchPartition(partition=0, partition_max_bytes=1 << 20, **asked)
    topic = fetch_request.FetchTopic(topic_id=METADATA_ID, partitions=[partition])
    return fetch_request.FetchRequest(
        cluster_id=cluster_id or facts.cluster_id,
        replica_state=fetch_request.ReplicaState(replica_id=STRANGER, replica_epoch=-1),
        topics=[topic],
    )


def snapshot(facts: Facts, *, cluster_id: str | None = None, **fields: Any) -> Message:
    asked: dict[str, Any] = {"current_leader_epoch": facts.quorum_epoch, **fields}
    partition = fetch_snapshot_request.PartitionSnapshot(
        snapshot_id=fetch_snapshot_request.SnapshotId(end_offset=10**9, epoch=1), **asked
    )
    topic = fetch_snapshot_request.TopicSnapshot(name=METADATA, partitions=[partition])
    return fetch_snapshot_request.FetchSnapshotRequest(
        cluster_id=cluster_id or facts.cluster_id, replica_id=STRANGER, topics=[topic]
    )


def heartbeat(broker_id: int, **fields: Any) -> Message:
    return broker_heartbeat_request.BrokerHeartbeatRequest(broker_id=broker_id, **fields)


def registration(broker_id: int, cluster_id: str) -> Message:
    listener = broker_registration_request.Listener(name="PLAINTEXT", host="127.0.0.1", port=1)
    return broker_registration_request.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=UUID(int=7),
        listeners=[listener],
        log_dirs=[UUID(int=8)],
        rack=None,
    )


def in_sync(facts: Facts, *, broker_id: int, broker_epoch: int) -> Message:
    partition = alter_partition_request.PartitionData(
        leader_epoch=facts.leader_epoch, new_isr_with_epochs=[alter_partition_request.BrokerState(broker_id=broker_id)]
    )
    topic = alter_partition_request.TopicData(topic_id=facts.topic_id, partitions=[partition])
    return alter_partition_request.AlterPartitionRequest(broker_id=broker_id, broker_epoch=broker_epoch, topics=[topic])


def wrapped(request: Message, version: int) -> bytes:
    head = struct.pack(">hhih", request.API_KEY, version, 5, 1) + b"x"
    return head + (b"\0" if version >= request.FLEXIBLE_FROM else b"") + encode(request, version)


def envelope(content: bytes, *, principal: bytes | None = ANONYMOUS, address: bytes = LOOPBACK) -> Message:
    return envelope_request.EnvelopeRequest(
        request_data=content, request_principal=principal, client_host_address=address
    )


def replica_fetch(facts: Facts, *, replica_id: int, offset: int = 0, epoch: int | None = None) -> Message:
    partition = fetch_request.FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=facts.leader_epoch if epoch is None else epoch,
        partition_max_bytes=1 << 20,
    )
    topic = fetch_request.FetchTopic(topic_id=facts.topic_id, partitions=[partition])
    return fetch_request.FetchRequest(
        replica_state=fetch_request.ReplicaState(replica_id=replica_id, replica_epoch=-1), topics=[topic]
    )


def list_offsets(facts: Facts, epoch: int) -> Message:
    partition = list_offsets_request.ListOffsetsPartition(current_leader_epoch=epoch, timestamp=-1)
    topic = list_offsets_request.ListOffsetsTopic(name=facts.topic, partitions=[partition])
    return list_offsets_request.ListOffsetsRequest(replica_id=-1, topics=[topic])


def epoch_end(facts: Facts, epoch: int) -> Message:
    partition = offset_for_leader_epoch_request.OffsetForLeaderPartition(current_leader_epoch=epoch, leader_epoch=0)
    topic = offset_for_leader_epoch_request.OffsetForLeaderTopic(topic=facts.topic, partitions=[partition])
    return offset_for_leader_epoch_request.OffsetForLeaderEpochRequest(replica_id=-1, topics=[topic])


def produce(facts: Facts) -> Message:
    partition = produce_request.PartitionProduceData(index=0, records=b"")
    topic = produce_request.TopicProduceData(name=facts.topic, partition_data=[partition])
    return produce_request.ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def create_nothing() -> Message:
    return create_topics_request.CreateTopicsRequest(topics=[], timeout_ms=1000)


def reassignment(facts: Facts, replicas: list[int]) -> Message:
    partition = alter_partition_reassignments_request.ReassignablePartition(replicas=replicas)
    topic = alter_partition_reassignments_request.ReassignableTopic(name=facts.topic, partitions=[partition])
    return alter_partition_reassignments_request.AlterPartitionReassignmentsRequest(topics=[topic])


def cases() -> Iterator[Case]:
    yield from _quorum()
    yield from _brokers()
    yield from _forwarding()
    yield from _replicas()


def _quorum() -> Iterator[Case]:
    wrong, invalid, fenced = ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST, ErrorCode.FENCED_LEADER_EPOCH
    kinds: tuple[tuple[str, Callable[..., Message], int], ...] = (
        ("Vote", vote, 2),
        ("BeginQuorumEpoch", begin, 1),
        ("EndQuorumEpoch", end, 1),
        ("Fetch of the metadata log", metadata_fetch, 17),
        ("FetchSnapshot", snapshot, 1),
    )
    for name, make, version in kinds:

        def of_another_cluster(facts: Facts, make: Callable[..., Message] = make) -> Message:
            return make(facts, cluster_id=OTHER_CLUSTER)

        def about_nothing(facts: Facts, make: Callable[..., Message] = make) -> Message:
            request: Any = make(facts)
            request.topics = []
            return request  # type: ignore[no-any-return]

        def about_no_partition(facts: Facts, make: Callable[..., Message] = make) -> Message:
            request: Any = make(facts)
            request.topics[0].partitions = []
            return request  # type: ignore[no-any-return]

        for to in ("active", "passive"):
            yield Case(f"{name} of another cluster", to, of_another_cluster, version, wrong)
            yield Case(f"{name} about nothing", to, about_nothing, version, invalid)
            yield Case(f"{name} about no partition", to, about_no_partition, version, invalid)
    yield Case("Vote of an old epoch", "active", lambda facts: vote(facts, replica_epoch=0), 2, fenced)
    yield Case(
        "BeginQuorumEpoch of an old epoch",
        "active",
        lambda facts: begin(facts, leader_id=facts.quorum_leader % 3 + 1, leader_epoch=0),
        1,
        fenced,
    )
    yield Case(
        "EndQuorumEpoch of an old epoch",
        "active",
        lambda facts: end(facts, leader_id=facts.quorum_leader % 3 + 1, leader_epoch=0),
        1,
        fenced,
    )
    yield Case(
        "metadata Fetch of an old epoch",
        "active",
        lambda facts: metadata_fetch(facts, current_leader_epoch=0),
        17,
        fenced,
    )
    yield Case(
        "metadata Fetch of a later epoch",
        "active",
        lambda facts: metadata_fetch(facts, current_leader_epoch=LATER),
        17,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    )
    yield Case(
        "metadata Fetch from a follower",
        "passive",
        lambda facts: metadata_fetch(facts),
        17,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    yield Case(
        "FetchSnapshot of an old epoch", "active", lambda facts: snapshot(facts, current_leader_epoch=0), 1, fenced
    )
    yield Case("FetchSnapshot of none", "active", lambda facts: snapshot(facts), 1, ErrorCode.SNAPSHOT_NOT_FOUND)


def _brokers() -> Iterator[Case]:
    yield Case(
        "BrokerHeartbeat of nobody",
        "active",
        lambda facts: heartbeat(STRANGER),
        1,
        ErrorCode.STALE_BROKER_EPOCH,
    )
    yield Case(
        "BrokerHeartbeat of an old life",
        "active",
        lambda facts: heartbeat(facts.leader, broker_epoch=0),
        1,
        ErrorCode.STALE_BROKER_EPOCH,
    )
    yield Case(
        "BrokerHeartbeat of a later life, which wants to be fenced",
        "active",
        lambda facts: heartbeat(facts.leader, broker_epoch=10**9, want_fence=True),
        1,
        ErrorCode.STALE_BROKER_EPOCH,
    )
    yield Case(
        "BrokerRegistration in another cluster",
        "active",
        lambda facts: registration(STRANGER, OTHER_CLUSTER),
        4,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
    )
    yield Case(
        "BrokerRegistration in the place of a living broker",
        "active",
        lambda facts: registration(facts.leader, facts.cluster_id),
        4,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    )
    for name, broker in (("nobody", lambda facts: STRANGER), ("an old life", lambda facts: facts.leader)):
        yield Case(
            f"AlterPartition of {name}",
            "active",
            lambda facts, broker=broker: in_sync(facts, broker_id=broker(facts), broker_epoch=0),  # type: ignore[misc]
            3,
            ErrorCode.STALE_BROKER_EPOCH,
        )
        yield Case(
            f"AssignReplicasToDirs of {name}",
            "active",
            lambda facts, broker=broker: assign_replicas_to_dirs_request.AssignReplicasToDirsRequest(  # type: ignore[misc]
                broker_id=broker(facts), broker_epoch=0
            ),
            0,
            ErrorCode.STALE_BROKER_EPOCH,
        )
    yield Case(
        "AllocateProducerIds for nobody",
        "active",
        lambda facts: allocate_producer_ids_request.AllocateProducerIdsRequest(broker_id=STRANGER, broker_epoch=0),
        0,
        ErrorCode.STALE_BROKER_EPOCH,
    )
    yield Case(
        "AllocateProducerIds for an old life",
        "active",
        lambda facts: allocate_producer_ids_request.AllocateProducerIdsRequest(broker_id=facts.leader, broker_epoch=0),
        0,
        ErrorCode.STALE_BROKER_EPOCH,
    )
    yield Case(
        "UnregisterBroker of nobody",
        "leader",
        lambda facts: unregister_broker_request.UnregisterBrokerRequest(broker_id=STRANGER),
        0,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    )
    yield Case(
        "a reassignment to nobody",
        "follower",
        lambda facts: reassignment(facts, [STRANGER]),
        0,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    )
    yield Case(
        "an election of a kind that is not",
        "follower",
        lambda facts: elect_leaders_request.ElectLeadersRequest(election_type=7, topic_partitions=None),
        2,
        ErrorCode.INVALID_REQUEST,
    )
    not_active: tuple[tuple[Callable[[Facts], Message], int], ...] = (
        (lambda facts: heartbeat(facts.leader), 1),
        (lambda facts: registration(STRANGER, facts.cluster_id), 4),
        (lambda facts: in_sync(facts, broker_id=facts.leader, broker_epoch=0), 3),
        (lambda facts: allocate_producer_ids_request.AllocateProducerIdsRequest(broker_id=1), 0),
        (lambda facts: controller_registration_request.ControllerRegistrationRequest(controller_id=STRANGER), 0),
        (lambda facts: envelope(wrapped(create_nothing(), 7)), 0),
    )
    for request, version in not_active:
        yield Case("what is for another controller", "passive", request, version, ErrorCode.NOT_CONTROLLER)


def _forwarding() -> Iterator[Case]:
    invalid = ErrorCode.INVALID_REQUEST
    yield Case("an empty Envelope", "active", lambda facts: envelope(b""), 0, ErrorCode.UNSUPPORTED_VERSION)
    yield Case("an Envelope of noise", "active", lambda facts: envelope(bytes(range(200))), 0, invalid)
    yield Case("an Envelope in an Envelope", "active", lambda facts: envelope(wrapped(envelope(b""), 0)), 0, invalid)
    yield Case("an Envelope around a Vote", "active", lambda facts: envelope(wrapped(vote(facts), 2)), 0, invalid)
    yield Case(
        "an Envelope around a version that is not served",
        "active",
        lambda facts: envelope(struct.pack(">hhih", 19, 99, 5, -1)),
        0,
        ErrorCode.UNSUPPORTED_VERSION,
    )
    yield Case(
        "an Envelope of nobody",
        "active",
        lambda facts: envelope(wrapped(create_nothing(), 7), principal=b"\xff"),
        0,
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
    )
    yield Case(
        "an Envelope from nowhere",
        "active",
        lambda facts: envelope(wrapped(create_nothing(), 7), address=b"\x01"),
        0,
        invalid,
    )


def _replicas() -> Iterator[Case]:
    unknown, fenced = ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH
    questions: tuple[tuple[str, Callable[[Facts, int], Message], int], ...] = (
        ("Fetch", lambda facts, epoch: replica_fetch(facts, replica_id=-1, epoch=epoch), 17),
        ("ListOffsets", list_offsets, 9),
        ("OffsetForLeaderEpoch", epoch_end, 4),
    )
    for name, make, version in questions:
        yield Case(
            f"{name} with a later leader epoch",
            "leader",
            lambda facts, make=make: make(facts, LATER),  # type: ignore[misc]
            version,
            unknown,
        )
        yield Case(
            f"{name} with an old leader epoch",
            "leader",
            lambda facts, make=make: make(facts, facts.leader_epoch - 1),  # type: ignore[misc]
            version,
            fenced,
        )
        if name != "Fetch":  # A consumer may read at a follower, below the high watermark.
            yield Case(
                f"{name} at a follower",
                "follower",
                lambda facts, make=make: make(facts, -1),  # type: ignore[misc]
                version,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
            )
    yield Case("Produce at a follower", "follower", produce, 11, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    yield Case(
        "Fetch as a replica that is no broker",
        "leader",
        lambda facts: replica_fetch(facts, replica_id=STRANGER),
        17,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    # Only the broker itself knows the epoch of its registration: a stranger cannot acknowledge in its name.
    yield Case(
        "Fetch as a follower that it is not",
        "leader",
        lambda facts: replica_fetch(facts, replica_id=facts.follower, offset=RECORDS_END),
        17,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    yield Case(
        "Fetch as the leader itself",
        "leader",
        lambda facts: replica_fetch(facts, replica_id=facts.leader),
        17,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
