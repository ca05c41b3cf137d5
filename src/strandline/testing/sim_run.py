"""One run of the whole-broker simulation: set up, faults, heal, liveness, final read, verdict.

    result = run(options_of(seed))
    assert result.failure is None, result

Safety is judged throughout: by the invariants after every event, and by the history checker at the end. After the
faults are mended the cluster must come back by itself: every producer is acknowledged again on every partition, every
partition is in sync in full, and a final read reaches every end.
"""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from strandline.codec.columns import Record
from strandline.codec.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.codec.messages.create_topics_response import CreateTopicsResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition
from strandline.testing.checker import check
from strandline.testing.count_checks import miscounted
from strandline.testing.history import Assign, Committed, Consumed, Mop, Op, Poll, Send, Watermark
from strandline.testing.sim_admin import SimAdministrator, SimCommitter
from strandline.testing.sim_client import History, SimClient
from strandline.testing.sim_cluster import SimCluster
from strandline.testing.sim_consumer import SimConsumer
from strandline.testing.sim_forgotten import Forgotten
from strandline.testing.sim_group import GroupOptions, SimGroup
from strandline.testing.sim_group_truth import GroupTruth
from strandline.testing.sim_invariants import Invariants, Violation
from strandline.testing.sim_loop import SimLoop
from strandline.testing.sim_nemesis import Nemesis
from strandline.testing.sim_options import SimOptions, TableOptions, TopicOptions, TransactorOptions
from strandline.testing.sim_processors import ProcessorOptions, SimProcessors
from strandline.testing.sim_producer import SimProducer, plain_record
from strandline.testing.sim_record_truth import RecordTruth
from strandline.testing.sim_sinks import SimSinks, SinkOptions
from strandline.testing.sim_table import SimTableReader, judge_table, keyed_record
from strandline.testing.sim_transaction_truth import TransactionTruth
from strandline.testing.sim_transactor import SimTransactors

SETUP_S: Final = 60.0
LIVENESS_S: Final = 120.0
"""After the faults are mended, how long the cluster may take to be whole again."""
NEMESIS_LINES: Final = 40
ALL: Final = -1


@dataclass
class Result:
    seed: int
    simulated_s: float = 0.0
    faults: int = 0
    leader_changes: int = 0
    acknowledged: int = 0
    """Records."""
    requests_acknowledged: int = 0
    """Batches; each is one Produce request."""
    transactions_committed: int = 0
    transactions_aborted: int = 0
    """As decided, whoever asked for it."""
    batches_committed: int = 0
    """Of sinks."""
    swaps: int = 0
    """Cleaned segments that took the place of others."""
    forgotten: int = 0
    """Offsets that were deleted at the start of a log."""
    events: int = 0
    trace: int = 0
    real_s: float = 0.0
    failure: str | None = None
    fault_kinds: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        verdict = "ok" if self.failure is None else "FAILED"
        return (
            f"seed {self.seed}: {verdict}, {self.simulated_s:.0f} simulated s in {self.real_s:.1f} s, "
            f"{self.faults} faults, {self.leader_changes} leader changes, {self.acknowledged} records acknowledged in "
            f"{self.requests_acknowledged} requests, {self.transactions_committed} transactions committed and "
            f"{self.transactions_aborted} aborted, {self.batches_committed} batches of sinks committed, "
            f"{self.swaps} segments cleaned, {self.forgotten} offsets forgotten, "
            f"{self.events} events, trace {self.trace:08x}"
        )


class NotAlive(Exception):
    """The cluster did not come back in time."""


