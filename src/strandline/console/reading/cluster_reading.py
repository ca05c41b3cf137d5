"""What a page model reads a cluster with. It collects what the page must tell: what is old, and what is missing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from strandline.cli.cluster.cluster_rows import node_rows
from strandline.cli.cluster.judging import health_findings, judged
from strandline.cli.cluster.reading import completed
from strandline.cli.cluster.state import ClusterState, DiskState, PartitionState
from strandline.cli.doctor.findings import Finding
from strandline.client.cluster_client import LATEST, READ_UNCOMMITTED, ClusterClient
from strandline.client.large_answers import walk_offsets
from strandline.codec.message import Message
from strandline.codec.messages.describe_log_dirs_request import DescribeLogDirsRequest
from strandline.codec.messages.describe_log_dirs_response import DescribeLogDirsResponse
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.metrics_history_request import MetricsHistoryRequest
from strandline.console.failures import EXPECTED, PageFailed, words_of
from strandline.console.reading.cluster_metadata import ClusterMetadata, read_metadata
from strandline.console.reading.shared_reader import SharedReader
from strandline.console.reading.user_cluster import UserCluster
from strandline.errors import Disconnected, ErrorCode, TimedOut, UnsupportedVersion, named

T = TypeVar("T")

BAD_REQUEST: Final = 400
METADATA_S: Final = 2.0
OFFSETS_S: Final = 4.0
SIZES_S: Final = 15.0
STATE_S: Final = 3.0
JUDGED_S: Final = 10.0
OLD_S: Final = 15.0
"""From this age on a page says how old it is, even if nothing failed."""
RATE_SPAN_S: Final = 2.0
"""The least span between two looks that makes a rate."""
SAMPLES_MAX: Final = 4
PATIENCE_S_MIN: Final = 0.05
PATIENCE_S_MAX: Final = 3.0


class ClusterDisks(NamedTuple):
    """What the brokers have on their disks."""

    by_broker: Mapping[int, DiskState]
    by_topic: Mapping[str, int]
    """The bytes of all replicas of each topic."""
    silent: tuple[int, ...] = ()
    """Brokers that were lost while they were asked."""


class TopicOffsets(NamedTuple):
    """The sum of the end offsets of each topic at one time of our monotonic clock."""

    at_s: float
    ends: Mapping[str, int]


class ClusterReading:
    """The questions of one request. `notes` are sentences that the page shows beside its answer."""

    def __init__(self, shared: SharedReader) -> None:
        self.shared = shared
        self.notes: list[str] = []

    @property
    def cluster(self) -> UserCluster:
        """The cluster as readers of the command line take it; they block, so run them with `shared.in_thread`."""
        return self.shared.cluster

    async def know(self, key: Hashable, ask: Callable[[], Awaitable[T]], fresh_s: float) -> T:
        """Return what is kept under `key`; it is asked again if it is older than `fresh_s`.

        While the cluster does not answer the last answer is returned, and the page says how old it is.
        """
        known = await self.shared.know(key, ask, fresh_s)
        if known.failure:
            self.note(f"The cluster does not answer: {known.failure}. This is what it said {known.age_s:.0f} s ago.")
        elif known.age_s > max(OLD_S, 5 * fresh_s):
            self.note(f"This is {known.age_s:.0f} s old: the cluster is slow, and a newer answer is on its way.")
        return known.value

    def patience_s(self, key: Hashable) -> float:
        """Return how long a page waits for the first answer to a question that may take long.

        The first visitor waits for seconds. Who comes while it is asked gets the page at once, and it fills itself.
        """
        return max(PATIENCE_S_MIN, PATIENCE_S_MAX - self.shared.first_asked_s(key))

    async def part(self, what: str, answer: Coroutine[Any, Any, T], default: T, *, wait_s: float | None = None) -> T:
        """Return an answer that a page can do without.

        If it fails, or is not there within `wait_s`, the page says so and shows the rest. The question goes on, so that
        the next page has its answer.
        """
        task = asyncio.ensure_future(answer)
        try:
            done, _ = await asyncio.wait([task], timeout=wait_s)
            if not done:
                self.note(f"{what}: still being read; this page fills itself")
                return default
            return task.result()
        except (*EXPECTED, PageFailed) as error:
            if isinstance(error, PageFailed) and error.words.status == BAD_REQUEST:
                # What the visitor asked makes no sense, so the rest of the page answers nothing either.
                raise
            self.note(f"{what}: {words_of(error).sentence}")
            return default
        finally:
            task.cancel()

    async def offers(self, request_class: type[Message]) -> bool:
        return await self.shared.offers(request_class)

    async def is_ours(self) -> bool:
        """Return whether the brokers are Strandline's."""
        return await self.offers(MetricsHistoryRequest)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    # What most pages need

    async def metadata(self) -> ClusterMetadata:
        memory = self.shared.memory

        async def ask() -> ClusterMetadata:
            before: ClusterMetadata | None = memory.get("metadata")
            found = await self.shared.ask(lambda client: read_metadata(client, before))
            memory["metadata"] = found
            return found

        return await self.know("metadata", ask, METADATA_S)

    async def state(self) -> ClusterState:
        """Return the state of the cluster as `cluster status` has it, with quorum, reassignments and disks.

        Of the disks it has the sizes of the replicas that are being moved.
        """

        async def ask() -> ClusterState:
            begun = (await self.metadata()).state()
            found = await self.shared.in_thread(lambda: _completed(self.shared.cluster, begun))
            moving = frozenset((each.topic, each.index) for each in found.reassignments or ())
            wait_s = self.patience_s(("disks", moving))
            disks = await self.part("Disks", self._disks(moving), ClusterDisks({}, {}), wait_s=wait_s)
            brokers = tuple(replace(each, disk=disks.by_broker.get(each.node_id)) for each in found.brokers)
            return replace(found, brokers=brokers)

        return await self.know("state", ask, STATE_S)

    async def _disks(self, moving: frozenset[tuple[str, int]] = frozenset()) -> ClusterDisks:
        """Return what is on the disks. While something is moved its progress is asked for more often."""
        metadata = await self.metadata()

        async def ask() -> ClusterDisks:
            return await self.shared.ask(lambda client: _read_disks(client, metadata, moving))

        return await self.know(("disks", moving), ask, STATE_S if moving else SIZES_S)

    async def findings(self) -> list[Finding]:
        """Return the judgement of `cluster health`."""

        async def ask() -> list[Finding]:
            state = await self.state()
            return await self.shared.in_thread(lambda: judged(self.shared.cluster, state))

        return await self.know("findings", ask, JUDGED_S)

    async def sizes(self) -> Mapping[str, int]:
        """Return the bytes of all replicas of each topic, of the brokers that tell."""
        disks = await self._disks()
        if disks.silent:
            self.note(f"Sizes are without those of broker {', '.join(map(str, disks.silent))}, which does not answer")
        return disks.by_topic

    async def offsets(self) -> TopicOffsets:
        metadata = await self.metadata()
        clock = self.shared.clock

        async def ask() -> TopicOffsets:
            began = clock()
            found = TopicOffsets(began, await self.shared.ask(lambda client: _ends(client, metadata)))
            samples: list[TopicOffsets] = self.shared.memory.setdefault("offsets", [])
            samples.append(found)
            del samples[:-SAMPLES_MAX]
            return found

        return await self.know("offsets", ask, OFFSETS_S)

    async def rates(self) -> dict[str, float]:
        """Return the offsets a second of each topic between the last looks; nothing before the second look."""
        last = await self.offsets()
        samples: list[TopicOffsets] = self.shared.memory.get("offsets", [])
        before = next((each for each in samples if last.at_s - each.at_s >= RATE_SPAN_S), None)
        if before is None:
            return {}
        span_s = last.at_s - before.at_s
        return {
            name: max(0, end - before.ends[name]) / span_s for name, end in last.ends.items() if name in before.ends
        }


