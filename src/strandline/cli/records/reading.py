"""The loops behind `consume`: known partitions from known offsets, the newest n, and as a member of a group."""

from __future__ import annotations

import sys
import time
from typing import Any, Protocol

from strandline.cli.common.client import Cluster, admin_api, kafka_api, servers_of
from strandline.cli.common.failures import CommandFailed, Unreachable, from_kafka_error
from strandline.cli.common.positions import Position, TimePosition, start_offset
from strandline.cli.records.record import ReadRecord
from strandline.cli.topic.topics import told_offset
from strandline.client.bootstrap_probe import knock

# By partition: the log start offset, where to begin, and where to stop: the end as it was when we looked, or --to.
Ranges = dict[int, tuple[int, int, int]]

_RECORDS_PER_POLL = 1000
# Python sees Ctrl-C only between two calls of librdkafka, so no call may be long.
_POLL_S = 0.1
_COMMIT_EVERY_S = 5.0
KNOCK_EVERY_S = 3.0
KNOCK_S = 1.0
"""How long Ctrl-C may have to wait."""


class RecordSink(Protocol):
    """A receiver of records, until it has enough."""

    def take(self, records: list[ReadRecord]) -> int:
        """Take records, and return how many were wanted: all, or the first few."""

    @property
    def done(self) -> bool: ...


class Collected:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.records: list[ReadRecord] = []
        self.done = False

    def take(self, records: list[ReadRecord]) -> int:
        self.records += records
        return len(records)


def look_up_ranges(
    cluster: Cluster, admin: Any, topic: str, partitions: list[int], begin: Position, stop: Position
) -> Ranges:
    """Return where to begin and where to stop in each partition; the record at the stop is not read."""
    spec_of = admin_api().OffsetSpec
    starts = _list_offsets(cluster, admin, topic, partitions, spec_of.earliest())
    ends = _list_offsets(cluster, admin, topic, partitions, spec_of.latest())

    def resolved(position: Position) -> dict[int, int]:
        at_time: dict[int, int] = {}
        if isinstance(position, TimePosition):
            found = _list_offsets(cluster, admin, topic, partitions, spec_of.for_timestamp(position.timestamp_ms))
            at_time = {partition: offset for partition, offset in found.items() if offset >= 0}
        return {
            partition: start_offset(
                position,
                log_start_offset=starts[partition],
                end_offset=ends[partition],
                offset_at_time=at_time.get(partition),
            )
            for partition in partitions
        }

    begins, stops = resolved(begin), resolved(stop)
    return {partition: (starts[partition], begins[partition], stops[partition]) for partition in partitions}


def _list_offsets(cluster: Cluster, admin: Any, topic: str, partitions: list[int], spec: Any) -> dict[int, int]:
    kafka = kafka_api()
    wanted = {kafka.TopicPartition(topic, partition): spec for partition in partitions}
    # A reader that stops "at the end" must not wait for records of a transaction that is still open.
    options = {"isolation_level": kafka.IsolationLevel.READ_COMMITTED, "request_timeout": cluster.timeout_s}
    with cluster.errors(f"cannot read the offsets of {topic!r}"):
        answers = admin.list_offsets(wanted, **options)
        return {place.partition: told_offset(future) for place, future in answers.items()}


class Patience:
    """A limit on a reading that makes no progress, so that a cluster that stopped answering is reported.

    With --follow it goes on, and says that the cluster is away and when it is back.
    """

    def __init__(self, cluster: Cluster, *, follow: bool) -> None:
        self._cluster = cluster
        self._follow = follow
        self._is_away = False
        self._deadline = time.monotonic() + self._wait_s

    @property
    def _wait_s(self) -> float:
        return KNOCK_EVERY_S if self._follow else self._cluster.timeout_s

    def check(self, *, progress: bool) -> None:
        now = time.monotonic()
        if progress:
            self._be(away=False)
        elif now <= self._deadline:
            return
        elif not self._follow:
            raise Unreachable(
                f"{self._cluster.bootstrap} sent nothing for {self._cluster.timeout_s:g} s, and the end is not reached",
                hint="look at the node's log, or wait longer with --timeout",
            )
        else:
            reasons = knock(servers_of(self._cluster.bootstrap), KNOCK_S)
            self._be(away=bool(reasons), why=", ".join(dict.fromkeys(reasons)))
        self._deadline = now + self._wait_s

    def _be(self, *, away: bool, why: str = "") -> None:
        if away == self._is_away:
            return
        self._is_away = away
        told = f"does not answer ({why}); waiting for it, Ctrl-C ends" if away else "answers again"
        print(f"{self._cluster.bootstrap} {told}", file=sys.stderr, flush=True)


class Reading:
    """A reading of chosen partitions from chosen offsets, without a group."""

    def __init__(self, cluster: Cluster, topic: str, ranges: Ranges) -> None:
        self._cluster = cluster
        self._topic = topic
        self._ranges = ranges

    def run(self, sink: RecordSink, *, follow: bool) -> None:
        place = kafka_api().TopicPartition
        unfinished = {partition for partition, (_, start, end) in self._ranges.items() if follow or start < end}
        if not unfinished:
            return
        consumer = _consumer(self._cluster, group=None)
        patience = Patience(self._cluster, follow=follow)
        try:
            consumer.assign([place(self._topic, p, self._ranges[p][1]) for p in sorted(unfinished)])
            while unfinished and not sink.done:
                batch, failure = self._poll(consumer, unfinished, follow)
                sink.take(batch)
                if failure is not None:
                    raise failure
                patience.check(progress=bool(batch) or not unfinished)
        finally:
            consumer.close()

    def _poll(self, consumer: Any, unfinished: set[int], follow: bool) -> tuple[list[ReadRecord], CommandFailed | None]:
        """Return the next records, and the failure behind them if there is one; take partitions off `unfinished` whose
        end, as it was at the start, is reached."""
        batch: list[ReadRecord] = []
        for message in consumer.consume(_RECORDS_PER_POLL, _POLL_S):
            if message.error() is not None:
                try:
                    is_end = _is_end(self._cluster, self._topic, message)
                except CommandFailed as failure:
                    return batch, failure
                if is_end and not follow:
                    unfinished.discard(message.partition())
                continue
            end = self._ranges[message.partition()][2]
            if follow or message.offset() < end:
                batch.append(_record(message))
            if not follow and message.offset() + 1 >= end:
                unfinished.discard(message.partition())
        return batch, None


