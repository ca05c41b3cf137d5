"""Files that Apache Kafka wrote, opened by our storage engine: every record is there, wherever Kafka was stopped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.interop.conversation import Ledger, Sent
from tests.interop.kafka_lives import TOPIC_SETTINGS, KafkaLives
from tests.unit.log.engine import append, batch_of

from strandline.codec.columns import decode_batch
from strandline.codec.record_batch import is_marker, parse_header
from strandline.config.topic_config import TopicConfig
from strandline.ids import TopicPartition
from strandline.log.disk import RealDisk
from strandline.log.log_directory import LogDirectory
from strandline.log.log_loader import open_log
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.aborted_transactions import aborted_transactions
from strandline.log.segment.open_files import OpenFiles
from strandline.log.segment.time_lookup import find_time
from strandline.partition.producers import Producers

NOON_MS = 1_700_000_000_000
CONFIG = TopicConfig().with_overrides(TOPIC_SETTINGS)


def data_records(log: PartitionLog) -> dict[int, Sent]:
    """What clients wrote; the markers of transactions stand between it."""
    return {
        record.offset: Sent(record.timestamp_ms, record.key, record.value, tuple(record.headers))
        for batch in log.batches()
        if not (columns := decode_batch(batch)).is_control
        for record in columns
    }


def check_logs(directory: LogDirectory, ledger: Ledger) -> None:
    assert {"orders-0", "orders-1", "payments-0"} <= {str(name) for name in directory.partition_directories()}
    for name, expected in ledger.records.items():
        producers = Producers()
        log = directory.open_log(TopicPartition(*name), CONFIG, now_ms=NOON_MS, observer=producers)
        found = data_records(log)
        assert found == expected
        for offset, record in list(found.items())[::17]:
            piece = log.read(offset, size_bytes_max=1)
            assert piece is not None
            header = parse_header(piece.read())
            piece.release()
            assert header.base_offset <= offset <= header.last_offset
            at = find_time(log.segments, record.timestamp_ms, start_offset=0, limit_offset=log.log_end_offset)
            assert at is not None
            assert at.offset <= offset
        log.close()


def test_after_a_kill(kafka_lives: KafkaLives, tmp_path: Path) -> None:
    shutil.copytree(kafka_lives.killed, tmp_path / "data")
    directory = LogDirectory(tmp_path / "data", disk=RealDisk(), open_files_max=100)
    assert not directory.was_clean
    check_logs(directory, kafka_lives.killed_ledger)
    directory.close(clean=False)


def test_after_a_clean_stop(kafka_lives: KafkaLives, tmp_path: Path) -> None:
    shutil.copytree(kafka_lives.clean, tmp_path / "data")
    directory = LogDirectory(tmp_path / "data", disk=RealDisk(), open_files_max=100)
    assert directory.was_clean
    for (topic, index), records in kafka_lives.clean_ledger.records.items():
        name = TopicPartition(topic, index)
        assert directory.recovery_points[name] > max(records)
        assert directory.high_watermarks[name] > max(records)
        assert directory.topic_id_of(name)
    check_logs(directory, kafka_lives.clean_ledger)
    directory.close(clean=False)


def test_a_kafka_directory_is_continued(kafka_lives: KafkaLives, tmp_path: Path) -> None:
    """Appends go on behind Kafka's own records, and are there after a restart beside them."""
    shutil.copytree(kafka_lives.clean, tmp_path / "data")
    directory = LogDirectory(tmp_path / "data", disk=RealDisk(), open_files_max=100)
    name = TopicPartition("orders", 0)
    expected = kafka_lives.clean_ledger.records["orders", 0]
    log = directory.open_log(name, CONFIG, now_ms=NOON_MS)
    end = log.log_end_offset
    for number in range(30):
        assert append(log, batch_of([b"ours %d" % number]), leader_epoch=9) == end + number
    log.close()
    directory.write_checkpoints({name: (log, log.log_end_offset)})
    directory.close(clean=True)
    again = LogDirectory(tmp_path / "data", disk=RealDisk(), open_files_max=100)
    log = again.open_log(name, CONFIG, now_ms=NOON_MS)
    found = data_records(log)
    assert {offset: record for offset, record in found.items() if offset < end} == expected
    assert [found[end + number].value for number in range(30)] == [b"ours %d" % number for number in range(30)]
    log.close()
    again.close(clean=True)


