"""A consumer in the simulation: reads its partitions from the start, goes back now and then, and notes all it sees.

It names its leader epoch in every request, and the epoch of the last record it read, as KIP-320 wants. On a topic
without unclean elections nothing that it has read is ever taken back: an offset out of range, or an answer that its
position diverges, is then a surprise, which fails the run. With `follows_replicas` it reads from any replica. With
`committed_only` it leaves out what was aborted, by the list that comes with the records, as read_committed ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tests.simulator.clients.client import (
    BACKOFF_S,
    METADATA_AGE_S,
    REQUEST_TIMEOUT_S,
    History,
    Known,
    SimClient,
)
from tests.simulator.world.flips import are_intact
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost

from strandline.codec.columns import Record, columns_of
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse, PartitionData
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.list_offsets_response import ListOffsetsResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition
from strandline.testing.history import Assign, Op, Poll, Watermark

FETCH_VERSION: Final = 16
LIST_OFFSETS_VERSION: Final = 7
LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
FETCH_WAIT_MS: Final = 1_500
PARTITION_BYTES_MAX: Final = 8 * 1024
EMPTY_PAUSE_S: Final = 0.05


@dataclass(slots=True)
class Position:
    partition: TopicPartition
    offset: int = 0
    last_epoch: int = -1
    end: int | None = None
    """Where the final read is over."""
    moves: int = 0
    """How often it was moved by hand: an answer to a request from before is void."""
    is_looking: bool = False
    asks_leader: bool = False
    """Whether a follower has sent it away: what it wants may be in the object store, which leaders alone read."""
    sources: set[int] = field(default_factory=set)
    """The brokers that it has read records from."""


class SimConsumer(SimClient):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        partitions: Sequence[TopicPartition],
        *,
        rewinds_every_s: float = 0.0,
        looks_every_s: float = 0.0,
        follows_replicas: bool = False,
        loses_are_legal: bool = False,
        forgets: bool = False,
        is_final: bool = False,
        committed_only: bool = False,
        topics: Sequence[str] = (),
    ) -> None:
        super().__init__(network, host, history, bootstrap, topics or sorted({each.topic for each in partitions}))
        self.process = history.new_process()
        self.positions = {each: Position(each) for each in partitions}
        self.rewinds_every_s = rewinds_every_s
        self.looks_every_s = looks_every_s
        self.follows_replicas = follows_replicas
        self.loses_are_legal = loses_are_legal
        self.forgets = forgets
        """Whether records leave at the start of what is read: who comes too late for them goes on where it begins."""
        self.is_final = is_final
        self.isolation_level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        self.records_read = 0
        self._fetching: dict[int, None] = {}
        self._not_before: dict[int, float] = {}
        """When a broker may be asked again that gave no good answer: news of leaders alone is no reason."""
        self._on_ends: Callable[[], object] = lambda: None
        self._note_assignment(*self.positions.values())
        self.on_topology = self._fetch_all
        self.runtime.call_soon(self.refresh)
        self.runtime.call_later(METADATA_AGE_S, self._refresh_by_time)
        if is_final:
            self.runtime.call_soon(self._look)
        elif looks_every_s:
            self.runtime.call_later(looks_every_s * self.random.random(), self._look)
        if rewinds_every_s:
            self.runtime.call_later(rewinds_every_s * self.random.random(), self._rewind)

    @property
    def is_at_end(self) -> bool:
        """Whether a final read has read all there was."""
        return all(each.end is not None and each.offset >= each.end for each in self.positions.values())

    def _note_assignment(self, *moved: Position) -> None:
        assigned = tuple(
            Assign(str(each.partition), each.offset if each in moved else None) for each in self.positions.values()
        )
        now_ns = self.history.now_ns()
        self.history.ops.append(Op(self.process, "ok", "assign", assigned, now_ns, now_ns, final=self.is_final))

    def _refresh_by_time(self) -> None:
        if not self.is_stopped:
            self.runtime.call_later(METADATA_AGE_S, self._refresh_by_time)
            self.refresh()

    def calm(self) -> None:
        """Go back no more."""
        self.rewinds_every_s = 0.0

    def _rewind(self) -> None:
        if self.is_stopped or not self.rewinds_every_s:
            return
        self.runtime.call_later(self.rewinds_every_s * (0.5 + self.random.random()), self._rewind)
        position = self.random.choice(list(self.positions.values()))
        self.seek(position, self.random.randint(0, position.offset))

    def seek(self, position: Position, offset: int) -> None:
        position.offset, position.last_epoch = offset, -1
        position.moves += 1
        self._note_assignment(position)

    # Fetching: one request at a time to each broker, on a connection of its own, for all that is read from there

    def _source_of(self, position: Position, known: Known) -> int:
        partition = position.partition
        if self.follows_replicas and known.in_sync and not position.asks_leader:
            return known.in_sync[partition.partition % len(known.in_sync)]
        return known.leader

    def _fetch_all(self) -> None:
        sources: dict[int, list[tuple[Position, Known]]] = {}
        for position in self.positions.values():
            known = self.leader_of(position.partition)
            if known is not None and (position.end is None or position.offset < position.end):
                sources.setdefault(self._source_of(position, known), []).append((position, known))
        now = self.runtime.monotonic()
        for broker, wanted in sources.items():
            if broker not in self._fetching and not self.is_stopped and self._not_before.get(broker, 0.0) <= now:
                self._fetch(broker, wanted)

    def _fetch(self, broker: int, wanted: list[tuple[Position, Known]]) -> None:
        wire = self.wire(broker, "fetch")
        if wire is None:
            self.refresh_later()
            return
        self._fetching[broker] = None
        topics: dict[UUID, FetchTopic] = {}
        asked: dict[tuple[UUID, int], tuple[Position, int]] = {}
        for position, known in wanted:
            topic = topics.setdefault(known.topic_id, FetchTopic(topic_id=known.topic_id))
            topic.partitions.append(
                FetchPartition(
                    partition=position.partition.partition,
                    current_leader_epoch=known.epoch,
                    fetch_offset=position.offset,
                    last_fetched_epoch=position.last_epoch,
                    partition_max_bytes=PARTITION_BYTES_MAX,
                )
            )
            asked[known.topic_id, position.partition.partition] = (position, position.moves)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=0,
            session_epoch=-1,
            isolation_level=self.isolation_level,
            topics=list(topics.values()),
        )
        invoked_ns = self.history.now_ns()

        def on_answer(answer: FetchResponse | None) -> None:
            self._on_fetched(broker, asked, invoked_ns, answer)

        wire.ask(request, FETCH_VERSION, FetchResponse, on_answer, timeout_s=REQUEST_TIMEOUT_S)

    def _on_fetched(
        self,
        broker: int,
        asked: dict[tuple[UUID, int], tuple[Position, int]],
        invoked_ns: int,
        answer: FetchResponse | None,
    ) -> None:
        self._fetching.pop(broker, None)
        is_well = answer is not None and answer.error_code == ErrorCode.NONE
        polls: list[Poll] = []
        for topic in answer.responses if answer is not None else ():
            for told in topic.partitions:
                position, moves = asked[topic.topic_id, told.partition_index]
                if position.moves != moves:
                    continue  # It was moved while the request was under way.
                if told.error_code or told.diverging_epoch.end_offset >= 0:
                    is_well = False
                    self._on_error(position, told, broker)
                elif told.records and not are_intact(bytes(told.records)):
                    # A bit flipped on the way: ask again.
                    is_well = False
                elif told.records:
                    position.sources.add(broker)
                    position.asks_leader = False
                    polls.append(self._read(position, told))
                else:
                    self.on_nothing(position, told)
        if polls:
            now_ns = self.history.now_ns()
            self.history.ops.append(
                Op(self.process, "ok", "poll", tuple(polls), invoked_ns, now_ns, final=self.is_final)
            )
        if self.is_stopped:
            return
        if is_well:
            self.runtime.call_later(0.0 if polls else EMPTY_PAUSE_S, self._fetch_all)
        else:
            self.refresh()
            pause_s = BACKOFF_S * (0.5 + self.random.random())
            self._not_before[broker] = self.runtime.monotonic() + pause_s
            self.runtime.call_later(pause_s, self._fetch_all)

    def on_nothing(self, position: Position, told: PartitionData) -> None:
        """A broker had nothing to give from a position on, and no error."""

    def _read(self, position: Position, told: PartitionData) -> Poll:
        records = [(record.offset, (record.value or b"").decode()) for record in self._records(position, told)]
        self.records_read += len(records)
        return Poll(str(position.partition), tuple(records))

    def _records(self, position: Position, told: PartitionData) -> list[Record]:
        """Return the part of an answer that an application gets."""
        records: list[Record] = []
        to_abort = sorted((each.first_offset, each.producer_id) for each in told.aborted_transactions or ())
        aborted: set[int] = set()
        for columns in columns_of(told.records or b""):
            header = columns.header
            while to_abort and to_abort[0][0] <= header.last_offset:
                aborted.add(to_abort.pop(0)[1])
            if columns.is_control:
                aborted.discard(columns.producer_id)
            if header.last_offset < position.offset:
                continue
            position.last_epoch = header.leader_epoch
            if not columns.is_control and not (columns.is_transactional and columns.producer_id in aborted):
                records += [record for record in columns if record.offset >= position.offset]
            position.offset = header.last_offset + 1
        return records

    def _on_error(self, position: Position, told: PartitionData, broker: int) -> None:
        code = told.error_code
        position.asks_leader = position.asks_leader or code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        is_lost = code == ErrorCode.OFFSET_OUT_OF_RANGE or (not code and told.diverging_epoch.end_offset >= 0)
        if not is_lost or not self.leads(position.partition, broker):
            return
        if self.forgets and code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._look_at(position, EARLIEST)
            return
        if not self.loses_are_legal:
            self.history.surprises.append(
                f"consumer {self.process} at offset {position.offset} (epoch {position.last_epoch}) of "
                f"{position.partition}: {ErrorCode(code).name}, {told.diverging_epoch}, log "
                f"{told.log_start_offset} to {told.high_watermark}"
            )
        self.seek(position, max(0, min(position.offset, told.diverging_epoch.end_offset)))

    # Looking where partitions end

    def _look(self) -> None:
        if self.is_stopped:
            return
        if not self.is_final:
            self.runtime.call_later(self.looks_every_s * (0.5 + self.random.random()), self._look)
        for position in self.positions.values():
            if not position.is_looking and (position.end is None or not self.is_final):
                self._look_at(position)
        if self.is_final and any(each.end is None for each in self.positions.values()):
            self.runtime.call_later(2 * BACKOFF_S, self._look)

    def _look_at(self, position: Position, timestamp: int = LATEST) -> None:
        known = self.leader_of(position.partition)
        wire = None if known is None else self.wire(known.leader, "look")
        if known is None or wire is None:
            self.refresh()
            return
        topic, index = position.partition
        wanted = ListOffsetsPartition(partition_index=index, current_leader_epoch=known.epoch, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=self.isolation_level,
            topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
        )
        invoked_ns = self.history.now_ns()
        moves = position.moves

        def on_start(answer: ListOffsetsResponse | None) -> None:
            start = -1 if answer is None else answer.topics[0].partitions[0].offset
            if start > position.offset and position.moves == moves:
                self.seek(position, start)

        def on_end(answer: ListOffsetsResponse | None) -> None:
            self._on_end(position, invoked_ns, answer)

        if timestamp == EARLIEST:
            on_answer = on_start
        else:
            # One at a time, because of two that overlap it is unknown which saw the later end.
            position.is_looking = True
            on_answer = on_end

        wire.ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse, on_answer, timeout_s=REQUEST_TIMEOUT_S)

    def _on_end(self, position: Position, invoked_ns: int, answer: ListOffsetsResponse | None) -> None:
        position.is_looking = False
        if answer is None or answer.topics[0].partitions[0].error_code:
            self.refresh()
            return
        end = answer.topics[0].partitions[0].offset
        name = str(position.partition)
        if self.is_final and position.end is None:
            position.end = end
            # An empty partition is read too: the checker must know that nothing was there.
            now_ns = self.history.now_ns()
            self.history.ops.append(Op(self.process, "ok", "poll", (Poll(name, ()),), invoked_ns, now_ns, final=True))
            self._fetch_all()
        elif not self.is_final:
            mop = Watermark(name, end)
            self.history.ops.append(Op(self.process, "ok", "poll", (mop,), invoked_ns, self.history.now_ns()))
