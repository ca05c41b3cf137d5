"""A compacted topic in the hands of both: Kafka opens what we cleaned, wherever our swap was cut off, and cleans on; we
open what Kafka cleaned, wherever its swap was cut off, and clean on. Each key's last record stays, at its offset."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.brokers import Broker, start_kafka
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.interop.conversation import CODECS, FLUSH_TIMEOUT_S, Ledger, Sent, headers_of
from tests.unit.log.manual_runtime import ManualRuntime
from tests.unit.log.test_segment_replacement import DyingDisk, Killed

from strandline.codec.columns import decode_batch
from strandline.codec.record_batch import HAS_DELETE_HORIZON, parse_header
from strandline.config.topic_config import TopicConfig
from strandline.log.cleaning.clean import clean
from strandline.log.cleaning.job import CleanedGroup, CleaningJob, SourceSegment
from strandline.log.disk import RealDisk
from strandline.log.log_loader import open_log
from strandline.log.maintenance.segment_replacement import replace_segments
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.aborted_transactions import aborted_transactions
from strandline.log.segment.open_files import OpenFiles
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.partition.producers import Producers

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "table"
STATES = 16
"""Partitions: the swap of partition n is killed before its nth change of a name; of the last it is not."""
KEYS = 12
CLEANED_WITHIN_S = 90
SETTINGS = {
    "index.interval.bytes": "200",
    "segment.index.bytes": "240",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "2000",
    "file.delete.delay.ms": "1000",
}
KAFKA_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.enable": "false",
}
CONFIG = TopicConfig().with_overrides(SETTINGS)


@dataclass
class Stages:
    """What was written, what each partition is to fold to, and what the files were at each stage."""

    ledger: Ledger
    folds: dict[int, dict[bytes, tuple[int, Sent]]]
    read_of_ours: dict[int, dict[int, Sent]]
    """What Kafka's consumers got from what we had cleaned."""
    read_of_theirs: dict[int, dict[int, Sent]]
    """And after Kafka had cleaned on."""
    before: Path
    """Kafka's files before it cleaned them, with ours among them."""
    after: Path


def write_keys(bootstrap: str, ledger: Ledger, folds: dict[int, dict[bytes, tuple[int, Sent]]], *, salt: str) -> None:
    """Puts and tombstones in every codec, then transactions; of those that are aborted nothing counts."""
    for at, codec in enumerate(CODECS):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 20}
        )
        for turn in range(6):
            for partition in range(STATES):
                for number in range(4):
                    key = b"key-%d" % ((turn * 7 + number * 3 + at) % KEYS)
                    is_tombstone = (turn + number + at) % 6 == 5
                    value = None if is_tombstone else f"{salt} {codec} {turn} {number} ".encode() * 4
                    headers = headers_of(number)
                    note = ledger.note(headers)
                    producer.produce(TOPIC, value, key, partition, headers=headers, on_delivery=note)
            assert producer.flush(FLUSH_TIMEOUT_S) == 0
    aborted: set[tuple[int, int]] = set()
    for is_commit in (True, False, True, False):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{salt}-{is_commit}"})
        producer.init_transactions(FLUSH_TIMEOUT_S)
        producer.begin_transaction()
        mine = Ledger()
        for partition in range(STATES):
            for number in range(2):
                value = f"{salt} in a transaction {is_commit}".encode()
                producer.produce(TOPIC, value, b"key-%d" % number, partition, on_delivery=mine.note())
        assert producer.flush(FLUSH_TIMEOUT_S) == 0
        (producer.commit_transaction if is_commit else producer.abort_transaction)(FLUSH_TIMEOUT_S)
        for (topic, partition), records in mine.records.items():
            ledger.records.setdefault((topic, partition), {}).update(records)
            aborted |= {(partition, offset) for offset in records if not is_commit}
    # The last segment is not cleaned: what it holds is to be little.
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for turn in range(40):
        for partition in range(STATES):
            note = ledger.note()
            producer.produce(
                TOPIC, f"{salt} {turn} ".encode() * 12, b"filler-%d" % (turn % 3), partition, on_delivery=note
            )
        assert producer.flush(FLUSH_TIMEOUT_S) == 0
    for (_, partition), records in ledger.records.items():
        fold = folds.setdefault(partition, {})
        for offset, sent in sorted(records.items()):
            if sent.key is not None and (partition, offset) not in aborted and not _was_aborted(sent):
                fold[sent.key] = (offset, sent)


