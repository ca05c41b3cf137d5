"""The chain of a partition, and what a comparison with its anchors says: in memory, byte by byte."""

from __future__ import annotations

import json
from itertools import pairwise
from uuid import UUID

import pytest
from crc32c import crc32c

from strandline.codec.columns import Record, encode_batch
from strandline.codec.record_batch import CRC_POSITION, CRC_START, HEADER, LEADER_FIELDS
from strandline.security.audit.audit_event import CountedEvent, audit_line
from strandline.security.audit.chain import (
    POINTS_MAX,
    Anchor,
    ChainedBatch,
    ChainPoints,
    anchor_event,
    anchor_of,
    chain_start,
    extended,
    points_of,
)
from strandline.security.audit.verification import BatchUnreadable, ChainVerdict, verify_chain

TOPIC_ID = UUID(int=77)
COUNT = 20


def batch(offset: int, value: bytes, records: int = 1) -> bytearray:
    made = bytearray(encode_batch([Record(timestamp_ms=5, key=None, value=value) for _ in range(records)]))
    LEADER_FIELDS.pack_into(made, 0, offset, HEADER.unpack_from(made)[1], 3)
    return made


class Log:
    """Batches of one record each, and their anchors at some offsets."""

    def __init__(self, *anchored: int, count: int = COUNT) -> None:
        self.batches = [batch(offset, b"%d" % offset) for offset in range(count)]
        self.start = 0
        self.end = count
        self.anchors: list[Anchor] = [Anchor(TOPIC_ID, 0, 0, chain_start(TOPIC_ID, 0), begins=True)]
        for offset in anchored:
            self.anchor(offset)

    def anchor(self, offset: int) -> None:
        last, points = self.anchors[-1], ChainPoints()
        value = last.value
        for added in extended(value, b"".join(self.batches[last.offset : offset]), offset):
            value = added.value
            points.add(*added)
        self.anchors.append(Anchor(TOPIC_ID, 0, offset, value, after=last.offset, points=points.taken()))

    def read(self, offset: int) -> bytes:
        # Two and a half, as a broker that cuts at a number of bytes.
        return b"".join((*self.batches[offset : offset + 2], *(each[:-20] for each in self.batches[offset + 2 :][:1])))

    def verdict(self) -> ChainVerdict:
        return verify_chain(self.anchors, self.start, self.end, self.read)


def change(made: bytearray, position: int) -> None:
    """Change a byte, and repair the CRC so that no check of the log notices."""
    made[position] ^= 1
    made[CRC_POSITION : CRC_POSITION + 4] = crc32c(memoryview(made)[CRC_START:]).to_bytes(4, "big")


def found(log: Log) -> list[tuple[str, int, int]]:
    return [each[:3] for each in log.verdict().problems]


def test_what_is_unchanged_is_proven_up_to_the_last_anchor() -> None:
    verdict = Log(5, 12, 12, 18).verdict()
    assert (verdict.verified, verdict.unanchored, verdict.problems, verdict.notes) == ([(0, 18)], 2, [], [])


@pytest.mark.parametrize("position", [4, 12, 22, 35, 50, -1])
@pytest.mark.parametrize("changed", [0, 4, 5, 11, 17])
def test_any_byte_of_any_batch_counts(changed: int, position: int) -> None:
    """Also those that no CRC covers: the base offset and the leader epoch."""
    log = Log(5, 12, 18)
    if position in (4, 12):
        log.batches[changed][position] ^= 1
    else:
        change(log.batches[changed], position)
    kinds = found(log)
    if position != 4:
        assert kinds == [("changed", changed, changed + 1)]
        proven = log.verdict().verified
        assert not any(first <= changed < end for first, end in proven)
        assert changed >= 12 or proven[-1][1] == 18, "what was anchored later is proven"
    else:
        assert kinds[0][0] == "changed"
        assert kinds[0][1] <= changed < kinds[0][2]


@pytest.mark.parametrize("changed", [0, 1, 50, 99])
def test_a_change_between_the_points_of_a_line_is_found(changed: int) -> None:
    log = Log(100, count=100)
    assert len(points_of(log.anchors[1].points)) < 100
    change(log.batches[changed], -1)
    ((kind, first, end),) = found(log)
    assert kind == "changed"
    assert first <= changed < end <= first + 8


def test_batches_in_another_order() -> None:
    log = Log(20)
    log.batches[3], log.batches[4] = log.batches[4], log.batches[3]
    assert found(log)[0][:2] == ("changed", 3)


def test_a_batch_that_cannot_be_read() -> None:
    log = Log(5, 12)

    def read(offset: int) -> bytes:
        if offset == 6:
            raise BatchUnreadable("a damaged batch")
        return bytes(log.batches[offset])

    verdict = verify_chain(log.anchors, log.start, log.end, read)
    assert [each[:3] for each in verdict.problems] == [("unreadable", 6, 12)]