def _completed(cluster: UserCluster, begun: ClusterState) -> ClusterState:
    """Return what the cluster tells, judged once: pages find the lists of partitions ready, and the loop is free."""
    found = completed(cluster, begun)
    node_rows(found)
    list(health_findings(found))
    return found


def _read_disks(client: ClusterClient, metadata: ClusterMetadata, moving: frozenset[tuple[str, int]]) -> ClusterDisks:
    """Ask each broker. One that is lost, or does not tell, is left out."""
    by_broker: dict[int, DiskState] = {}
    by_topic: dict[str, int] = {}
    silent: list[int] = []
    for broker in metadata.brokers.values():
        try:
            answer = client.ask_at(
                (broker.host, broker.port), DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
            )
        except (Disconnected, TimedOut):
            silent.append(broker.node_id)
            continue
        except UnsupportedVersion:
            continue
        if answer.error_code:
            continue
        whole = [each for each in answer.results if each.error_code == 0]
        total = 0
        sizes: dict[tuple[str, int], int] = {}
        for topic in (topic for each in whole for topic in each.topics):
            kept = [each for each in topic.partitions if not each.is_future_key]
            size = sum(each.partition_size for each in kept)
            by_topic[topic.name] = by_topic.get(topic.name, 0) + size
            total += size
            if moving:
                sizes.update(
                    ((topic.name, each.partition_index), each.partition_size)
                    for each in kept
                    if (topic.name, each.partition_index) in moving
                )
        knows_room = bool(whole) and all(each.total_bytes >= 0 for each in whole)
        by_broker[broker.node_id] = DiskState(
            total,
            sum(each.total_bytes for each in whole) if knows_room else None,
            sum(each.usable_bytes for each in whole) if knows_room else None,
            len(answer.results) - len(whole),
            sizes,
        )
    return ClusterDisks(by_broker, by_topic, tuple(silent))


def _ends(client: ClusterClient, metadata: ClusterMetadata) -> dict[str, int]:
    """Ask all leaders once, side by side. A partition without a leader, or whose leader has just moved, is left out."""
    by_leader: dict[int, dict[str, list[PartitionState]]] = {}
    for topic in metadata.topics.values():
        for each in topic.partitions:
            if each.leader is not None:
                by_leader.setdefault(each.leader, {}).setdefault(topic.name, []).append(each)
    requests: dict[tuple[str, int], Message] = {}
    for leader, topics in by_leader.items():
        address = metadata.address(leader)
        if address is None:
            continue
        asked = [
            ListOffsetsTopic(
                name, [ListOffsetsPartition(partition_index=each.index, timestamp=LATEST) for each in some]
            )
            for name, some in topics.items()
        ]
        requests[address] = ListOffsetsRequest(replica_id=-1, isolation_level=READ_UNCOMMITTED, topics=asked)
    found: dict[str, int] = {}

    def add(view: memoryview, at: int, version: int) -> None:
        for told in walk_offsets(view, at, version):
            ends = [each.offset for each in told.partitions if named(each.error_code) is ErrorCode.NONE]
            found[told.name] = found.get(told.name, 0) + sum(ends)

    for failure in client.read_each(requests, add).values():
        if failure is not None:
            raise failure
    return found