def _was_aborted(sent: Sent) -> bool:
    return sent.value is not None and sent.value.endswith(b"in a transaction False")


def read(bootstrap: str) -> dict[int, dict[int, Sent]]:
    """All that a reader of committed records gets, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: dict[int, dict[int, Sent]] = {partition: {} for partition in range(STATES)}
    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(STATES)])
        unread, deadline = set(range(STATES)), time.monotonic() + 60
        while unread:
            assert time.monotonic() < deadline, f"no end of {unread}"
            message = consumer.poll(5.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(message.partition())
                continue
            headers = tuple(message.headers() or ())
            sent = Sent(message.timestamp()[1], message.key(), message.value(), headers)
            found[message.partition()][message.offset()] = sent
    finally:
        consumer.close()
    return found


def check_fold(found: dict[int, Sent], fold: dict[bytes, tuple[int, Sent]], known: dict[int, Sent]) -> None:
    """Every record is the one that was written at its offset, and each key's last one is there, unless a tombstone."""
    for offset, sent in found.items():
        assert known[offset] == sent, offset
    last = {sent.key: offset for offset, sent in sorted(found.items())}
    for key, (offset, sent) in fold.items():
        if sent.value is not None or key in last:
            assert last.get(key) == offset, (key, sent)


def job_of(log: PartitionLog, producers: Producers, now_ms: int) -> CleaningJob:
    end = log.base_offsets[-1]
    ends = log.base_offsets[1:]
    entries = [
        AbortedTransaction(
            index.producer_ids[at], index.first_offsets[at], index.last_offsets[at], index.stable_offsets[at]
        )
        for segment in log.segments
        if segment.has_transaction_index
        for index in [segment.transaction_index]
        for at in range(len(index))
    ]
    return CleaningJob(
        directory=log.directory,
        segments=tuple(
            SourceSegment(each.base_offset, each.size_bytes, following, each.has_transaction_index)
            for each, following in zip(log.segments, ends, strict=False)
        ),
        log_start_offset=0,
        first_dirty_offset=0,
        end_offset=end,
        now_ms=now_ms,
        delete_retention_ms=CONFIG.delete_retention_ms,
        segment_bytes=1 << 30,
        segment_index_bytes=240,
        index_interval_bytes=200,
        dedupe_buffer_bytes=1 << 20,
        load_factor=0.9,
        io_buffer_bytes=1 << 16,
        io_bytes_per_s=0.0,
        aborted_later=tuple(each for each in entries if each.last_offset >= end > each.first_offset),
        active_producers=tuple(
            (producer_id, entry.epoch, entry.batches[-1][2] if entry.batches else -1)
            for producer_id, entry in producers.entries.items()
        ),
    )