def last_records(cluster: Cluster, topic: str, ranges: Ranges, count: int) -> list[ReadRecord]:
    """Return the newest `count` records of all partitions together, oldest first.

    Offsets are not dense (compaction, transaction markers), so a window that holds too few is read again, doubled.
    """
    window = count
    while True:
        starts = {p: max(log_start, end - window) for p, (log_start, _, end) in ranges.items()}
        found = Collected()
        windows = {p: (starts[p], starts[p], ranges[p][2]) for p in ranges}
        Reading(cluster, topic, windows).run(found, follow=False)
        if len(found.records) >= count or all(starts[p] == ranges[p][0] for p in ranges):
            return _newest(found.records, count)
        window *= 2


def _newest(found: list[ReadRecord], count: int) -> list[ReadRecord]:
    """Timestamps decide between partitions only; within one, the order of offsets is the truth."""
    partitions: dict[int, list[ReadRecord]] = {}
    for record in found:
        partitions.setdefault(record.partition, []).append(record)
    newest: list[ReadRecord] = []
    while len(newest) < count and partitions:
        partition = max(partitions, key=lambda p: (partitions[p][-1].timestamp_ms, p))
        newest.append(partitions[partition].pop())
        if not partitions[partition]:
            del partitions[partition]
    return newest[::-1]


class GroupReading:
    """A reading as a member of a group. What was printed is committed, and nothing else."""

    def __init__(self, cluster: Cluster, topic: str, group: str, *, earliest: bool) -> None:
        self._cluster = cluster
        self._topic = topic
        self._group = group
        self._reset = "earliest" if earliest else "latest"
        self._unfinished: set[int] | None = None

    def run(self, sink: RecordSink, *, follow: bool) -> None:
        consumer = _consumer(self._cluster, group=self._group, reset=self._reset)
        patience = Patience(self._cluster, follow=follow)
        commit_due = time.monotonic() + _COMMIT_EVERY_S
        try:
            consumer.subscribe([self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke)
            while not sink.done and (follow or self._unfinished != set()):
                taken = self._poll(consumer, sink)
                patience.check(progress=taken > 0 or self._unfinished == set())
                if time.monotonic() > commit_due:
                    commit_due = time.monotonic() + _COMMIT_EVERY_S
                    self._commit(consumer)
        finally:
            try:
                self._commit(consumer)
            finally:
                consumer.close()

    def _on_assign(self, consumer: Any, partitions: list[Any]) -> None:
        self._unfinished = {place.partition for place in partitions}

    def _on_revoke(self, consumer: Any, partitions: list[Any]) -> None:
        # The next owner begins where we commit, so commit before letting go, or it prints the same records again.
        self._commit(consumer)
        self._unfinished = None

    def _poll(self, consumer: Any, sink: RecordSink) -> int:
        """Hand what has come to the sink; how many records it took."""
        messages = []
        failed: CommandFailed | None = None
        for message in consumer.consume(_RECORDS_PER_POLL, _POLL_S):
            if message.error() is None:
                messages.append(message)
                continue
            try:
                is_end = _is_end(self._cluster, self._topic, message)
            except CommandFailed as failure:
                failed = failed or failure
                continue
            if is_end and self._unfinished is not None:
                self._unfinished.discard(message.partition())
        taken = sink.take([_record(message) for message in messages])
        for message in messages[:taken]:
            consumer.store_offsets(message=message)
        if failed is not None:
            raise failed
        return taken

    def _commit(self, consumer: Any) -> None:
        try:
            consumer.commit(asynchronous=False)
        except kafka_api().KafkaException as error:
            if error.args[0].name() != "_NO_OFFSET":
                doing = f"cannot commit for group {self._group!r}"
                raise from_kafka_error(error.args[0], bootstrap=self._cluster.bootstrap, doing=doing) from error


def _consumer(cluster: Cluster, *, group: str | None, reset: str = "earliest") -> Any:
    return cluster.consumer(
        # librdkafka insists on a group id even for a consumer that never joins one nor commits.
        group_id=group or "strandline-cli",
        auto_offset_reset=reset,
        enable_auto_commit=False,
        enable_auto_offset_store=False,
        enable_partition_eof=True,
        fetch_wait_max_ms=100,
    )


def _is_end(cluster: Cluster, topic: str, message: Any) -> bool:
    """True at the end of a partition, False for an error that librdkafka retries; any other error is raised."""
    error = message.error()
    if error.name() == "_PARTITION_EOF":
        return True
    if error.retriable() or error.name() in ("_ALL_BROKERS_DOWN", "_TRANSPORT"):
        return False
    raise from_kafka_error(error, bootstrap=cluster.bootstrap, doing=f"cannot read topic {topic!r}")


def _record(message: Any) -> ReadRecord:
    return ReadRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
    )