@pytest.mark.parametrize("partition", ["orders-0", "orders-1"])
def test_our_segments_roll_where_kafkas_do_and_have_the_same_indexes(
    kafka_lives: KafkaLives, tmp_path: Path, partition: str
) -> None:
    """The same batches through our engine: the same files with the same bytes, of every segment that Kafka finished."""
    theirs = kafka_lives.killed / partition
    segments = sorted(theirs.glob("*.log"))
    assert len(segments) > 3
    disk = RealDisk()
    log = open_log(tmp_path / partition, CONFIG, disk=disk, open_files=OpenFiles(disk), now_ms=NOON_MS)
    for path in segments:
        data = path.read_bytes()
        at = 0
        while at < len(data):
            header = parse_header(data, at)
            log.append_as_is(data[at : at + header.size_bytes], header, now_ms=NOON_MS)
            at += header.size_bytes
    log.close()
    assert [segment.path.name for segment in log.segments] == [path.name for path in segments]
    for path in segments[:-1]:
        for suffix in (".log", ".index", ".timeindex"):
            ours = (tmp_path / partition / path.name).with_suffix(suffix).read_bytes()
            assert ours == path.with_suffix(suffix).read_bytes(), path.with_suffix(suffix).name
    assert (tmp_path / partition / "leader-epoch-checkpoint").read_text() == (
        theirs / "leader-epoch-checkpoint"
    ).read_text()


@pytest.mark.parametrize("life", ["killed", "clean"])
def test_aborted_transactions_are_what_the_batches_say(kafka_lives: KafkaLives, tmp_path: Path, life: str) -> None:
    """Kafka's .txnindex files, byte by byte, from the batches alone; and its own are read by us after a clean stop."""
    theirs = getattr(kafka_lives, life) / "settlements-0"
    shutil.copytree(theirs, tmp_path / "all" / "settlements-0")
    bare = tmp_path / "bare" / "settlements-0"
    shutil.copytree(theirs, bare, ignore=lambda _, names: [name for name in names if not name.endswith(".log")])
    disk = RealDisk()
    rebuilt, told = Producers(), Producers()
    log = open_log(bare, CONFIG, disk=disk, open_files=OpenFiles(disk), now_ms=NOON_MS, observer=rebuilt)
    whole = open_log(
        tmp_path / "all" / "settlements-0",
        CONFIG,
        disk=disk,
        open_files=OpenFiles(disk),
        now_ms=NOON_MS,
        observer=told,
        clean=life == "clean",
    )
    assert len(log.segments) > 2
    entries = 0
    for segment in log.segments:
        path = (theirs / segment.path.name).with_suffix(".txnindex")
        content = path.read_bytes() if path.exists() else b""
        assert segment.transaction_index.to_bytes() == content, path.name
        entries += len(segment.transaction_index)
    assert entries > 15
    end_offset = log.log_end_offset
    assert aborted_transactions(log, 0, end_offset, may_block=True) == aborted_transactions(
        whole, 0, end_offset, may_block=True
    )
    assert rebuilt.open_transactions == told.open_transactions != {}
    assert state_of(rebuilt) == state_of(told)
    log.close()
    whole.close()


@pytest.mark.parametrize("partition", ["orders-0", "orders-1", "payments-0", "settlements-0"])
def test_producer_snapshots_are_what_the_batches_say(kafka_lives: KafkaLives, partition: str) -> None:
    """Each of Kafka's snapshots, byte by byte, from the batch headers alone."""
    directory = kafka_lives.clean / partition
    snapshots = sorted(directory.glob("*.snapshot"))
    assert snapshots
    for path in snapshots:
        learnt = Producers()
        for segment in sorted(directory.glob("*.log")):
            data = segment.read_bytes()
            at = 0
            while at < len(data):
                header = parse_header(data, at)
                if header.base_offset < int(path.stem):
                    if is_marker(header):
                        learnt.note_marker(header, data[at : at + header.size_bytes], 0)
                    else:
                        learnt.note_header(header, 0)
                at += header.size_bytes
        theirs = Producers()
        theirs.restore(path.read_bytes(), 0)
        content = path.read_bytes()
        assert theirs.snapshot()[6 : len(content)] == content[6:], "what is read is written back as it was"
        assert state_of(theirs) == state_of(learnt)


def state_of(producers: Producers) -> dict[int, tuple[object, ...]]:
    return {
        producer_id: (
            entry.epoch,
            entry.batches[-1][:4] if entry.batches else None,
            entry.last_timestamp_ms,
            entry.coordinator_epoch,
            producers.open_transactions.get(producer_id),
        )
        for producer_id, entry in producers.entries.items()
    }