def clean_and_swap(directory: Path, *, dies_at: int | None) -> None:
    """Clean the log in this directory, and swap the first group in, or die on the way; nothing is closed."""
    disk = DyingDisk(RealDisk(), 1 << 30)
    producers = Producers()
    log = open_log(
        directory,
        CONFIG,
        disk=disk,
        open_files=OpenFiles(disk),
        now_ms=0,
        observer=producers,
        clean=True,  # type: ignore[arg-type]
    )
    groups: list[CleanedGroup] = []
    job = job_of(log, producers, int(time.time() * 1000))
    clean(job, log.disk, on_group=groups.append, is_stopped=lambda: False, sleep=lambda _: None)
    assert groups
    runtime = ManualRuntime()
    if dies_at is not None:
        disk.left = dies_at
    try:
        for group in groups:
            told: list[BaseException | None] = []
            replace_segments(log, group, runtime=runtime, on_done=told.append)  # type: ignore[arg-type]
            while runtime.jobs or runtime.ready:
                (runtime.jobs or runtime.ready).popleft()()
            assert told == [None]
    except Killed:
        return
    if dies_at is None:
        log.close()


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    home = tmp_path_factory.mktemp("compacted")
    broker = start_kafka(home / "node", settings=KAFKA_SETTINGS)
    ledger, folds = Ledger(), dict[int, dict[bytes, tuple[int, Sent]]]()
    try:
        broker.create_topic(TOPIC, STATES, SETTINGS)
        write_keys(broker.bootstrap, ledger, folds, salt="one")
        broker.stop()
        # As if it had been killed: Kafka looks at everything from its recovery points on.
        (broker.data / ".kafka_cleanshutdown").unlink()
        for partition in range(STATES):
            dies_at = None if partition == STATES - 1 else partition
            clean_and_swap(broker.data / f"{TOPIC}-{partition}", dies_at=dies_at)
        broker = broker.started_again()
        read_of_ours = read(broker.bootstrap)
        write_keys(broker.bootstrap, ledger, folds, salt="two")
        broker.stop()
        shutil.copytree(broker.data, home / "before")
        properties = home / "node" / "server.properties"
        properties.write_text(properties.read_text().replace("log.cleaner.enable=false", "log.cleaner.enable=true"))
        broker = broker.started_again()
        wait_until_cleaned(broker)
        read_of_theirs = read(broker.bootstrap)
        broker.stop()
        yield Stages(ledger, folds, read_of_ours, read_of_theirs, home / "before", broker.data)
    finally:
        broker.discard()


def wait_until_cleaned(broker: Broker) -> None:
    """Until Kafka has cleaned every partition up to its last segment."""
    deadline = time.monotonic() + CLEANED_WITHIN_S
    while True:
        lines = (broker.data / "cleaner-offset-checkpoint").read_text().splitlines()[2:]
        cleaned = {line.split()[1] for line in lines if line.startswith(f"{TOPIC} ") and int(line.split()[2]) > 0}
        if len(cleaned) == STATES:
            return
        assert time.monotonic() < deadline, f"Kafka has cleaned {cleaned} only"
        time.sleep(0.5)


@pytest.mark.parametrize("partition", range(STATES))
def test_kafka_reads_what_we_cleaned_wherever_the_swap_was_cut_off(stages: Stages, partition: int) -> None:
    known = stages.ledger.records[TOPIC, partition]
    found = stages.read_of_ours[partition]
    fold: dict[bytes, tuple[int, Sent]] = {}
    for offset, sent in sorted(known.items()):
        is_first = sent.value is None or not sent.value.startswith(b"two")
        if sent.key is not None and is_first and not _was_aborted(sent) and offset <= max(found):
            fold[sent.key] = (offset, sent)
    check_fold(found, fold, known)
    assert not any(map(_was_aborted, found.values()))
    if partition == STATES - 1:
        assert len(found) < sum(offset <= max(found) for offset in known) / 2, "nothing was cleaned"


@pytest.mark.parametrize("partition", range(STATES))
def test_kafka_cleans_on_behind_us(stages: Stages, partition: int) -> None:
    found = stages.read_of_theirs[partition]
    known = stages.ledger.records[TOPIC, partition]
    check_fold(found, stages.folds[partition], known)
    assert len(found) < len(known) / 2


