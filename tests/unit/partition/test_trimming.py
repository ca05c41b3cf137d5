"""Records are deleted at the start of a partition: out of sight at once, and their files after them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, batch_of
from tests.unit.partition.test_partition import World

from strandline.errors import Closed, DiskFailed, ErrorCode, OffsetOutOfRange, StrandlineError
from strandline.partition.epochs import replica_divergence
from strandline.partition.leading import make_leader
from strandline.partition.trimming import delete_records

SMALL = {"segment_bytes": 300}


def a_world(path: Path, count: int = 40, **config: object) -> World:
    world = World(path, **{**SMALL, **config})
    for _ in range(count):
        world.partition.append(memoryview(batch_of([b"value"])), NOON_MS)
    world.runtime.settle()
    assert world.partition.high_watermark == count
    assert len(world.partition.log.segments) > 5
    return world


def logs(world: World) -> list[str]:
    return sorted(path.name for path in world.partition.log.directory.iterdir() if ".log" in path.name)


@pytest.mark.parametrize(("offset", "start"), [(-1, 40), (40, 40), (17, 17), (1, 1), (0, 0)])
def test_records_below_an_offset_are_gone(tmp_path: Path, offset: int, start: int) -> None:
    world = a_world(tmp_path)
    assert delete_records(world.partition, offset) == start
    assert world.partition.log_start_offset == start
    if start:
        with pytest.raises(OffsetOutOfRange):
            world.partition.read(start - 1, size_bytes_max=1, committed_only=False, at_least_one=True, may_block=True)
    world.runtime.settle()
    assert logs(world) == [f"{base:020d}.log" for base in world.partition.log.base_offsets], "and so are their files"


def test_what_is_gone_already_is_no_error_and_stays_gone(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    assert delete_records(world.partition, 20) == 20
    assert delete_records(world.partition, 5) == 20


@pytest.mark.parametrize("offset", [41, -2, 2**62])
def test_offsets_that_are_not_there(tmp_path: Path, offset: int) -> None:
    world = a_world(tmp_path)
    with pytest.raises(OffsetOutOfRange):
        delete_records(world.partition, offset)
    assert world.partition.log_start_offset == 0


def test_what_is_not_committed_cannot_be_deleted(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    world.partition.append(memoryview(batch_of([b"not flushed yet"])), NOON_MS)
    with pytest.raises(OffsetOutOfRange):
        delete_records(world.partition, 41)
    assert delete_records(world.partition, -1) == 40


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        (("compact",), ErrorCode.POLICY_VIOLATION),
        ((), ErrorCode.POLICY_VIOLATION),
        (("delete",), None),
        (("compact", "delete"), None),
    ],
)
def test_the_cleanup_policy_decides(tmp_path: Path, policy: tuple[str, ...], code: ErrorCode | None) -> None:
    world = a_world(tmp_path)
    world.partition.configure(world.partition.config.__class__(cleanup_policy=policy, **SMALL), is_only_copy=True)
    if code is None:
        assert delete_records(world.partition, 5) == 5
        return
    with pytest.raises(StrandlineError) as refusal:
        delete_records(world.partition, 5)
    assert refusal.value.code == code


def test_a_log_that_failed_deletes_nothing(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    world.partition.log.fail(DiskFailed("the platter is gone"))
    with pytest.raises(DiskFailed):
        delete_records(world.partition, 5)


def test_a_log_that_was_deleted_deletes_nothing(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    world.partition.log.delete(world.partition.log.directory.with_name("orders-0.0123-delete"))
    with pytest.raises(Closed):
        delete_records(world.partition, 40)


def test_a_reader_keeps_what_it_holds_and_the_file_goes_when_it_lets_go(tmp_path: Path) -> None:
    world = a_world(tmp_path)
    piece = world.partition.read(0, size_bytes_max=100, committed_only=False, at_least_one=True, may_block=True)
    assert piece is not None
    before = piece.read()
    delete_records(world.partition, 40)
    world.runtime.settle()
    assert "00000000000000000000.log.deleted" in logs(world)
    assert piece.read() == before
    piece.release()
    world.runtime.settle()
    assert len(logs(world)) == 1


@pytest.mark.parametrize(
    ("last_epoch", "start_offset", "told"),
    [
        (4, 10, (4, 40)),  # Of epoch 4 nothing is left here.
        (4, 40, None),  # It holds nothing that could be wrong.
        (5, 10, None),  # What is left of epoch 5 says that it went on from there.
    ],
)
def test_a_replica_whose_records_cannot_be_compared_any_more_diverges(
    tmp_path: Path, last_epoch: int, start_offset: int, told: tuple[int, int] | None
) -> None:
    world = a_world(tmp_path)
    make_leader(
        world.partition,
        1,
        leader_epoch=5,
        partition_epoch=9,
        replicas=(1,),
        isr=(1,),
        lag_max_s=1,
        is_eligible=lambda *_: True,
    )
    world.partition.append(memoryview(batch_of([b"value"])), NOON_MS)
    world.runtime.settle()
    delete_records(world.partition, 40)
    assert world.partition.log.leader_epochs.epochs == [5]
    assert replica_divergence(world.partition, last_epoch, 40, start_offset) == told
