"""A compacted topic equals the last value of each key, whatever is written, cleaned, restarted and elected in between.

Hypothesis draws a story of puts, tombstones, transactions that commit, abort or stay open for a while, rests in which
segments roll and are cleaned and horizons pass, restarts, kills, power cuts and elections. A plain dictionary is told
the same. Three real brokers of the simulation play it; after each cleaning, and at the end, a reader from offset 0 must
find what the dictionary holds, on every replica, at the offsets at which it was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from tests.simulation.stage import Play, TopicOptions, stage
from tests.simulator.clients.producer import Batch, SimProducer
from tests.simulator.clients.transaction import Lane, SimTransaction
from tests.simulator.clients.transactional import NEW, SimTransactional
from tests.simulator.truth.partition_truth import batches_between, data_offsets

from strandline.codec.columns import Record
from strandline.ids import TopicPartition

TABLE = TopicPartition("table", 0)
CONFIGS = {
    "cleanup.policy": "compact",
    "min.insync.replicas": "2",
    "flush.mode": "ack",
    "internal.segment.bytes": "2000",
    "segment.ms": "1000",
    "min.cleanable.dirty.ratio": "0.0",
    "max.compaction.lag.ms": "1000",
    "delete.retention.ms": "20000",
    "file.delete.delay.ms": "1000",
}
SETTINGS = {"log.cleaner.backoff.ms": "300", "transaction.state.log.num.partitions": "1"}
KEYS = st.sampled_from(["a", "b", "c", "d"])
VALUES = st.one_of(st.none(), st.integers(0, 99).map(str))
WRITES = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=4)
STORIES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), WRITES),
        st.tuples(st.just("commit"), WRITES),
        st.tuples(st.just("abort"), WRITES),
        st.tuples(st.just("open"), WRITES),
        st.tuples(st.just("end"), st.booleans()),
        st.tuples(st.just("clean"), st.none()),
        st.tuples(st.just("wait out the horizon"), st.none()),
        st.tuples(st.just("elect"), st.none()),
        st.tuples(st.just("kill all"), st.none()),
        st.tuples(st.just("power cut"), st.integers(1, 3)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    ),
    min_size=4,
    max_size=24,
)


def record_of(text: str, now_ms: int) -> Record:
    key, _, value = text.partition("=")
    return Record(timestamp_ms=now_ms, key=key.encode(), value=value.encode() if value else None)


def texts(writes: list[tuple[str, str | None]]) -> list[str]:
    return [f"{key}={value or ''}" for key, value in writes]


@dataclass
class Written:
    writes: list[tuple[str, str | None]]
    counts: bool


class Table:
    """The topic, who writes to it, and the dictionary that it must equal."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self._written: list[Written] = []
        self._open: tuple[SimTransaction, Written] | None = None
        run = play.run
        topic = run.options.topics[0]
        self.producer: SimProducer = run.producer(topic, "writer")
        self.producer.pause_s = 1e9
        self.producer.record_of = record_of
        self.client = play.client("table")
        self.client.refresh()
        self.transactional = SimTransactional(
            self.client, "writer", run.transaction_truth, process=run.history.new_process(), speaks=NEW, timeout_s=600
        )
        self.transactional.record_of = record_of
        self.producer._ask_for_id()
        play.until(lambda: self.client.leader_of(TABLE) and self.producer.known, "the table has a leader")
        self.producer._ask_for_id()
        play.until(lambda: self.producer.producer_id >= 0, "a producer id")

    def write(self, writes: list[tuple[str, str | None]], *, counts: bool) -> Written:
        """In the order of the log, which is that of writing, whenever a transaction is decided."""
        written = Written(writes, counts)
        self._written.append(written)
        return written

    @property
    def expected(self) -> dict[bytes, bytes]:
        fold: dict[bytes, bytes] = {}
        for written in self._written:
            for key, value in written.writes if written.counts else ():
                if value:
                    fold[key.encode()] = value.encode()
                else:
                    fold.pop(key.encode(), None)
        return fold

    def put(self, writes: list[tuple[str, str | None]]) -> None:
        producer = self.producer
        lane = producer.lanes[0]
        batch = Batch(texts(writes), lane.next_sequence, producer.history.now_ns(), producer.runtime.monotonic() + 600)
        lane.next_sequence += len(writes)
        lane.unacknowledged.append(batch)
        producer._pump(lane)
        self.play.until(lambda: producer.is_idle, "a put is acknowledged", 60.0)
        assert producer.lanes[0] is lane, "the producer had to begin again"
        self.write(writes, counts=True)

    def begin(self, writes: list[tuple[str, str | None]], *, commits: bool, hangs_s: float = 0.0) -> SimTransaction:
        lanes = {TABLE: Lane(texts(writes))}
        transaction = SimTransaction(self.transactional.process, None, {}, lanes, commits=commits, hangs_s=hangs_s)
        self.transactional.run(transaction, lambda _: None)
        return transaction

    def transact(self, writes: list[tuple[str, str | None]], *, commits: bool) -> None:
        self.end(commits=True)
        transaction = self.begin(writes, commits=commits)
        self.play.until(lambda: transaction.outcome is not None, "a transaction ends", 60.0)
        assert transaction.outcome == ("ok" if commits else "fail"), transaction
        self._settle()
        self.write(writes, counts=commits)

    def open(self, writes: list[tuple[str, str | None]]) -> None:
        """Write, and leave the transaction open until `end`."""
        if self._open is None:
            transaction = self.begin(writes, commits=False, hangs_s=1e9)
            self.play.until(lambda: transaction.lanes[TABLE].is_written, "a transaction is written", 60.0)
            self._open = transaction, self.write(writes, counts=False)

    def end(self, *, commits: bool) -> None:
        if self._open is None:
            return
        transaction, written = self._open
        self._open = None
        transactional = self.transactional
        ended: list[SimTransaction] = []

        def script() -> Any:
            yield from transactional._end(transaction, commits=commits)
            transactional.is_busy = False
            ended.append(transaction)

        transactional._go_on(script(), None)
        self.play.until(lambda: ended, "the transaction that was open ends", 60.0)
        self._settle()
        written.counts = commits

    def _settle(self) -> None:
        undecided = self.play.run.invariants.stabilities.undecided
        self.play.until(lambda: not undecided(), "the marker is written", 60.0)

    def clean(self) -> None:
        """Long enough for a segment to roll, be cleaned, and the next one as well."""
        self.play.rest(6.0)
        self.check()

    # Looking

    def check(self) -> None:
        """What stands in each replica, folded as a reader of committed records does, and what a client reads."""
        play = self.play
        play.wait_whole()
        truth = play.run._records_of(TABLE)
        for node in map(play.node, play.image_of("table").replicas):
            assert node.node is not None
            partition = node.node.partition(*TABLE)
            assert partition is not None
            found = self._fold_of(partition)
            if self._open is None:
                assert found == self.expected, f"node {node.node_id}"
            assert partition.log.log_end_offset >= max(truth.batches, default=-1)
        assert play.run.options.table is None

    def _fold_of(self, partition: Any) -> dict[bytes, bytes]:
        truth = self.play.run._records_of(TABLE)
        held = data_offsets(batches_between(partition.log, partition.log_start_offset, partition.high_watermark))
        fold: dict[bytes, bytes] = {}
        for offset in sorted(held & truth.facts.keys() - truth.aborted):
            record = truth.facts[offset].record
            assert record.key is not None
            if record.value is None:
                fold.pop(record.key, None)
            else:
                fold[record.key] = record.value
        return fold