def test_a_log_whose_beginning_was_deleted_is_proven_from_the_first_whole_range_on() -> None:
    log = Log(5, 12, 18)
    log.start = 7
    verdict = log.verdict()
    assert verdict.verified == [(12, 18)]
    assert verdict.problems == []
    assert verdict.notes == ["offsets 7 to 11 cannot be verified: batches before them are deleted"]
    log.start = 12
    assert log.verdict().notes == []


def test_a_log_that_was_cut_off() -> None:
    log = Log(5, 12, 18)
    log.end = 15
    assert found(log) == [("missing", 15, 18)]
    assert log.verdict().verified == [(0, 12)]


def test_anchors_that_are_gone_or_contradict_each_other() -> None:
    log = Log(5, 12, 18)
    del log.anchors[2]
    assert found(log) == [("anchors", 12, 13)]
    assert log.verdict().verified == [(0, 18)], "a later anchor proves what the lost one did"

    log = Log(5, 12, 18)
    log.anchors.insert(2, log.anchors[2]._replace(value=bytes(32)))
    assert ("anchors", 12, 13) in found(log)

    log = Log(5)
    log.anchors[0] = log.anchors[0]._replace(value=bytes(32))
    assert ("anchors", 0, 1) in found(log), "a chain begins with the name of its partition"

    log = Log(5, 12, 18)
    del log.anchors[:2]
    verdict = log.verdict()
    assert (verdict.verified, verdict.problems) == ([(12, 18)], [])
    assert verdict.notes == ["offsets 0 to 11 are before the first anchor"]


def test_a_line_of_a_deposed_leader_that_comes_late() -> None:
    log = Log(5, 12)
    late = Log(9).anchors[1]._replace(after=5)
    log.anchors.append(late)
    assert log.verdict().problems == []


def test_a_chain_that_began_again() -> None:
    log = Log(5)
    log.anchors.append(Anchor(TOPIC_ID, 0, 8, chain_start(TOPIC_ID, 0), begins=True, after=5))
    log.anchor(15)
    verdict = log.verdict()
    assert verdict.verified == [(0, 5), (8, 15)]
    assert verdict.problems == []
    assert verdict.notes == ["offsets 5 to 7 were deleted before they were anchored"]

    log = Log(5, 12)
    log.anchors.append(Anchor(TOPIC_ID, 0, 8, chain_start(TOPIC_ID, 0), begins=True, after=12))
    log.anchor(15)
    assert found(log) == [("missing", 8, 12)], "an unclean election took records back"
    assert log.verdict().verified == [(0, 5), (8, 15)]


def test_no_anchor() -> None:
    verdict = verify_chain([], 0, 7, Log().read)
    assert (verdict.anchors, verdict.verified, verdict.problems) == (0, [], [])


def test_only_whole_batches_below_the_limit_are_added() -> None:
    start = chain_start(TOPIC_ID, 1)
    data = bytes(batch(0, b"a", 3) + batch(3, b"b") + batch(4, b"c", 2))

    def ends(found: list[ChainedBatch]) -> list[int]:
        return [each.next_offset for each in found]

    assert ends(extended(start, data, 6)) == [3, 4, 6]
    assert ends(extended(start, data, 5)) == [3, 4]
    assert ends(extended(start, data[:-1], 6)) == [3, 4]
    assert ends(extended(start, data[:60], 6)) == []
    assert ends(extended(start, b"\0" * 200, 6)) == [1] * 3
    assert extended(start, data, 6)[-1] != extended(chain_start(TOPIC_ID, 2), data, 6)[-1]


def test_points_are_spread_over_many_batches() -> None:
    points = ChainPoints()
    for offset in range(1, 10_001):
        points.add(offset, offset.to_bytes(32, "big"))
    offsets = list(points_of(points.taken()))
    assert POINTS_MAX // 2 <= len(offsets) <= POINTS_MAX
    assert len({after - before for before, after in pairwise(offsets)}) == 1
    assert points.taken() == ""


def test_an_anchor_is_a_line_and_comes_back() -> None:
    anchor = Anchor(TOPIC_ID, 2, 41, bytes(range(32)), after=7, points="12:ab,41:cd")
    for each in (anchor, anchor._replace(begins=True, after=-1, points="")):
        counted = CountedEvent(anchor_event(each, "orders", 9), 1, 5, 5)
        line = json.loads(audit_line(counted, node_id=1, line_id="1-5-0"))
        assert (line["type"], line["resource"], line["details"]["leader_epoch"]) == ("anchor", "orders", 9)
        assert anchor_of(line) == each
    for broken in ({}, {"topic_id": "x"}, {"topic_id": str(TOPIC_ID), "partition": 0, "offset": 1, "hash": 5}):
        assert anchor_of({"type": "anchor", "details": broken}) is None
    assert anchor_of({"type": "change", "details": {}}) is None
    assert anchor_of({"type": "anchor", "details": 3}) is None
    assert anchor_of(["anchor"]) is None
