"""Columns to batches: what the project's one decoder reads back is what was in the rows."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from strandline.client.failures import TopicMissing
from strandline.client.partitioner import Partitioner, murmur2
from strandline.codec.columns import Compression, Record, decode_batch
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.open_batches import OpenBatches, row_sizes
from strandline.spark.sink.record_bytes import encode_header_column

# What Kafka's own Utils.murmur2 answers for these (its test has the same table).
KAFKA_SAYS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_keys_are_hashed_as_kafka_does() -> None:
    keys = pa.array([*KAFKA_SAYS, None, b""], pa.binary())
    hashes = murmur2(keys).astype(np.int32).tolist()
    assert hashes[: len(KAFKA_SAYS)] == list(KAFKA_SAYS.values())
    # The same rows in a slice of a larger column.
    assert murmur2(keys.slice(2, 3)).astype(np.int32).tolist() == list(KAFKA_SAYS.values())[2:5]


def rows(seed: int, count: int, *, longest: int) -> tuple[pa.Array, pa.Array, pa.Array]:
    source = random.Random(seed)

    def some(length_max: int) -> bytes | None:
        return None if source.random() < 0.1 else source.randbytes(source.randrange(length_max))

    def headers() -> list[dict[str, Any]] | None:
        if source.random() < 0.5:
            return None
        return [{"key": f"ключ-{n}", "value": some(200)} for n in range(source.randrange(3))]

    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return (
        pa.array([some(40) for _ in range(count)], pa.binary()),
        pa.array([some(longest) for _ in range(count)], pa.binary()),
        encode_header_column(pa.array([headers() for _ in range(count)], kind)),
    )


@pytest.mark.parametrize("longest", [100, 3_000, 60_000])
@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_what_goes_in_comes_out_in_the_order_of_the_rows(longest: int, compression: Compression) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    source = random.Random(seed)
    batches = OpenBatches(batch_bytes=50_000, record_bytes_max=1_000_000)
    partitioner = Partitioner("t", 5, 50_000, source)
    expected: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    sealed = []
    for turn in range(6):
        keys, values, headers = rows(seed + turn, source.randrange(1, 300), longest=longest)
        sizes = row_sizes(keys, values, headers)
        chosen = partitioner.partitions_of(keys, None, sizes)
        for partition, key, value in zip(chosen.tolist(), keys.to_pylist(), values.to_pylist(), strict=True):
            expected.setdefault(partition, []).append((key, value))
        sealed += batches.add("t", chosen, sizes, keys, values, headers, now_ms=1000 + turn)
    sealed += batches.take_all()
    assert batches.size_bytes == 0
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for batch in sealed:
        content = batch.seal(7, 3, 11, compression)
        columns = decode_batch(content)
        assert columns.header.producer_id == 7
        assert columns.header.base_sequence == 11
        records: list[Record] = list(columns.records())
        assert [record.offset for record in records] == list(range(batch.count))
        assert {record.timestamp_ms for record in records} == {batch.opened_ms}
        assert batch.count == 1 or len(content) <= 51_000
        found.setdefault(batch.place[1], []).extend((record.key, record.value) for record in records)
    assert found == expected


def put(batches: OpenBatches, partition: int, values: list[bytes | None], headers: Any = None, *, now_ms: int) -> Any:
    column = pa.array(values, pa.binary())
    chosen = np.full(len(values), partition, np.int32)
    return batches.add("t", chosen, row_sizes(None, column, headers), None, column, headers, now_ms)


def test_headers_and_nulls_survive() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    headers = encode_header_column(pa.array([[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None], kind))
    batches = OpenBatches(batch_bytes=1000, record_bytes_max=1000)
    put(batches, 0, [None, b""], headers, now_ms=5)
    (batch,) = batches.take_all()
    first, second = decode_batch(batch.seal(1, 0, 0, Compression.NONE)).records()
    assert (first.key, first.value, list(first.headers)) == (None, None, [("a", b"1"), ("a", None)])
    assert (second.key, second.value, list(second.headers)) == (None, b"", [])


@pytest.mark.parametrize("wrong", [None, {"key": None, "value": b"1"}])
def test_a_header_without_a_key_is_refused(wrong: dict[str, Any] | None) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    with pytest.raises(SinkRefused, match="a header's value may be null, its key may not"):
        encode_header_column(pa.array([[{"key": "a", "value": None}, wrong]], kind))


def test_rows_say_where_they_go_and_others_fill_one_partition_after_the_other() -> None:
    partitioner = Partitioner("t", 3, 1000, random.Random(1))
    wanted = pa.array([2, None, 0, None], pa.int32())
    keys = pa.array([b"a", b"abc", None, None], pa.binary())
    chosen = partitioner.partitions_of(keys, wanted, np.full(4, 400)).tolist()
    assert chosen[0] == 2
    assert chosen[1] == (KAFKA_SAYS[b"abc"] & 0x7FFFFFFF) % 3
    assert chosen[2] == 0
    keyless = partitioner.partitions_of(None, None, np.full(9, 400)).tolist()
    assert len(set(keyless)) == 3
    assert sum(here != there for here, there in pairwise(keyless)) == 3
    with pytest.raises(TopicMissing, match="partition 3, but topic t has partitions 0 to 2"):
        partitioner.partitions_of(None, pa.array([3], pa.int32()), np.full(1, 4))
    with pytest.raises(TopicMissing, match="partition -1"):
        partitioner.partitions_of(None, pa.array([-1], pa.int32()), np.full(1, 4))


def test_a_record_that_no_broker_takes_is_refused_and_a_large_one_travels_alone() -> None:
    batches = OpenBatches(batch_bytes=1000, record_bytes_max=5000)
    full = put(batches, 0, [b"a", b"b" * 3000, b"c"], now_ms=5)
    assert [batch.count for batch in [*full, *batches.take_all()]] == [1, 1, 1]
    with pytest.raises(SinkRefused, match=r"larger than kafka\.max\.request\.size"):
        put(batches, 0, [b"b" * 6000], now_ms=5)


def test_a_batch_does_not_stay_open_for_long() -> None:
    batches = OpenBatches(batch_bytes=1000, record_bytes_max=5000)
    put(batches, 0, [b"a"], now_ms=1000)
    put(batches, 1, [b"a"], now_ms=1090)
    assert [batch.place for batch in batches.take_old(1101)] == [("t", 0)]
    assert [batch.place for batch in batches.take_all()] == [("t", 1)]