def come_back(play: Play) -> None:
    """All nodes have joined again and are in sync; the metadata may not show yet what happened."""

    def is_back() -> bool:
        nodes = [each.node for each in play.cluster.nodes.values()]
        return all(node is not None and node.is_ready and not node.lifecycle.is_fenced for node in nodes)

    play.until(is_back, "all nodes have joined", 60.0)
    play.rest(1.0)
    play.wait_whole()


def tell(table: Table, verb: str, what: Any) -> None:
    play = table.play
    nodes = play.cluster.nodes
    match verb:
        case "put":
            table.put(what)
        case "commit" | "abort":
            table.transact(what, commits=verb == "commit")
        case "open":
            table.open(what)
        case "end":
            table.end(commits=what)
        case "clean":
            table.clean()
        case "wait out the horizon":
            play.rest(21.0)
            table.clean()
        case "elect":
            leader = play.leader("table")
            leader.kill()
            play.until(lambda: play.image_of("table").leader not in (-1, leader.node_id), "another one leads")
            leader.start()
            come_back(play)
        case "kill all":
            for node in nodes.values():
                node.kill()
            for node in nodes.values():
                node.start()
            come_back(play)
        case "power cut":
            nodes[what].power_cut()
            play.rest(1.0)
            nodes[what].start()
            come_back(play)
        case "restart":
            stopped: list[bool] = []
            nodes[what].stop(lambda: stopped.append(True))
            play.until(lambda: stopped, "an orderly end", 60.0)
            nodes[what].start()
            come_back(play)


def tell_story(story: list[tuple[str, Any]]) -> None:
    topic = TopicOptions("table", 1, 3, CONFIGS)
    with stage(1, topic, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        for verb, what in story:
            tell(table, verb, what)
        table.end(commits=True)
        table.clean()
        assert not play.run.history.surprises


def model(examples: int) -> Callable[[Any], Any]:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        # A story is small as it is, and to make it smaller takes minutes.
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow],
    )


@pytest.mark.slow
@model(5)
@given(STORIES)
def test_a_compacted_topic_is_the_last_value_of_each_key(story: list[tuple[str, Any]]) -> None:
    note(f"{story}")
    tell_story(story)


@pytest.mark.slow
@model(150)
@given(STORIES)
def test_a_compacted_topic_is_the_last_value_of_each_key_in_many_stories(story: list[tuple[str, Any]]) -> None:
    note(f"{story}")
    tell_story(story)


def test_what_a_cleaner_takes_away_is_gone_and_the_rest_stands() -> None:
    """A story by hand, so that it is certain that all of it happens: records, tombstones and markers go in the end."""
    topic = TopicOptions("table", 1, 3, CONFIGS)
    with stage(2, topic, settings=SETTINGS) as play:
        play.is_over = True
        table = Table(play)
        for number in range(30):
            table.put([("a", str(number)), ("b", str(number))])
        table.transact([("c", "1")], commits=True)
        table.transact([("c", "2"), ("d", "2")], commits=False)
        table.put([("b", None)])
        table.put([("a", "last")])
        table.clean()
        leader = play.leader("table").node
        assert leader is not None
        log = leader.partition(*TABLE).log  # type: ignore[union-attr]
        held = data_offsets(batches_between(log, 0, log.log_end_offset))
        truth = play.run._records_of(TABLE)
        assert log.swaps
        assert not held & truth.aborted, "aborted records stay"
        assert len(held & truth.facts.keys()) < 10
        play.rest(21.0)
        table.put([("e", "1")])
        play.rest(21.0)
        table.put([("e", "2")])
        table.clean()
        held = data_offsets(batches_between(log, 0, log.log_end_offset))
        left = {truth.facts[offset].record.key for offset in held & truth.facts.keys()}
        assert left == {b"a", b"c", b"e"}, "a tombstone outlives its time"
        assert [offset for offset in truth.markers if offset in held] != list(truth.markers), "markers stay for ever"
