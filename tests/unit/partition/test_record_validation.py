"""A validation beside the checks of a batch: when it decides at once, when later, and what waits for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.log.manual_runtime import ManualRuntime
from tests.unit.partition.test_reencoding import Opened, a_batch

from strandline.codec.columns._check import check_records
from strandline.codec.columns.schema_codes import FAULTS_MAX
from strandline.codec.record_batch import check_batch
from strandline.config.topic_config import TopicConfig
from strandline.errors import COMES_AGAIN, ErrorCode, InvalidBatch, InvalidRecords, ValidationBehind
from strandline.partition.record_validation import RecordFault
from strandline.partition.reencoding import OpensLater, Reencoder, opened_now

CONFIG = TopicConfig(value_schema_validation=True)


class Validation:
    """It takes all records but those that a test names, a few in a call."""

    def __init__(self, *faults: RecordFault, rows_per_call: int = 1_000_000) -> None:
        self.faults = faults
        self.rows_per_call = rows_per_call
        self.waiting: list[Callable[[bool], object]] = []
        self.calls: list[int] = []

    def check(
        self,
        payload: Any,
        position: int,
        end: int,
        row: int,
        row_end: int,
        base_timestamp: int,
        faults: list[RecordFault],
    ) -> tuple[int, int]:
        self.calls.append(row)
        row_end = min(row_end, row + self.rows_per_call)
        position = check_records(payload, position, end, row, row_end, base_timestamp, None)
        faults += [each for each in self.faults if row <= each.row < row_end]
        return position, row_end

    def catch_up(self, on_caught_up: Callable[[bool], object]) -> None:
        self.waiting.append(on_caught_up)


def open_now(batch: bytearray, validation: Validation) -> bytes:
    return bytes(opened_now(memoryview(batch), check_batch(batch), CONFIG, validation))


WRONG = RecordFault(1, "it is wrong", False)
UNKNOWN = RecordFault(1, "it is not known", True)


@pytest.mark.parametrize("codec", ["uncompressed", "lz4"])
def test_what_can_be_decided_is_decided_at_once(codec: str) -> None:
    batch = a_batch(codec, b"a", b"b", b"c")
    assert open_now(batch, Validation()) == bytes(batch)
    with pytest.raises(InvalidRecords) as refusal:
        open_now(batch, Validation(WRONG, RecordFault(1, "doubly", False), RecordFault(2, "too", False)))
    assert refusal.value.record_errors == ((1, "it is wrong; doubly"), (2, "too"))
    with pytest.raises(OpensLater):
        open_now(batch, Validation(WRONG, UNKNOWN))
    with pytest.raises(OpensLater):
        open_now(batch, Validation(WRONG, rows_per_call=2))
    many = [RecordFault(0, "wrong", False)] * FAULTS_MAX
    with pytest.raises(InvalidRecords):
        open_now(batch, Validation(*many, rows_per_call=2))


def test_compressed_batches_are_opened_whatever_else_is_set() -> None:
    config = TopicConfig(value_schema_validation=True, validate_records="off")
    validation = Validation(WRONG)
    batch = a_batch("zstd", b"a", b"b")
    with pytest.raises(InvalidRecords):
        opened_now(memoryview(batch), check_batch(batch), config, validation)


def test_bytes_behind_the_records_are_refused() -> None:
    batch = a_batch("uncompressed", b"a")
    header = list(check_batch(batch))
    with pytest.raises(InvalidBatch, match="5 bytes follow"):
        opened_now(bytearray(bytes(batch) + b"extra"), tuple(header), CONFIG, Validation())  # type: ignore[arg-type]


class Ground:
    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.reencoder = Reencoder(self.runtime)

    def open(self, validation: Validation | None, *values: bytes) -> Opened:
        opened = Opened()
        config = CONFIG if validation is not None else TopicConfig(compression_type="gzip")
        self.reencoder.open(a_batch("uncompressed", *values), config, opened, validation)
        return opened


@pytest.mark.parametrize("is_current", [False, True])
def test_an_unknown_schema_is_final_only_if_all_are_known(is_current: bool) -> None:
    ground, validation = Ground(), Validation(UNKNOWN)
    opened = ground.open(validation, b"a", b"b")
    ground.runtime.settle()
    assert (opened.times, validation.calls) == (0, []), "nothing is judged before it has caught up"
    validation.waiting[0](is_current)
    ground.runtime.settle()
    assert isinstance(opened.error, InvalidRecords if is_current else ValidationBehind)
    assert (ground.reencoder.is_idle, ground.reencoder.held_bytes) == (True, 0)


def test_a_fault_that_nothing_changes_is_final() -> None:
    ground, validation = Ground(), Validation(WRONG)
    opened = ground.open(validation, b"a", b"b")
    validation.waiting[0](False)
    ground.runtime.settle()
    assert isinstance(opened.error, InvalidRecords)


def test_producers_send_again_what_could_not_be_judged() -> None:
    assert ValidationBehind.code in COMES_AGAIN
    assert InvalidRecords.code == ErrorCode.INVALID_RECORD


def test_others_do_not_wait_for_schemas() -> None:
    ground, validation = Ground(), Validation()
    first, other, second = ground.open(validation, b"a"), ground.open(None, b"b"), ground.open(validation, b"c")
    ground.runtime.settle()
    assert (first.times, other.times, second.times) == (0, 1, 0)
    assert not ground.reencoder.is_idle
    for done in validation.waiting:
        done(True)
    ground.runtime.settle()
    assert (first.times, second.times) == (1, 1)


def test_a_large_batch_is_validated_in_turns() -> None:
    ground, validation = Ground(), Validation(RecordFault(9, "late", False), rows_per_call=4)
    opened = ground.open(validation, *[b"v"] * 10)
    validation.waiting[0](True)
    ground.runtime.settle()
    assert validation.calls == [0, 4, 8]
    assert isinstance(opened.error, InvalidRecords)
    assert opened.error.record_errors == ((9, "late"),)
