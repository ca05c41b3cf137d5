"""`strandline topic clone`: a topic that begins with the tiered segments of another and copies none of them.

The records that name the shared objects are written first, then the topic is created. If this command is killed in
between, the cluster takes the records back after ten minutes, because there is no such topic. The objects stay as long
as one topic names them.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, admin_api, connect
from strandline.cli.common.conversation import own_client
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    DryRun,
    Timeout,
    TopicName,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, size
from strandline.cli.common.positions import Position, TimePosition, parse_position, start_offset
from strandline.cli.config.access import Target, read_entries, value_of
from strandline.cli.storage.access import (
    StoreAddress,
    StoreOptions,
    StoreUrl,
    TierMetadata,
    check_owner,
    cluster_id_of,
    read_metadata,
    store_address,
    with_store,
    write_events,
)
from strandline.cli.topic.create import wait_usable
from strandline.cli.topic.storage_kind import DELETE_ON_DISABLE, RECALL, TIERED
from strandline.cli.topic.topics import described
from strandline.client.cluster_client import EARLIEST, LATEST, READ_UNCOMMITTED
from strandline.codec.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.codec.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse
from strandline.config import remote_origin
from strandline.config.remote_origin import PartitionOrigin, RemoteOrigin
from strandline.errors import CorruptLog
from strandline.ids import TopicPartition
from strandline.tiers.objects import key_of, unpack_parts
from strandline.tiers.records import RemoteSegment, SharedObjects, TieredPartition, total_bytes, twin_of
from strandline.tiers.sharing import (
    epochs_of,
    first_hole,
    origin_behind,
    possible_ends,
    reference_events,
    shared_segments,
)

if TYPE_CHECKING:
    from strandline.client.cluster_client import ClusterClient
    from strandline.runtime.runtime import LoopRuntime
    from strandline.tiers.store.interface import ObjectStore

READ_S: Final = 60.0
CONSUMER: Final = -1
_TOPIC_SOURCE: Final = 1


@dataclass(frozen=True)
class _Shared:
    """What one partition of the clone shares."""

    source: TieredPartition
    segments: tuple[RemoteSegment, ...]
    origin: PartitionOrigin
    wanted: int


def clone(
    source: TopicName,
    name: Annotated[str, typer.Argument(metavar="NEW", help="The new topic.")],
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="WHERE",
            help="Records before it are in the clone: an offset, -N, an ISO time, @ms, how long ago: 7d, or latest.",
        ),
    ] = "latest",
    configs: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting other than the source's. May be repeated."),
    ] = None,
    store: StoreUrl = None,
    store_options: StoreOptions = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Create a tiered topic with the records of another up to a point, and copy no byte of them.

    It shares the other's segments in the object store. So each partition ends where a segment does, at WHERE or before
    it; the offsets stay. Deleting one of the two topics, or compacting it, never hurts the other.
    """
    settings = key_values(configs, option="--config")
    try:
        position = parse_position(at, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise UsageFailed(str(error)) from None
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    address = store_address(cluster, admin, store, store_options)
    with own_client(cluster, f"cannot clone {source}") as client:
        cloning = _Cloning(cluster, admin, client, address, source, name, position, settings, output)
        cloning.run(dry_run=dry_run)
    output.flush()


@dataclass
class _Cloning:
    cluster: Cluster
    admin: Any
    client: ClusterClient
    address: StoreAddress
    source: str
    name: str
    position: Position
    settings: dict[str, str]
    output: Output
    cluster_id: str = ""

    def run(self, *, dry_run: bool) -> None:
        topic = described(self.cluster, self.admin, self.source)
        overrides = self._overrides()
        found = self.client.topic(self.source)
        assert found is not None, "it was described"
        if self.client.topic(self.name) is not None:
            raise CommandFailed(f"topic {self.name!r} is there already", hint="choose another name")
        self.cluster_id = cluster_id_of(self.client)
        metadata = read_metadata(self.client, self.cluster_id)
        limits = self._limits(topic)
        shared = with_store(self.address, lambda store, runtime: self._plan(store, runtime, found, metadata, limits))
        self._tell(shared)
        if dry_run:
            return
        new_id = twin_of(found.topic_id, UUID(int=random.SystemRandom().getrandbits(128), version=4))
        self._record(new_id, shared, metadata)
        epochs = [epoch for each in shared for epoch, _ in each.origin.epochs]
        origin = RemoteOrigin(new_id, max(epochs, default=-1) + 1, tuple(each.origin for each in shared))
        self._create(topic, {**overrides, remote_origin.SETTING: origin.encode()})
        self._check_references(new_id, shared)
        wait_usable(self.cluster, self.admin, [self.name])
        if not self.output.as_json:
            self.output.line(f"created {self.name}")

    def _overrides(self) -> dict[str, str]:
        """Return the settings of the clone: those of the source, but what says where and how it was tiered."""
        entries = read_entries(self.cluster, self.admin, Target("topic", self.source)) or {}
        if value_of(entries, TIERED) != "true":
            raise CommandFailed(
                f"{self.source} is not tiered, so it has no segments to share",
                hint=f"`strandline topic alter {self.source} --storage tiered` makes it so",
            )
        own = {each.name: each.value for each in entries.values() if each.source == _TOPIC_SOURCE}
        for name in (remote_origin.SETTING, RECALL, DELETE_ON_DISABLE):
            own.pop(name, None)
        return {**{name: value for name, value in own.items() if value is not None}, **self.settings, TIERED: "true"}

    def _limits(self, topic: Any) -> list[tuple[int, int]]:
        """Return (log start, the offset that was asked for) of each partition."""
        places = [TopicPartition(self.source, each.id) for each in topic.partitions]
        starts, ends = (
            self.client.list_offsets(dict.fromkeys(places, which), isolation_level=READ_UNCOMMITTED)
            for which in (EARLIEST, LATEST)
        )
        times: dict[TopicPartition, int] = {}
        if isinstance(self.position, TimePosition):
            wanted = dict.fromkeys(places, self.position.timestamp_ms)
            times = self.client.list_offsets(wanted, isolation_level=READ_UNCOMMITTED)
        found = []
        for place in places:
            at_time = times.get(place, -1)
            wanted_offset = start_offset(
                self.position,
                log_start_offset=starts[place],
                end_offset=ends[place],
                offset_at_time=None if at_time < 0 else at_time,
            )
            found.append((starts[place], wanted_offset))
        return found

    async def _plan(
        self,
        store: ObjectStore,
        runtime: LoopRuntime,
        topic: Any,
        metadata: TierMetadata,
        limits: list[tuple[int, int]],
    ) -> list[_Shared]:
        await check_owner(store, runtime, self.cluster_id)
        shared = []
        for index, (log_start, limit) in enumerate(limits):
            place = TieredPartition(topic.topic_id, index, self.source)
            state = metadata.fold.states.get(place.key)
            readable = [] if state is None else state.readable()
            shared.append(await self._plan_one(store, place, readable, log_start, limit))
        return shared

    async def _plan_one(
        self, store: ObjectStore, place: TieredPartition, readable: list[RemoteSegment], log_start: int, limit: int
    ) -> _Shared:
        for last in possible_ends(readable, limit):
            if last.end_offset < log_start:
                break
            if not self._is_of_leader(place, last):
                continue
            key = key_of(self.cluster_id, place, last)
            try:
                parts = unpack_parts(await store.read_whole(f"{key}.idx", deadline_s=READ_S))
            except CorruptLog as error:
                raise CommandFailed(f"{key}.idx: {error}", hint="`strandline storage check --deep`") from None
            end_offset = last.end_offset + 1
            origin = origin_behind(parts, start_offset=log_start, end_offset=end_offset)
            segments = shared_segments(readable, epochs_of(origin), start_offset=log_start, end_offset=end_offset)
            hole = first_hole(segments, start_offset=log_start, end_offset=end_offset)
            if hole is not None:
                raise CommandFailed(
                    f"no segment in the object store has offset {hole} of {place}, so it cannot be cloned",
                    hint="`strandline storage check` says what is missing",
                )
            return _Shared(place, tuple(segments), origin, limit)
        return _Shared(place, (), PartitionOrigin(log_start, log_start), limit)

    def _is_of_leader(self, place: TieredPartition, segment: RemoteSegment) -> bool:
        """Return whether the leader's log has a segment up to its end: an election may have taken it back."""
        epoch = segment.epochs[-1][0]
        asked = OffsetForLeaderPartition(partition=place.partition, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER, topics=[OffsetForLeaderTopic(topic=place.topic, partitions=[asked])]
        )

        def attempt() -> Any:
            leader, _ = self.client.leader_of(TopicPartition(place.topic, place.partition))
            answer = self.client.ask_broker(leader, request, OffsetForLeaderEpochResponse).topics[0].partitions[0]
            if answer.error_code:
                self.client.forget(place.topic)
                return None
            return answer

        answer = self.client.retried("compare leader epochs", attempt)
        return bool(answer.leader_epoch == epoch and answer.end_offset > segment.end_offset)

    def _tell(self, shared: list[_Shared]) -> None:
        for each in shared:
            start, end = each.origin.start_offset, each.origin.end_offset
            if self.output.as_json:
                self.output.json_line(
                    {
                        "topic": self.name,
                        "partition": each.source.partition,
                        "from": start,
                        "to": end,
                        "asked": each.wanted,
                        "segments": len(each.segments),
                        "bytes": total_bytes(each.segments),
                    }
                )
            else:
                short = "" if end == each.wanted else f", the last end of a segment before {each.wanted:,}"
                what = f"{count(len(each.segments), 'segment')}, {size(total_bytes(each.segments))}"
                self.output.talk(f"{self.name}-{each.source.partition}: offsets {start:,} to {end:,}{short} ({what})")

    def _record(self, new_id: UUID, shared: list[_Shared], metadata: TierMetadata) -> None:
        """Write that the clone has these segments. Each reader rejects what is being deleted by now."""
        now_ms = time.time_ns() // 1_000_000
        events = [
            (metadata.where[each.source.key], event)
            for each in shared
            if each.segments
            for event in reference_events(
                TieredPartition(new_id, each.source.partition, self.name),
                each.segments,
                SharedObjects(self.cluster_id, each.source.topic_id, each.source.partition),
                now_ms,
            )
        ]
        write_events(self.cluster, events)
        self._check_references(new_id, shared)

    def _check_references(self, new_id: UUID, shared: list[_Shared]) -> None:
        fold = read_metadata(self.client, self.cluster_id).fold
        for each in shared:
            state = fold.states.get((new_id, each.source.partition))
            known = set() if state is None else {segment.id for segment in state.readable()}
            if not known >= {segment.id for segment in each.segments}:
                if self.client.topic(self.name) is not None:
                    self.admin.delete_topics([self.name], operation_timeout=self.cluster.timeout_s)[self.name].result()
                raise CommandFailed(
                    f"segments of {each.source} were deleted meanwhile, so {self.name} was not made",
                    hint="run the command again",
                )

    def _create(self, topic: Any, settings: dict[str, str]) -> None:
        api, replicas = admin_api(), min(len(each.replicas) for each in topic.partitions)
        new = api.NewTopic(
            self.name, num_partitions=len(topic.partitions), replication_factor=replicas, config=settings
        )
        with self.cluster.errors(f"cannot create topic {self.name!r}"):
            answers = self.admin.create_topics(
                [new], operation_timeout=self.cluster.timeout_s, request_timeout=self.cluster.timeout_s
            )
            answers[self.name].result()
