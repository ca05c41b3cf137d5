"""A run is a row of rounds: a new topic, clients, faults, healing, a full read, the verdict.

Rounds keep the history small enough to judge in seconds, and a failure close to its cause; the cluster lives through
all of them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.brokers import BrokerFailed
from bench.cluster_node import StrandlineSystem
from bench.wire import ServerRefused
from tests.chaos.availability import acknowledgement_times, longest_silence_s, time_without
from tests.chaos.clients import clients_of
from tests.chaos.groups import PROTOCOLS, PositionWatcher, groups_over
from tests.chaos.nemesis import Inflicted, Nemesis
from tests.chaos.shares import TASK_SETTINGS, ShareWorkload, shares_over, tasks_of, without_clocks
from tests.chaos.tables import BRIEF_SETTINGS, TABLE_SETTINGS, brief_of, cleaned_over, table_of
from tests.chaos.transactions import (
    LEAVE_S_MAX,
    OUTPUT_PARTITIONS,
    STALL_S_MAX,
    TRANSACTION_TIMEOUT_MS,
    WAKE_UPS_OF_AN_END,
    StableOffsetWatcher,
    TransactionalWorkload,
    outputs_of,
    workload_over,
)

from strandline.ids import TopicPartition
from strandline.testing.checker import Report, check
from strandline.testing.client_threads import ClientHangs, ClientThread
from strandline.testing.final_read import read_to_the_end
from strandline.testing.history import Op, Send
from strandline.testing.recorder import Recorder

PARTITIONS = 6
SHARES_PART = 10
"""So many times fewer tasks than other records: each is acknowledged by itself."""
FINAL_READ_TIMEOUT_S = 120.0
FIRST_ACKS = 100
FIRST_ACKS_TIMEOUT_S = 60.0
GROUPS_TIMEOUT_S = 120.0
"""How long the groups may take to the end, once all is healed and nobody writes any more."""

CLIENT_END_S_MAX = LEAVE_S_MAX + 60.0
"""How long a client may take to stop; a worker in transactions takes longest."""

SETTLE_TIMEOUT_S = STALL_S_MAX + 30.0
"""How long a transaction may be open after the last worker has left, on a machine that is busy."""

TOPIC_SETTINGS = {
    "min.insync.replicas": "2",
    # A node whose clock is two hours behind must not refuse what clients stamp with the true time.
    "message.timestamp.after.max.ms": str(2**63 - 1),
    # Small segments, so that recovery, truncation and catching up also cross their ends.
    "segment.bytes": str(4 << 20),
}


@dataclass
class Round:
    """What one round came to."""

    topic: str
    ops: list[Op]
    report: Report
    faults: list[Inflicted]
    silences_s: list[float]
    """Per fault, how long some partition acknowledged nothing."""
    fatal_errors: list[str] = field(default_factory=list)
    groups_behind: list[str] = field(default_factory=list)
    """Groups that did not reach the end, though nothing was wrong any more that could keep them from it."""
    sends: Counter[str] = field(default_factory=Counter)
    """Records outside of transactions, by outcome; so are the next two."""
    commits: Counter[str] = field(default_factory=Counter)
    transactions: Counter[str] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)
    """How the lives of those who work in transactions ended."""
    worker_complaints: list[str] = field(default_factory=list)
    hanging_clients: list[str] = field(default_factory=list)
    """Whose library does not return from a call: librdkafka 2.16 may, when brokers have left the metadata."""
    longest_stall_s: float = 0.0
    """How long readers of what is committed were held up at one offset, faults not counted."""
    stalls: list[str] = field(default_factory=list)
    """Where that was longer than a transaction may be open, or one never ended."""
    cleaned_wrong: list[str] = field(default_factory=list)
    """What is wrong with the topic that is compacted, and the one that forgets."""
    table_passes: int = 0
    """How often the compacted one was read from its start to its end."""
    seconds: float = 0.0

    @property
    def acknowledged(self) -> int:
        return self.sends["ok"]

    @property
    def wrong(self) -> list[str]:
        """What is wrong beside what the checker found."""
        clients = [*self.fatal_errors, *self.hanging_clients, *self.worker_complaints]
        return [*clients, *self.groups_behind, *self.stalls, *self.cleaned_wrong]

    @property
    def is_clean(self) -> bool:
        return self.report.ok and not self.report.without_final_read and not self.wrong


def play(
    nemesis: Nemesis,
    number: int,
    *,
    seconds: float,
    per_second: int,
    seed: int,
    stopping: threading.Event,
    say: Callable[[str], None],
    kafka_python: bool = True,
) -> Round:
    """One round. kafka-python may leave a socket open when a connection is lost, which a test run cannot have."""
    cluster = nemesis.ground.cluster
    topic = f"chaos-{number}"
    cluster.create_topic(topic, PARTITIONS, TOPIC_SETTINGS)
    cluster.create_topic(outputs_of(topic), OUTPUT_PARTITIONS, TOPIC_SETTINGS)
    cluster.create_topic(table_of(topic), 2, TABLE_SETTINGS)
    cluster.create_topic(brief_of(topic), 1, BRIEF_SETTINGS)
    partitions = [TopicPartition(topic, index) for index in range(PARTITIONS)]
    recorder = Recorder()
    producers, consumers = clients_of(
        recorder, cluster.bootstrap, partitions, seed=seed, per_second=per_second, kafka_python=kafka_python
    )
    members, watchers = groups_over(recorder, cluster.bootstrap, partitions, seed=seed)
    # One after the other, so that a long run has had all.
    kind = sorted(PROTOCOLS)[number % len(PROTOCOLS)]
    work = workload_over(recorder, cluster.bootstrap, partitions, seed=seed, kind=kind)
    cleaned = cleaned_over(recorder, cluster.bootstrap, topic, seed=seed)
    shares: list[ShareWorkload] = []
    if cluster.name == StrandlineSystem.name:
        cluster.create_topic(tasks_of(topic), 1, {**TOPIC_SETTINGS, **TASK_SETTINGS})
        shares = [shares_over(recorder, cluster.bootstrap, topic, seed=seed, per_second=per_second / SHARES_PART)]
    clients = [*producers, *consumers, *members, *watchers, *work.seats, *work.onlookers, *cleaned.clients]
    clients += [client for each in shares for client in each.clients]
    first_fault = len(nemesis.done)
    began = time.monotonic()
    hanging_clients: list[str] = []
    with contextlib.ExitStack() as stack:
        for client in clients:
            client.start()
            stack.callback(_stop, client, hanging_clients)
        # A fault before the first acknowledgement would measure how long clients take to start.
        recorder.wait_acknowledged(FIRST_ACKS, timeout_s=FIRST_ACKS_TIMEOUT_S)
        nemesis.run(topic, until=began + seconds, stopping=stopping)
        healed_acks = recorder.acknowledged + FIRST_ACKS
        recorder.wait_acknowledged(healed_acks, timeout_s=FIRST_ACKS_TIMEOUT_S)
        for producer in (*producers, *(each.producer for each in shares)):
            producer.stop()
        ends = _ends(recorder.ops())
        behind = _groups_behind([*watchers, work.positions], {str(each): ends.get(str(each), 0) for each in partitions})
        behind += filter(None, (each.finish(ends.get(str(each.partition), 0)) for each in shares))
        for client in clients:
            client.stopping.set()
    faults = nemesis.done[first_fault:]
    hanging = _settle(recorder, work)
    read = [*partitions, *work.outputs, *(each.partition for each in shares)]
    read_to_the_end(recorder, cluster.bootstrap, read, timeout_s=FINAL_READ_TIMEOUT_S)
    clocks_jumped = any(fault.kind == "clock jump" for fault in faults)
    ops = without_clocks(recorder.ops()) if clocks_jumped else recorder.ops()
    played = Round(topic, ops, check(ops), faults, _silences(ops, faults), groups_behind=behind)
    played.fatal_errors = [
        f"process {each.process}: {each.fatal_error.str()}" for each in producers if each.fatal_error is not None
    ]
    played.sends, played.commits, played.transactions = (
        Counter(op.outcome for op in ops if op.f == function) for function in ("send", "commit", "txn")
    )
    played.workers = work.ends
    played.longest_stall_s, played.stalls = _stalls(work.stable, faults)
    played.stalls += hanging
    played.worker_complaints = work.complaints
    played.hanging_clients = hanging_clients
    played.seconds = time.monotonic() - began
    played.cleaned_wrong = cleaned.judge(seconds=played.seconds, clocks_jumped=clocks_jumped)
    played.table_passes = sum(len(reader.passes) for reader in cleaned.readers)
    # The topic has been judged; deleting it under way is one more thing that must not disturb the next round.
    with contextlib.suppress(BrokerFailed, ServerRefused):
        cluster.delete_topic(topic)
        cluster.delete_topic(outputs_of(topic))
        cluster.delete_topic(table_of(topic))
        cluster.delete_topic(brief_of(topic))
        for each in shares:
            cluster.delete_topic(each.partition.topic)
    say(
        f"round {number}: {played.acknowledged:,} acknowledged, {played.transactions['ok']:,} transactions committed, "
        f"{len(faults)} faults, {_verdict(played)}"
    )
    return played


def _stop(client: ClientThread, hanging: list[str]) -> None:
    try:
        client.stop(timeout_s=CLIENT_END_S_MAX)
    except ClientHangs as reason:
        hanging.append(str(reason))


def _ends(ops: list[Op]) -> dict[str, int]:
    """The offset behind what was acknowledged, of each partition."""
    ends: dict[str, int] = {}
    for op in ops:
        for mop in op.mops:
            if isinstance(mop, Send) and op.f == "send" and op.outcome == "ok" and mop.offset is not None:
                ends[mop.partition] = max(mop.offset + 1, ends.get(mop.partition, 0))
    return ends


def _groups_behind(watchers: list[PositionWatcher], ends: dict[str, int]) -> list[str]:
    """The groups that do not reach what was acknowledged."""
    return [behind for watcher in watchers if (behind := watcher.wait_position(ends, timeout_s=GROUPS_TIMEOUT_S))]


def _settle(recorder: Recorder, work: TransactionalWorkload) -> list[str]:
    """All transactions have ended and the positions stand: where that is not so, in words."""
    wrong = [work.stable.wait_stable(timeout_s=SETTLE_TIMEOUT_S)]
    try:
        work.record_final_positions(recorder, timeout_s=SETTLE_TIMEOUT_S)
    except TimeoutError as reason:
        # Nobody is told of positions that an open transaction may still move.
        wrong.append(str(reason))
    return [each for each in wrong if each]


def _stalls(watcher: StableOffsetWatcher, faults: list[Inflicted]) -> tuple[float, list[str]]:
    """The longest time for which readers were held up while nothing was wrong, and each that was too long."""
    # A fault that was never recovered from lasted until the end.
    troubled = [(fault.began_ns, fault.whole_ns or 2**63) for fault in faults]
    allowed_s = max(STALL_S_MAX, TRANSACTION_TIMEOUT_MS / 1000 + WAKE_UPS_OF_AN_END * watcher.late_s)
    longest_s, found = 0.0, []
    for (partition, offset), (since_ns, until_ns) in watcher.spans.items():
        stalled_s = time_without(since_ns, until_ns, troubled)
        longest_s = max(longest_s, stalled_s)
        if stalled_s > allowed_s:
            found.append(
                f"readers of {partition} were held up at {offset} for {stalled_s:.1f} s without a fault, "
                f"while threads were woken {watcher.late_s:.2f} s late at most"
            )
    return longest_s, found


def _verdict(played: Round) -> str:
    return "clean" if played.is_clean else f"NOT CLEAN: {dict(played.report.counts)} {played.wrong}"


def _silences(ops: list[Op], faults: list[Inflicted]) -> list[float]:
    times = acknowledgement_times(ops)
    ends = [fault.began_ns for fault in faults[1:]] + [max((found[-1] for found in times.values()), default=0)]
    return [longest_silence_s(times, fault.began_ns, end) for fault, end in zip(faults, ends, strict=True)]
