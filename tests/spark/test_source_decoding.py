"""Record batches to Arrow, fed by hand: what no broker of ours sends yet, and what none should send."""

from __future__ import annotations

import random
import subprocess
import sys

import pyarrow as pa
import pytest
from crc32c import crc32c
from tests.spark.source_ground import RECORD_SCHEMA, WAIT_S, Seen, seen_in

from strandline.client import arrow_rows
from strandline.client.arrow_rows import FIELDS, AbortedTransactions, ArrowDecoder
from strandline.codec.columns import Compression, Record, encode_batch, records_of
from strandline.codec.record_batch import CRC_POSITION, CRC_START, HEADER_SIZE
from strandline.errors import CorruptBatch

SEED = random.randrange(2**32)
END = 2**62


def decoded(batches: bytes, aborted: tuple[tuple[int, int], ...] = (), *, start: int = 0, end: int = END) -> list[Seen]:
    decoder = ArrowDecoder(RECORD_SCHEMA, "orders", 0)
    found = decoder.decode(bytes(batches), aborted, start=start, end=end)
    return [seen for batch in found for seen in seen_in(batch, "orders")]


def expected(batches: bytes) -> list[Seen]:
    return [
        Seen(each.offset, each.timestamp_ms, 0, each.key, each.value, list(each.headers) or None)
        for each in records_of(batches)
    ]


def some_records(rng: random.Random, count: int, first_offset: int) -> list[Record]:
    """Offsets with gaps between them, as compaction leaves them."""
    records = []
    offset = first_offset
    for _ in range(count):
        records.append(
            Record(
                offset,
                1_700_000_000_000 + rng.randrange(-5000, 5000),
                rng.choice((None, b"", b"k%d" % rng.randrange(9))),
                rng.choice((None, b"", rng.randbytes(rng.randrange(400)))),
                rng.choice(((), (("a", None), ("é", b"")), (("x" * 200, b"y" * 200),))),
            )
        )
        offset += rng.choice((1, 1, 1, 5, 300))
    return records


def test_gaps_codecs_and_sizes_side_by_side() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    batches = b""
    offset = 0
    for number in range(60):
        records = some_records(rng, rng.choice((1, 2, 30, 500)), offset)
        batches += encode_batch(
            records,
            base_offset=offset,
            compression=rng.choice(list(Compression)),
            leader_epoch=number // 10,
            keep_offsets=True,
        )
        offset = records[-1].offset + rng.choice((1, 1, 1000))
    every = expected(batches)
    assert decoded(batches) == every
    for _ in range(20):
        start, end = sorted(rng.randrange(offset) for _ in range(2))
        assert decoded(batches, start=start, end=end) == [seen for seen in every if start <= seen.offset < end]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_batch_with_more_rows_than_there_is_room_for(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "ROWS_MAX", 100)
    monkeypatch.setattr(arrow_rows, "BATCHES_MAX", 4)
    records = some_records(random.Random(1), 1700, 0)
    batches = b""
    for at in (slice(0, 50), slice(50, 90), slice(90, 1300), slice(1300, 1301), slice(1301, 1700)):
        chosen = records[at]
        batches += encode_batch(chosen, base_offset=chosen[0].offset, compression=codec, keep_offsets=True)
    assert decoded(batches) == expected(batches)


def test_a_batch_that_is_cut_off_waits_for_the_next_answer() -> None:
    whole = encode_batch([Record(value=b"a")], base_offset=0)
    second = encode_batch([Record(value=b"b")], base_offset=1)
    for cut in (1, 11, 12, HEADER_SIZE - 1, HEADER_SIZE, len(second) - 1):
        assert [seen.value for seen in decoded(whole + second[:cut])] == [b"a"]


def test_every_flipped_bit_behind_the_crc_is_noticed() -> None:
    for codec in (Compression.NONE, Compression.LZ4):
        batch = bytearray(encode_batch([Record(key=b"key", value=b"value")] * 3, base_offset=0, compression=codec))
        for position in range(17, len(batch)):
            damaged = batch.copy()
            damaged[position] ^= 0x40
            with pytest.raises(CorruptBatch):
                decoded(damaged)


