"""The keeper of chains: what it hashes, when it anchors, and where a chain goes on or begins again."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.unit.coordinators.world import TurnedClock
from tests.unit.security.test_audit_chain import batch

from strandline.broker.audit.chain_keeper import REPEAT_S, ChainKeeper
from strandline.codec.messages.find_anchors_request import FindAnchorsRequest
from strandline.codec.messages.find_anchors_response import FindAnchorsResponse, FoundAnchor
from strandline.config.node_config import BrokerConfig
from strandline.errors import DiskFailed, ErrorCode, StrandlineError
from strandline.security.audit.audit_event import AuditEvent
from strandline.security.audit.chain import Anchor, anchor_of, chain_start, extended, points_of

TOPIC_ID = UUID(int=5)
INTERVAL_S = 60.0
CONFIG = BrokerConfig.load("", {"strandline.audit.enable": "true"})


class Clock(TurnedClock):
    def in_thread(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], object]) -> None:
        self.call_soon(done, work(), None)


class Slice:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size_bytes = len(data)

    def read(self) -> bytes:
        return self.data

    def release(self) -> None: ...


class Partition:
    """A partition that this broker leads, in memory: a batch for each offset."""

    topic, index, topic_id = "ledger", 0, TOPIC_ID

    def __init__(self, count: int) -> None:
        self.is_leader = True
        self.leader_epoch = 4
        self.batches = [bytes(batch(offset, b"%d" % offset)) for offset in range(count)]
        self.log_start_offset = 0
        self.high_watermark = count
        self.config = SimpleNamespace(audit_chain=True, compact=False)
        self.failure: StrandlineError | None = None
        self.log: Any = self

    @property
    def log_end_offset(self) -> int:
        return len(self.batches)

    def read(self, offset: int, *, size_bytes_max: int, limit_offset: int, may_block: bool) -> Slice:
        if self.failure is not None:
            raise self.failure
        assert self.log_start_offset <= offset < limit_offset
        # More than may be seen, and cut.
        beyond = b"".join(self.batches[limit_offset : limit_offset + 1])
        return Slice(b"".join(self.batches[offset:limit_offset]) + beyond[:-5])

    def value_at(self, offset: int, begin: int = 0) -> bytes:
        found = extended(chain_start(TOPIC_ID, 0), b"".join(self.batches[begin:offset]), offset)
        return found[-1].value if found else chain_start(TOPIC_ID, 0)


class Stage:
    """A broker with one chained partition, and the audit topic as a list of anchors."""

    def __init__(self, count: int = 3) -> None:
        self.clock = Clock()
        self.partition = Partition(count)
        self.anchors: list[Anchor] = []
        self.error = ErrorCode.NONE
        self.loses = False
        self.asked = 0
        topics = {"ledger": SimpleNamespace(partitions=[None])}
        image: Any = SimpleNamespace(configs={(2, "ledger"): {"strandline.audit.chain": "true"}}, topics=topics)
        environment: Any = SimpleNamespace(runtime=self.clock, config=lambda: CONFIG, image=lambda: image)
        self.environment = environment
        self.services: Any = SimpleNamespace(partition=lambda topic, index: self.partition)
        self.keeper = self.start()

    def start(self) -> ChainKeeper:
        audit: Any = self
        keeper = ChainKeeper(self.environment, self.services, audit)
        keeper.start()
        return keeper

    def restart(self) -> None:
        self.keeper.close()
        self.keeper = self.start()

    def find_anchors(self, request: FindAnchorsRequest, then: Callable[[FindAnchorsResponse], object]) -> None:
        self.asked += 1
        last = [] if self.error else self.anchors[-1:]
        found = [FoundAnchor(each.topic_id, each.partition, each.offset, each.value) for each in last]
        then(FindAnchorsResponse(error_code=self.error, anchors=found))

    def write(self, event: AuditEvent) -> bool:
        if self.loses:
            return False
        anchor = anchor_of({"type": event.type, "details": dict(event.details)})
        assert anchor is not None
        self.anchors.append(anchor)
        return True

    def pass_intervals(self, count: int = 1) -> None:
        self.clock.run(count * INTERVAL_S + 1)

    def append(self, count: int) -> None:
        end = len(self.partition.batches)
        self.partition.batches += [bytes(batch(end + number, b"more")) for number in range(count)]
        self.partition.high_watermark = end + count

    def seen(self) -> list[tuple[int, bool, int]]:
        return [(each.offset, each.begins, each.after) for each in self.anchors]


def test_committed_batches_are_chained_and_anchored() -> None:
    stage = Stage(5)
    stage.partition.high_watermark = 3
    stage.pass_intervals()
    assert stage.seen() == [(0, True, -1), (3, False, 0)]
    assert stage.anchors[-1].value == stage.partition.value_at(3)
    assert list(points_of(stage.anchors[-1].points)) == [1, 2, 3]
    stage.pass_intervals(3)
    assert len(stage.anchors) == 2, "nothing new, no line"
    stage.partition.high_watermark = 5
    stage.pass_intervals()
    assert stage.seen()[2:] == [(5, False, 3)]
    assert stage.anchors[-1].value == stage.partition.value_at(5)
    assert stage.asked == 1


def test_the_next_process_and_the_next_leader_go_on() -> None:
    stage = Stage()
    stage.pass_intervals()
    stage.append(2)
    stage.restart()
    stage.pass_intervals()
    stage.append(2)
    stage.partition.leader_epoch += 1
    stage.pass_intervals()
    assert stage.seen() == [(0, True, -1), (3, False, 0), (5, False, 3), (7, False, 5)]
    assert stage.anchors[-1].value == stage.partition.value_at(7)


def test_a_chain_waits_for_the_last_anchor_rather_than_begin_again() -> None:
    stage = Stage()
    stage.pass_intervals()
    stage.error = ErrorCode.LEADER_NOT_AVAILABLE
    stage.append(2)
    stage.restart()
    stage.pass_intervals(3)
    assert len(stage.anchors) == 2
    stage.error = ErrorCode.NONE
    stage.pass_intervals()
    assert stage.seen()[2:] == [(5, False, 3)]


def test_a_new_leader_waits_until_it_knows_what_is_committed() -> None:
    stage = Stage()
    stage.pass_intervals()
    stage.partition.leader_epoch += 1
    stage.partition.high_watermark = 1
    stage.pass_intervals(2)
    assert len(stage.anchors) == 2
    stage.append(1)
    stage.pass_intervals()
    assert stage.seen()[2:] == [(4, False, 3)]


def test_a_chain_begins_again_where_the_log_does_not_reach_its_anchor() -> None:
    stage = Stage()
    stage.pass_intervals()
    stage.append(7)
    stage.partition.log_start_offset = 6
    stage.restart()
    stage.pass_intervals()
    assert stage.seen()[2:] == [(6, True, 3), (10, False, 6)]
    assert stage.anchors[-1].value == stage.partition.value_at(10, begin=6)
    # An election of a replica that was not in sync.
    del stage.partition.batches[8:]
    stage.partition.high_watermark = 8
    stage.partition.leader_epoch += 1
    stage.pass_intervals()
    assert stage.seen()[4:] == [(8, True, 10)]


def test_a_lost_line_is_no_gap_and_a_lost_beginning_is_tried_again() -> None:
    stage = Stage()
    stage.loses = True
    stage.pass_intervals(2)
    stage.loses = False
    stage.pass_intervals()
    assert stage.seen() == [(0, True, -1), (3, False, 0)]
    stage.loses = True
    stage.append(2)
    stage.pass_intervals()
    stage.loses = False
    stage.append(2)
    stage.pass_intervals()
    assert stage.seen()[2:] == [(7, False, 3)]
    assert stage.anchors[-1].value == stage.partition.value_at(7)


def test_an_idle_partition_is_anchored_again_before_its_line_is_too_old() -> None:
    stage = Stage()
    stage.pass_intervals()
    stage.clock.run(REPEAT_S + INTERVAL_S)
    assert stage.seen() == [(0, True, -1), (3, False, 0), (3, False, 3)]


def test_what_cannot_be_read_is_left_until_it_can() -> None:
    stage = Stage()
    stage.pass_intervals()
    stage.append(2)
    stage.partition.failure = DiskFailed("broken")
    stage.pass_intervals(2)
    stage.partition.failure = None
    stage.pass_intervals()
    assert stage.seen()[2:] == [(5, False, 3)]


def test_nothing_is_done_for_topics_without_the_setting() -> None:
    stage = Stage()
    stage.partition.config.audit_chain = False
    stage.pass_intervals(2)
    stage.partition.config.audit_chain = True
    stage.partition.config.compact = True
    stage.pass_intervals(2)
    stage.partition.config.compact = False
    stage.partition.is_leader = False
    stage.pass_intervals(2)
    assert (stage.asked, stage.anchors) == (0, [])
    stage.partition.is_leader = True
    stage.keeper.close()
    stage.pass_intervals(2)
    assert stage.asked == 0