class Run:
    """The parts of one run; scenarios use them one by one, `run` all of them in order."""

    def __init__(self, options: SimOptions) -> None:
        self.options = options
        self.loop = SimLoop(options.seed)
        self.cluster = SimCluster(
            self.loop, nodes=options.nodes, controllers=options.controllers, settings=options.settings
        )
        network = self.cluster.network
        network.fragment_share, network.spike_share = options.fragment_share, options.spike_share
        network.window_bytes = options.window_bytes
        for node in self.cluster.nodes.values():
            node.disk.cold_share = options.cold_share
        self.invariants = Invariants(self.cluster)
        self.nemesis = Nemesis(self.cluster, options.nemesis)
        self.history = History(lambda: int(self.loop.now * 1e9))
        self.producers: list[SimProducer] = []
        self.consumers: list[SimConsumer] = []
        self.committers: list[SimCommitter] = []
        self.administrator: SimAdministrator | None = None
        self.group_truth = GroupTruth(self.invariants)
        self.transaction_truth = TransactionTruth(self.invariants)
        self.processors = [self.processor_group(each) for each in options.processors]
        self.groups = [*(self.group(group) for group in options.groups), *self.processors]
        self.transactors: list[SimTransactors | SimSinks] = []
        self.table_readers: list[SimTableReader] = []
        self.forgotten = Forgotten(self.invariants)
        for topic in options.topics:
            if topic.forgets:
                self.forgotten.watch(topic)

    # Setting up

    def start(self) -> None:
        self.cluster.start()
        for node in self.cluster.nodes.values():
            if node.failure:
                raise NotAlive(f"{node.name} did not start: {node.failure}")
        for topic in (*self.options.topics, *self.options.outputs):
            self.create(topic)
        if self.options.table is not None:
            self.create(self.options.table.topic)

    def create(self, topic: TopicOptions) -> None:
        """Ask until the topic is there and every partition of it has a leader."""
        client = self._client(f"admin-{topic.name}", [topic.name])
        wanted = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=5_000)
        told: list[int] = []

        def on_answer(answer: CreateTopicsResponse | None) -> None:
            code = ErrorCode.REQUEST_TIMED_OUT if answer is None else answer.topics[0].error_code
            told.append(code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                client.runtime.call_later(0.3, ask)
            else:
                client.refresh()

        def ask() -> None:
            client.ask_any(request, 7, CreateTopicsResponse, on_answer)

        def is_missing() -> bool:
            led = [client.leader_of(TopicPartition(topic.name, each)) for each in range(topic.partitions)]
            return not all(led)

        client.runtime.call_soon(ask)
        if not self.loop.run_while(is_missing, within_s=SETUP_S):
            raise NotAlive(f"topic {topic.name} could not be made: {[ErrorCode(each).name for each in told[-3:]]}")
        client.kill()

    def _client(self, name: str, topics: list[str]) -> SimClient:
        return SimClient(self.cluster.network, self.cluster.host(name), self.history, self.cluster.bootstrap, topics)

    def partitions(self, topic: TopicOptions) -> list[TopicPartition]:
        return [TopicPartition(topic.name, index) for index in range(topic.partitions)]

    def start_clients(self) -> None:
        for topic in self.options.topics:
            for number in range(2 if topic.name == "orders" else 1):
                self.producers.append(self.producer(topic, f"producer-{topic.name}-{number}"))
            self.consumers.append(self.consumer(topic, f"consumer-{topic.name}", looks_every_s=2.0))
            if topic.name == "orders":
                self.consumers.append(self.consumer(topic, f"rewinder-{topic.name}", rewinds_every_s=15.0))
        self.start_readers()
        orders = self.options.topics[0]
        network, bootstrap = self.cluster.network, self.cluster.bootstrap
        self.committers = [
            SimCommitter(
                network,
                self.cluster.host(f"committer-{number}"),
                self.history,
                bootstrap,
                self.partitions(orders)[0],
                pause_s=self.options.commit_pause_s,
            )
            for number in range(2 if self.options.commit_pause_s else 0)
        ]
        if self.options.administer_every_s:
            self.administrator = SimAdministrator(
                network,
                self.cluster.host("administrator"),
                self.history,
                bootstrap,
                orders.name,
                every_s=self.options.administer_every_s,
            )
        self.nemesis.clients = lambda: [
            *(client.host.name for client in (*self.producers, *self.consumers)),
            *(host for group in self.groups for host in group.hosts),
            *(host for transactors in self.transactors for host in transactors.hosts),
            *(reader.host.name for reader in self.table_readers),
        ]
        for group in self.groups:
            group.start()
        if self.options.transactors is not None:
            self.transact(self.options.transactors)
        if self.options.sinks is not None:
            self.sink(self.options.sinks)
        if self.options.table is not None:
            self.keep_table(self.options.table)

    def keep_table(self, options: TableOptions) -> None:
        """Writers of a compacted topic, and who reads it while it is cleaned."""
        record_of = partial(keyed_record, keys=options.keys)
        for number in range(options.writers):
            writer = self.producer(options.topic, f"table-writer-{number}")
            writer.record_of = record_of
            self.producers.append(writer)
        for number in range(options.readers):
            self.table_readers.append(
                self.table_reader(options, f"table-reader-{number}", repeats=True, follows_replicas=number % 2 == 1)
            )
        if options.transactors is not None:
            outputs = self.partitions(options.topic)
            self.transact(options.transactors, outputs, name="table-transactor", record_of=record_of)

    def table_reader(
        self, options: TableOptions, name: str, *, repeats: bool, follows_replicas: bool = False
    ) -> SimTableReader:
        reader = SimTableReader(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.partitions(options.topic),
            truth_of=self._records_of,
            repeats=repeats,
            follows_replicas=follows_replicas,
        )
        reader.leads = self._leads
        return reader

    def _is_table_excused(self, options: TableOptions) -> bool:
        """Whether a replica was away for so long that it may wait for ever for a marker, in Kafka as here."""
        return any(self._records_of(each).is_excused for each in self.partitions(options.topic))

    def _records_of(self, partition: TopicPartition) -> RecordTruth:
        topic = self.invariants.image.topics[partition.topic]
        records = self.invariants.partitions[topic.id.bytes, partition.partition].records
        assert records is not None, "a table is compacted"
        return records

    def start_readers(self) -> None:
        """Whoever reads what transactions write, and sees nothing of what they did not commit."""
        for topic in self.options.outputs:
            self.consumers.append(
                self.consumer(topic, f"consumer-{topic.name}", looks_every_s=2.0, committed_only=True)
            )
            self.consumers.append(
                self.consumer(
                    topic,
                    f"rewinder-{topic.name}",
                    rewinds_every_s=15.0,
                    follows_replicas=True,
                    committed_only=True,
                )
            )

    def group(self, options: GroupOptions) -> SimGroup:
        return SimGroup(self.cluster, self.history, self.invariants, self.group_truth, options, leads=self._leads)

    def processor_group(self, options: ProcessorOptions) -> SimProcessors:
        stabilities = self.invariants.stabilities
        stabilities.timeout_s = max(stabilities.timeout_s, options.manners.timeout_s)
        return SimProcessors(
            self.cluster,
            self.history,
            self.invariants,
            self.group_truth,
            self.transaction_truth,
            options,
            leads=self._leads,
        )

    def transact(
        self,
        options: TransactorOptions,
        outputs: list[TopicPartition] | None = None,
        *,
        name: str = "transactor",
        record_of: Callable[[str, int], Record] = plain_record,
    ) -> SimTransactors:
        stabilities = self.invariants.stabilities
        stabilities.timeout_s = max(stabilities.timeout_s, options.manners.timeout_s)
        transactors = SimTransactors(
            self.cluster,
            self.history,
            self.transaction_truth,
            outputs or [partition for topic in self.options.outputs for partition in self.partitions(topic)],
            count=options.count,
            churn_s=options.churn_s,
            manners=options.manners,
            name=name,
            record_of=record_of,
        )
        transactors.start()
        self.transactors.append(transactors)
        return transactors

    def sink(self, options: SinkOptions) -> SimSinks:
        stabilities = self.invariants.stabilities
        stabilities.timeout_s = max(stabilities.timeout_s, options.manners.timeout_s)
        outputs = [partition for topic in self.options.outputs for partition in self.partitions(topic)]
        sinks = SimSinks(self.cluster, self.history, self.transaction_truth, outputs, options)
        sinks.start()
        self.transactors.append(sinks)
        return sinks

    def producer(self, topic: TopicOptions, name: str) -> SimProducer:
        producer = SimProducer(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.partitions(topic),
            acks=topic.acks,
            idempotent=topic.idempotent,
            records_per_batch=self.options.records_per_batch,
            pause_s=self.options.produce_pause_s,
            delivery_timeout_s=self.options.delivery_timeout_s,
            loses_are_legal=topic.may_lose,
        )
        producer.leads = self._leads
        return producer

    def _leads(self, partition: TopicPartition, broker: int) -> bool:
        """Whether the committed metadata says so."""
        topic = self.invariants.image.topics.get(partition.topic)
        return topic is not None and topic.partitions[partition.partition].leader == broker

    def consumer(
        self,
        topic: TopicOptions,
        name: str,
        *,
        looks_every_s: float = 0.0,
        rewinds_every_s: float = 0.0,
        follows_replicas: bool = False,
        is_final: bool = False,
        committed_only: bool = False,
    ) -> SimConsumer:
        consumer = SimConsumer(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.partitions(topic),
            looks_every_s=looks_every_s,
            rewinds_every_s=rewinds_every_s,
            follows_replicas=follows_replicas,
            loses_are_legal=topic.may_lose,
            forgets=topic.forgets,
            is_final=is_final,
            committed_only=committed_only,
        )
        consumer.leads = self._leads
        return consumer

    # Faults, and after them

    def endure(self) -> None:
        self.nemesis.start()
        self.loop.run_until(self.loop.now + self.options.safety_s)
        self.nemesis.heal()

    def recover(self) -> None:
        """Every producer must be acknowledged again on every partition, all replicas be in sync, all groups settle."""
        for group in self.groups:
            group.calm()
        for transactors in self.transactors:
            transactors.calm()
        fresh = [
            (producer, lane.partition, producer.send(lane, 1))
            for producer in self.producers
            for lane in producer.lanes
            if producer.known
        ]
        for producer in self.producers:
            producer.stop()
        if self.administrator is not None:
            self.administrator.stop()
        committed = {committer: committer.committed for committer in self.committers}
        self._wait(
            lambda: any(committer.committed == committed[committer] for committer in self.committers),
            lambda: "no offset was committed",
        )
        for committer in self.committers:
            committer.stop()
        self._wait(
            lambda: any(not producer.is_idle for producer in self.producers),
            lambda: (
                "not acknowledged: "
                + ", ".join(
                    f"{producer.host.name} {lane.partition} ({len(lane.unacknowledged)} batches)"
                    for producer in self.producers
                    for lane in producer.lanes
                    if lane.unacknowledged
                )
            ),
        )
        assert fresh or not self.producers, "no producer ever learnt who leads"
        self._wait(lambda: bool(self._not_whole()), lambda: f"not in sync: {self._not_whole()}")
        # From here on nothing excuses a transaction that nobody ends.
        self.invariants.stabilities.calm_since = self.loop.now
        self._wait(
            lambda: any(group.unsettled() for group in self.groups),
            lambda: "; ".join(f"group {group.options.name}: {group.unsettled()}" for group in self.groups),
        )
        self._wait(
            lambda: any(transactors.unsettled() for transactors in self.transactors),
            lambda: "; ".join(transactors.unsettled() for transactors in self.transactors),
        )
        for group in self.groups:
            group.finish()
        for transactors in self.transactors:
            transactors.finish()
        undecided = self.invariants.stabilities.undecided
        self._wait(lambda: bool(undecided()), lambda: f"transactions are open: {undecided()}")

    def _not_whole(self) -> list[str]:
        """Partitions without all their replicas in sync, as the committed metadata says."""
        return [
            f"{topic.name}-{index} {partition.isr} of {partition.replicas}, leader {partition.leader}"
            for topic in self.invariants.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.leader < 0 or sorted(partition.isr) != sorted(partition.replicas)
        ]

    def read_all(self) -> None:
        for consumer in (*self.consumers, *self.table_readers):
            consumer.stop()
        readers = [self.consumer(topic, f"final-{topic.name}", is_final=True) for topic in self.options.topics]
        readers += [
            self.consumer(topic, f"final-{topic.name}", is_final=True, committed_only=True)
            for topic in self.options.outputs
        ]
        if self.options.table is not None and not self._is_table_excused(self.options.table):
            readers.append(self.table_reader(self.options.table, "final-table", repeats=False))
        self._wait(
            lambda: any(not reader.is_at_end for reader in readers),
            lambda: (
                "the final read did not reach the end of "
                + ", ".join(
                    f"{each.partition} ({each.offset} of {each.end})"
                    for reader in readers
                    for each in reader.positions.values()
                    if each.end is None or each.offset < each.end
                )
            ),
        )

    def _wait(self, wanted: Callable[[], bool], why: Callable[[], str]) -> None:
        if not self.loop.run_while(wanted, within_s=LIVENESS_S):
            raise NotAlive(f"{LIVENESS_S:g} s after all faults were mended: {why()}")

    def judge(self) -> None:
        if self.history.surprises:
            raise Violation("; ".join(self.history.surprises[:5]))
        transacted = [each.ops() for each in self.processors] + [each.ops() for each in self.transactors]
        self.history.ops += [op for ops in transacted for op in ops]
        for topic in self.options.topics:
            # What transactions take from a topic, and what they write, is judged together.
            outputs = self.options.outputs if topic.name == "orders" else ()
            ops = _ops_of(self.history.ops, {topic.name, *(each.name for each in outputs)})
            if topic.forgets:
                ops = self.forgotten.left_of(ops)
            report = check(ops if topic.acks == ALL else [_without_offsets(op) for op in ops])
            wrong = {kind: count for kind, count in report.counts.items() if kind not in topic.allowed}
            if wrong:
                raise Violation(f"topic {topic.name}: {wrong}\n{report}")
        if self.options.table is not None:
            partitions = self.partitions(self.options.table.topic)
            missed = judge_table(self.history.ops, {str(each): self._records_of(each) for each in partitions})
            if missed:
                raise Violation(missed)
        for words in miscounted(each.node for each in self.cluster.nodes.values()):
            raise Violation(words)


def run(options: SimOptions) -> Result:
    """The whole run of one seed."""
    began = time.perf_counter()
    result = Result(options.seed)
    simulation = Run(options)
    with failing_loudly():
        try:
            simulation.start()
            simulation.start_clients()
            simulation.endure()
            simulation.recover()
            simulation.read_all()
            simulation.judge()
        except Exception as error:
            lines = [f"{type(error).__name__}: {error}", *options.lines()]
            lines += ["the last faults:", *simulation.nemesis.log[-NEMESIS_LINES:]]
            if not isinstance(error, NotAlive):
                lines.append(traceback.format_exc())
            result.failure = "\n".join(lines)
        finally:
            simulation.loop.after_event = None
            simulation.cluster.stop()
    result.simulated_s = simulation.loop.now
    result.faults = simulation.nemesis.count
    result.fault_kinds = simulation.nemesis.faults
    result.leader_changes = simulation.invariants.leader_changes
    result.acknowledged = simulation.history.acknowledged
    result.requests_acknowledged = sum(op.f == "send" and op.outcome == "ok" for op in simulation.history.ops)
    result.transactions_committed = simulation.transaction_truth.commits
    result.transactions_aborted = simulation.transaction_truth.aborts
    result.batches_committed = simulation.transaction_truth.batches_decided
    result.swaps = simulation.invariants.swaps
    result.forgotten = sum(truth.start for truth in simulation.invariants.partitions.values())
    result.events = simulation.loop.events
    result.trace = simulation.loop.trace
    result.real_s = time.perf_counter() - began
    return result


def _ops_of(ops: list[Op], topics: set[str]) -> list[Op]:
    """What was done on some topics; what names no partition belongs to all."""
    found = []
    wanted = {"", *topics}
    for op in ops:
        # A batch goes to one partition. What a consumer does may span topics.
        mops = op.mops[:1] if op.f == "send" else op.mops
        named = {_topic_of(mop) for mop in mops}
        if named <= wanted:
            found.append(op)
        elif not named.isdisjoint(topics):
            found.append(replace(op, mops=tuple(mop for mop in mops if _topic_of(mop) in wanted)))
    return found


def _without_offsets(op: Op) -> Op:
    """Where a record is told to be that one replica alone has, another may come to lie."""
    if op.f != "send":
        return op
    return replace(op, mops=tuple(Send(mop.partition, mop.value) for mop in op.mops if isinstance(mop, Send)))


def _topic_of(mop: Mop) -> str:
    if isinstance(mop, Send | Poll | Assign | Watermark | Committed | Consumed):
        return mop.partition.rpartition("-")[0]
    return ""


class _Loud(logging.Handler):
    """A node survives its own mistakes, at the price of a connection. In a simulation they end the run."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            if isinstance(record.exc_info[1], Violation):
                raise record.exc_info[1]
            raise Violation(f"{record.getMessage()}: {record.exc_info[1]!r}") from record.exc_info[1]


@contextmanager
def failing_loudly() -> Iterator[None]:
    """While this holds, whatever a node logs with a traceback raises."""
    root = logging.getLogger("strandline")
    handler = _Loud(logging.ERROR)
    was_propagating, level = root.propagate, root.level
    root.addHandler(handler)
    root.propagate = False
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.propagate = was_propagating
        root.setLevel(level)