def test_batches_out_of_order_are_refused() -> None:
    first = encode_batch([Record(value=b"a")] * 3, base_offset=0)
    again = encode_batch([Record(value=b"b")] * 3, base_offset=2)
    with pytest.raises(CorruptBatch, match="out of order"):
        decoded(first + again)


def test_header_keys_that_are_no_text() -> None:
    batch = bytearray(encode_batch([Record(value=b"a", headers=(("xy", b"1"),))], base_offset=0))
    at = batch.index(b"xy")
    batch[at] = 0xFF
    decoder = ArrowDecoder(pa.schema([FIELDS["headers"]]), "orders", 0)
    with pytest.raises(CorruptBatch):
        list(decoder.decode(bytes(batch), start=0, end=END))
    batch[CRC_POSITION : CRC_POSITION + 4] = crc32c(batch[CRC_START:]).to_bytes(4, "big")
    (found,) = decoder.decode(bytes(batch), start=0, end=END)
    assert found.to_pylist() == [{"headers": [{"key": "\ufffdy", "value": b"1"}]}]


def test_times_beyond_microseconds() -> None:
    batch = encode_batch([Record(timestamp_ms=2**62, value=b"a")], base_offset=0)
    decoder = ArrowDecoder(pa.schema([FIELDS["timestamp"]]), "orders", 0)
    (found,) = decoder.decode(batch, start=0, end=END)
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [(2**63 - 1) // 1000 * 1000]


# Transactions


def data(producer_id: int, offset: int, *, transactional: bool = True) -> bytes:
    return encode_batch(
        [Record(value=b"%d" % producer_id)] * 2,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=transactional,
    )


def marker(producer_id: int, offset: int) -> bytes:
    return encode_batch(
        [Record(key=b"\0\0\0\0", value=b"\0\0\0\0\0\0")],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


LOG = (
    data(1, 0)  # aborted, and begun before what is read
    + data(2, 2)
    + marker(1, 4)
    + data(1, 5)  # the next one of the same producer is committed
    + marker(2, 7)
    + marker(1, 8)
    + data(1, 9, transactional=False)
    + data(1, 11)  # aborted, and its marker is not here yet
    + data(2, 13)
)


@pytest.mark.parametrize(
    ("aborted", "offsets"),
    [
        ((), [0, 1, 2, 3, 5, 6, 9, 10, 11, 12, 13, 14]),
        (((1, 0),), [2, 3, 5, 6, 9, 10, 11, 12, 13, 14]),
        (((1, 11), (1, 0)), [2, 3, 5, 6, 9, 10, 13, 14]),
        (((2, 2), (1, 11)), [0, 1, 5, 6, 9, 10, 13, 14]),
    ],
)
def test_aborted_transactions_end_with_their_markers(aborted: tuple[tuple[int, int], ...], offsets: list[int]) -> None:
    assert [seen.offset for seen in decoded(LOG, aborted)] == offsets
    assert [seen.offset for seen in decoded(LOG, aborted, start=6)] == [each for each in offsets if each >= 6]


def test_a_transaction_that_began_before_the_answer_is_left_out() -> None:
    second_half = data(7, 100) + marker(7, 102) + data(7, 103) + marker(7, 105)
    assert [seen.offset for seen in decoded(second_half, ((7, 40),))] == [103, 104]


def test_nothing_is_walked_batch_by_batch_without_need() -> None:
    assert AbortedTransactions(()).kept(ArrowDecoder(RECORD_SCHEMA, "t", 0)._batches[:6].reshape(1, 6) * 0) is None


def test_a_worker_does_not_load_pandas_for_us() -> None:
    """It takes half a second of every worker, and Arrow's own ways from NumPy load it unasked."""
    program = """
import sys
import pyarrow as pa
from strandline.codec.columns import Record, encode_batch
from strandline.client.arrow_rows import FIELDS, ArrowDecoder
import strandline.spark.source.stream, strandline.spark.source.batch
batch = encode_batch([Record(key=b"k"), Record(value=b"v", headers=(("h", b"1"),))], base_offset=0)
(found,) = ArrowDecoder(pa.schema(list(FIELDS.values())), "orders", 0).decode(batch, start=0, end=2)
assert found.num_rows == 2
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=WAIT_S, check=False).returncode == 0
