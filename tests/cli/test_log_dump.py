"""`strandline log dump` on files made for the purpose, sound and damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from crc32c import crc32c
from tests.cli.conftest import CommandLine

from strandline.codec.columns import Record, encode_batch
from strandline.codec.internal_records import (
    encode_coordinator_key,
    encode_coordinator_value,
    encode_metadata_record,
)
from strandline.codec.message_codec import encode
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.codec.messages.topic_record import TopicRecord
from strandline.codec.messages.transaction_log_key import TransactionLogKey
from strandline.codec.messages.transaction_log_value import TransactionLogValue
from strandline.codec.transaction_marker import encode_marker
from strandline.log.segment.digest import Digest

BASE = "00000000000000000100"
TIME_MS = 1_794_717_420_597


def batch(base_offset: int, *values: bytes) -> bytes:
    records = [Record(timestamp_ms=TIME_MS + n, key=b"k%d" % n, value=value) for n, value in enumerate(values)]
    return bytes(encode_batch(records, base_offset=base_offset, leader_epoch=4))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / f"{BASE}.log").write_bytes(batch(100, b"a", b"\xff") + batch(102, b"c"))
    (directory / f"{BASE}.index").write_bytes(struct.pack(">IIII", 2, 80, 0, 0))
    (directory / f"{BASE}.timeindex").write_bytes(struct.pack(">qIqI", TIME_MS, 1, 0, 0))
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n4 100\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: WQosouJUTqS8As_fJUKAGA")
    return directory


def test_a_partition_directory(lonely_cli: CommandLine, partition: Path) -> None:
    found = lonely_cli.ok("log", "dump", str(partition), "--json").objects
    kinds = [(Path(item["file"]).name, item["kind"]) for item in found]
    assert kinds == [
        (f"{BASE}.index", "entry"),
        (f"{BASE}.index", "preallocated"),
        (f"{BASE}.log", "batch"),
        (f"{BASE}.log", "record"),
        (f"{BASE}.log", "record"),
        (f"{BASE}.log", "batch"),
        (f"{BASE}.log", "record"),
        (f"{BASE}.timeindex", "entry"),
        (f"{BASE}.timeindex", "preallocated"),
        ("leader-epoch-checkpoint", "entry"),
        ("partition.metadata", "property"),
        ("partition.metadata", "property"),
    ]
    assert (found[0]["offset"], found[0]["position"]) == (102, 80)
    assert (found[2]["base_offset"], found[2]["last_offset"], found[2]["leader_epoch"]) == (100, 101, 4)
    assert (found[3]["offset"], found[3]["timestamp_ms"], found[3]["key"], found[3]["value"]) == (
        100,
        TIME_MS,
        "k0",
        "a",
    )
    assert found[4]["value_base64"] == "/w=="
    assert (found[7]["timestamp_ms"], found[7]["offset"]) == (TIME_MS, 101)
    assert (found[9]["leader_epoch"], found[9]["start_offset"]) == (4, 100)
    assert found[11]["topic_id"] == "WQosouJUTqS8As_fJUKAGA"


def test_people_read_times_and_text(lonely_cli: CommandLine, partition: Path) -> None:
    lines = lonely_cli.ok("log", "dump", str(partition / f"{BASE}.log")).lines
    assert lines[2].strip() == 'record  offset 100  timestamp 2026-11-15T04:37:00.597Z  key "k0"  value "a"'


def test_selections(lonely_cli: CommandLine, partition: Path) -> None:
    log = str(partition / f"{BASE}.log")
    dump = ("log", "dump", log, "--json")
    assert [item["kind"] for item in lonely_cli.ok(*dump, "--batches").objects] == ["batch", "batch"]
    assert [item["offset"] for item in _records(lonely_cli, *dump, "--from", "101")] == [101, 102]
    assert [item["offset"] for item in _records(lonely_cli, *dump, "--count", "2")] == [100, 101]
    assert lonely_cli.ok(*dump, "--from", "103").objects == []


def _records(cli: CommandLine, *arguments: str) -> list[dict[str, int]]:
    return [item for item in cli.ok(*arguments).objects if item["kind"] == "record"]


def test_damage_is_named_and_the_rest_is_read(lonely_cli: CommandLine, partition: Path) -> None:
    log = partition / f"{BASE}.log"
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)
    ended = lonely_cli.run("log", "dump", str(log), "--json")
    assert ended.status == 1
    assert [item["kind"] for item in ended.objects] == ["batch", "damage", "batch", "record"]
    assert ended.objects[1] == {"file": str(log), "kind": "damage", "position": 0, "reason": "wrong CRC"}
    assert "damage in 1 place" in ended.stderr


@pytest.mark.parametrize(
    ("tail", "kind", "status"),
    [
        (batch(103, b"d")[:-1], "incomplete", 0),
        (b"\x00" * 10 + b"\x01", "incomplete", 0),
        (b"\x00" * 500, "preallocated", 0),
        (b"\xff" * 80, "damage", 1),
    ],
)
def test_the_end_of_a_segment(lonely_cli: CommandLine, partition: Path, tail: bytes, kind: str, status: int) -> None:
    log = partition / f"{BASE}.log"
    log.write_bytes(log.read_bytes() + tail)
    ended = lonely_cli.run("log", "dump", str(log), "--batches", "--json")
    assert [item["kind"] for item in ended.objects] == ["batch", "batch", kind]
    assert ended.status == status


def test_cluster_metadata_is_decoded(lonely_cli: CommandLine, tmp_path: Path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    records = [Record(value=encode_metadata_record(TopicRecord(name="orders"))), Record(value=b"\x01\xff\x7f\x00")]
    (directory / f"{BASE}.log").write_bytes(bytes(encode_batch(records)))
    ended = lonely_cli.run("log", "dump", str(directory), "--json")
    assert [item["kind"] for item in ended.objects] == ["batch", "record", "record", "damage"]
    assert ended.objects[1]["type"] == "TopicRecord"
    assert ended.objects[1]["value"] == {"name": "orders", "topic_id": "AAAAAAAAAAAAAAAAAAAAAA"}
    assert ended.status == 1


def test_consumer_offsets_are_decoded(lonely_cli: CommandLine, tmp_path: Path) -> None:
    directory = tmp_path / "__consumer_offsets-7"
    directory.mkdir()
    key = encode_coordinator_key(OffsetCommitKey(group="g", topic="orders", partition=2))
    records = [Record(key=key, value=encode_coordinator_value(OffsetCommitValue(offset=42))), Record(key=key)]
    (directory / f"{BASE}.log").write_bytes(bytes(encode_batch(records)))
    _, committed, tombstone = lonely_cli.ok("log", "dump", str(directory), "--json").objects
    assert (committed["type"], committed["key"]) == ("OffsetCommit", {"group": "g", "topic": "orders", "partition": 2})
    assert committed["value"]["offset"] == 42
    assert tombstone["value"] is None


def test_producer_snapshots(lonely_cli: CommandLine, tmp_path: Path) -> None:
    entries = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 1, 9, 41, 3, TIME_MS, -1, -1)
    file = tmp_path / f"{BASE}.snapshot"
    file.write_bytes(struct.pack(">hI", 1, crc32c(entries)) + entries)
    snapshot, producer = lonely_cli.ok("log", "dump", str(file), "--json").objects
    assert (snapshot["offset"], snapshot["producers"]) == (100, 1)
    assert (producer["producer_id"], producer["epoch"], producer["last_sequence"]) == (7, 1, 9)
    file.write_bytes(struct.pack(">hI", 1, 1) + entries)
    assert lonely_cli.run("log", "dump", str(file)).status == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{BASE}.index", struct.pack(">IIII", 5, 80, 4, 90)),
        (f"{BASE}.index", struct.pack(">II", 5, 80) + b"xyz"),
        (f"{BASE}.timeindex", struct.pack(">qIqI", 9, 1, 8, 2)),
        (f"{BASE}.snapshot", b"\x00\x01"),
        (f"{BASE}.snapshot", b"\x00\x01" + b"\xff" * 20),
        ("noffset.index", struct.pack(">II", 5, 80)),
        ("leader-epoch-checkpoint", b"0\n2\n4 100\n"),
        ("recovery-point-offset-checkpoint", b"0\n1\norders 0\n"),
        ("recovery-point-offset-checkpoint", b"0\n1\norders 0 x\n"),
        ("quorum-state", b"{"),
    ],
)
def test_other_damage(lonely_cli: CommandLine, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    ended = lonely_cli.run("log", "dump", str(tmp_path / name))
    assert ended.status == 1
    assert "damage  " in ended.stdout.decode()


def test_a_data_directory_is_summed_up(lonely_cli: CommandLine, partition: Path) -> None:
    data = partition.parent
    (data / "meta.properties").write_text("#\nnode.id=1\nversion=1\n")
    (data / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 103\n")
    kinds = [(item["kind"], item.get("offset")) for item in lonely_cli.ok("log", "dump", str(data), "--json").objects]
    assert kinds == [("property", None), ("property", None), ("entry", 103), ("partition", None)]


def test_what_is_not_there_is_3(lonely_cli: CommandLine, tmp_path: Path) -> None:
    assert lonely_cli.run("log", "dump", str(tmp_path / "nothing")).status == 3
    (tmp_path / "empty").mkdir()
    assert lonely_cli.run("log", "dump", str(tmp_path / "empty")).status == 3


def test_markers_and_what_was_aborted(lonely_cli: CommandLine, tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    marker = encode_marker(7, 2, is_commit=False, coordinator_epoch=9, timestamp_ms=TIME_MS)
    struct.pack_into(">q", marker, 0, 100)
    (directory / f"{BASE}.log").write_bytes(marker)
    (directory / f"{BASE}.txnindex").write_bytes(struct.pack(">hqqqq", 0, 7, 90, 100, 101))
    found = lonely_cli.ok("log", "dump", str(directory), "--json").objects
    assert [item["kind"] for item in found] == ["batch", "control", "aborted"]
    assert found[0]["flags"] == ["transactional", "control"]
    assert (found[1]["type"], found[1]["coordinator_epoch"]) == ("abort", 9)
    wanted = {"producer_id": 7, "first_offset": 90, "last_offset": 100, "last_stable_offset": 101}
    assert wanted.items() <= found[2].items()


@pytest.mark.parametrize(
    "entries", [(1, 7, 90, 100, 101), (0, 7, 90, 99, 101), (0, 7, 90, 100, 101) * 2, (0, 7, 101, 100, 101)]
)
def test_an_index_of_aborted_transactions_that_cannot_be_one(
    lonely_cli: CommandLine, tmp_path: Path, entries: tuple[int, ...]
) -> None:
    file = tmp_path / f"{BASE}.txnindex"
    file.write_bytes(struct.pack(">" + "hqqqq" * (len(entries) // 5), *entries))
    assert "damage in 1 place" in lonely_cli.run("log", "dump", str(file)).stderr


def test_the_state_of_transactions(lonely_cli: CommandLine, tmp_path: Path) -> None:
    directory = tmp_path / "__transaction_state-0"
    directory.mkdir()
    key = b"\0\0" + encode(TransactionLogKey(transactional_id="pay"), 0)
    value = b"\0\1" + encode(TransactionLogValue(producer_id=5, transaction_status=1, transaction_partitions=[]), 1)
    records = [Record(timestamp_ms=TIME_MS, key=key, value=value), Record(timestamp_ms=TIME_MS, key=key, value=None)]
    (directory / f"{BASE}.log").write_bytes(encode_batch(records, base_offset=100))
    _, full, gone = lonely_cli.ok("log", "dump", str(directory), "--json").objects
    assert full["key"]["transactional_id"] == "pay"
    assert full["value"]["producer_id"] == 5
    assert gone["value"] is None


def test_counts_and_digests(lonely_cli: CommandLine, tmp_path: Path) -> None:
    def items(name: str, content: bytes) -> list[dict[str, object]]:
        (tmp_path / name).write_bytes(content)
        found = lonely_cli.run("log", "dump", str(tmp_path / name), "--json").objects
        return [{key: value for key, value in item.items() if key != "file"} for item in found]

    body = struct.pack(">qIIIII", 5_000, 4_000, 60, 30, 70, 2) + struct.pack(">6I", 0, 2_000, 0, 40, 0, 15)
    counts = struct.pack(">hhI", 1, 1, crc32c(body)) + body
    assert items(f"{BASE}.counts.cleaned", counts) == [
        {"kind": "counts", "version": 1, "without_aborted": True, "log_size_bytes": 5_000, "end_offset": 170},
        {"kind": "entry", "position": 0, "offset": 100, "records_before": 0},
        {"kind": "entry", "position": 2_000, "offset": 140, "records_before": 15},
        {"kind": "entry", "position": 4_000, "offset": 160, "records_before": 30},
    ]
    (torn,) = items(f"{BASE}.counts", counts[:-1])
    assert torn["kind"] == "damage"
    digest = Digest()
    digest.add(batch(100, b"a"))
    written = digest.to_bytes()
    assert items(f"{BASE}.digest", written) == [
        {"kind": "digest", "version": 1, "blocks": 1, "log_size_bytes": digest.size_bytes},
        {"kind": "block", "position": 0, "crc": digest.checksums[0]},
    ]
    (torn,) = items(f"{BASE}.digest.deleted", written[:-1])
    assert torn["kind"] == "damage"
    (entry,) = items("scrub-checkpoint", b"0\n1\norders 0 1794800136534\n")
    assert entry == {"kind": "entry", "topic": "orders", "partition": 0, "scrubbed_ms": 1_794_800_136_534}