def records_of(log: PartitionLog) -> dict[int, Sent]:
    """What a reader of committed records gets from a log."""
    aborted = aborted_transactions(log, 0, log.log_end_offset, may_block=True)
    found: dict[int, Sent] = {}
    open_aborted: set[int] = set()
    entries = sorted((first_offset, producer_id) for producer_id, first_offset in aborted)
    for batch in log.batches():
        columns = decode_batch(batch)
        while entries and entries[0][0] <= columns.last_offset:
            open_aborted.add(entries.pop(0)[1])
        if columns.is_control:
            open_aborted.discard(columns.producer_id)
        elif not (columns.is_transactional and columns.producer_id in open_aborted):
            for record in columns:
                found[record.offset] = Sent(record.timestamp_ms, record.key, record.value, record.headers)
    return found


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("partition", range(0, STATES, 3))
def test_we_read_what_kafka_cleaned_and_clean_on(
    stages: Stages, tmp_path: Path, partition: int, is_clean: bool
) -> None:
    directory = tmp_path / f"{TOPIC}-{partition}"
    shutil.copytree(stages.after / directory.name, directory)
    disk = RealDisk()
    # A recovery point at the end, as Kafka's stop left it.
    end = max(stages.ledger.records[TOPIC, partition]) + 1
    log = open_log(
        directory, CONFIG, disk=disk, open_files=OpenFiles(disk), now_ms=0, observer=Producers(), clean=is_clean,
        recovery_point=end,
    )  # fmt: skip
    assert records_of(log) == stages.read_of_theirs[partition]
    horizons = {
        header.base_offset for batch in log.batches() if (header := parse_header(batch)).attributes & HAS_DELETE_HORIZON
    }
    assert horizons, "Kafka has set delete horizons"
    log.close()
    clean_and_swap(directory, dies_at=None)
    log = open_log(directory, CONFIG, disk=disk, open_files=OpenFiles(disk), now_ms=0, observer=Producers(), clean=True)
    found = records_of(log)
    check_fold(found, stages.folds[partition], stages.ledger.records[TOPIC, partition])
    assert found.keys() <= stages.read_of_theirs[partition].keys()
    log.close()


@pytest.mark.parametrize("crash", ["cleaning", "log named", "named", "one original gone", "originals gone"])
def test_we_open_what_a_crash_left_of_kafkas_swap(stages: Stages, tmp_path: Path, crash: str) -> None:
    """Kafka's way of the names, cut off: the log first gets `.swap`, then its indexes; then the originals go."""
    partition = 1
    name = f"{TOPIC}-{partition}"
    directory = tmp_path / name
    shutil.copytree(stages.before / name, directory)
    theirs = stages.after / name
    new = min(theirs.glob("*.log"))
    replaced = originals_of(new, directory)
    assert len(replaced) > 1
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        made = new.with_suffix(suffix)
        if made.exists():
            is_named = crash not in ("cleaning", "log named") or (crash == "log named" and suffix == ".log")
            shutil.copy(made, directory / (made.name + (".swap" if is_named else ".cleaned")))
    gone = {"one original gone": replaced[:1], "originals gone": replaced}.get(crash, [])
    for log_path in gone:
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            path = log_path.with_suffix(suffix)
            if path.exists():
                path.rename(path.with_name(path.name + ".deleted"))
    end = max(stages.ledger.records[TOPIC, partition]) + 1
    disk = RealDisk()
    log = open_log(
        directory, CONFIG, disk=disk, open_files=OpenFiles(disk), now_ms=0, observer=Producers(), recovery_point=end
    )
    check_fold(records_of(log), stages.folds[partition], stages.ledger.records[TOPIC, partition])
    assert log.log_end_offset >= end
    assert not [each for each in directory.iterdir() if each.suffix in (".swap", ".cleaned", ".deleted")]
    log.close()


def originals_of(new: Path, directory: Path) -> list[Path]:
    """The segments that Kafka's cleaner put into this one: those up to the next that it left."""
    following = min(
        (int(each.stem) for each in new.parent.glob("*.log") if int(each.stem) > int(new.stem)), default=None
    )
    assert following is not None
    return sorted(each for each in directory.glob("*.log") if int(new.stem) <= int(each.stem) < following)
