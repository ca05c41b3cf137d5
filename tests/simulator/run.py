"""One run of the whole-broker simulation: set up, faults, heal, liveness, final read, verdict.

    result = run(options_of(seed))
    assert result.failure is None, result

Safety is judged throughout: by the invariants after every event, and by the history checker at the end. After the
faults are mended the cluster must come back by itself (`availability`), and a final read reaches every end.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulator.actors import Actors, NotAlive
from tests.simulator.clients.committer import RecreatedCommitter
from tests.simulator.clients.table import judge_table
from tests.simulator.options import SimOptions
from tests.simulator.truth.availability import Availability, unread, unsettled
from tests.simulator.truth.count_checks import miscounted
from tests.simulator.truth.invariants import Violation
from tests.simulator.truth.judging import failing_loudly, in_order_of_sending, ops_of, without_offsets
from tests.simulator.world.cluster import STALE_COPY_S

from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest
from strandline.codec.messages.elect_leaders_response import ElectLeadersResponse
from strandline.testing.checker import check

__all__ = ["NotAlive", "Result", "Run", "failing_loudly", "run"]

LEADER_S: Final = 45.0
"""After the faults are mended, how long a partition may be without a leader that it could have."""
LIVENESS_S: Final = 120.0
"""After the faults are mended, how long the cluster may take to be whole again."""
STORE_S: Final = LIVENESS_S + STALE_COPY_S
"""After that, how long copies may take, and the deletion of what is not needed."""
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
    """As decided, on any request."""
    batches_committed: int = 0
    """Of sinks."""
    swaps: int = 0
    """Cleaned segments that took the place of others."""
    copied: int = 0
    """Segments that were copied to the object store."""
    store_reads: int = 0
    """Reads of the object store."""
    objects: int = 0
    """Objects of object topics that were committed."""
    merged: int = 0
    """Ranges of them that segments took over."""
    compacted: int = 0
    """Segments in the store that took the place of others."""
    orphans: int = 0
    """Objects that no commit named, and that were condemned."""
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
            f"{self.swaps} segments cleaned, {self.forgotten} offsets forgotten, {self.copied} segments copied to the "
            f"object store and {self.store_reads} reads of it, {self.objects} objects committed, {self.merged} ranges "
            f"merged, {self.compacted} segments compacted there and {self.orphans} orphans, "
            f"{self.events} events, trace {self.trace:08x}"
        )


class Run(Actors):
    """The phases of one run; scenarios use them one by one, `run` all of them in order."""

    def __init__(self, options: SimOptions) -> None:
        super().__init__(options)
        self.availability = Availability(self.cluster, self.invariants)

    # Faults, and after them

    def endure(self) -> None:
        self.nemesis.start()
        self.loop.run_until(self.loop.now + self.options.safety_s)
        self.nemesis.heal()

    def recover(self) -> None:
        """Every producer must be acknowledged again on every partition, all replicas be in sync, all groups settle."""
        for group in self.groups:
            group.calm()
        for share_group in self.share_groups:
            share_group.calm()
        for transactors in self.transactors:
            transactors.calm()
        for consumer in self.consumers:
            consumer.calm()
        for reader in self.stalled_readers:
            reader.stop()
        if self.administrator is not None:
            self.administrator.stop()
        availability = self.availability
        self._wait(availability.leaderless, "no leader", within_s=LEADER_S)
        for producer in self.producers:
            for lane in producer.lanes if producer.known else ():
                producer.send(lane, 1)
        for producer in self.producers:
            producer.stop()
        assert not self.producers or any(producer.known for producer in self.producers), "no producer learnt who leads"
        committed = {committer: committer.committed for committer in self.committers}
        self._wait(
            lambda: [each.group for each in self.committers if each.committed == committed[each]],
            "no offset was committed",
        )
        for committer in self.committers:
            committer.stop()
        self._wait(lambda: availability.unacknowledged(self.producers), "not acknowledged")
        self._wait(availability.not_whole, "not in sync")
        # From here on nothing excuses a transaction that does not end.
        self.invariants.stabilities.calm_since = self.loop.now
        self._wait(lambda: unsettled(self.groups), "groups are not settled")
        self._wait(lambda: unsettled(self.transactors), "transactions are not settled")
        self._wait(lambda: unsettled(self.share_groups), "share groups are not settled")
        for group in self.groups:
            group.finish()
        for share_group in self.share_groups:
            share_group.finish()
        for transactors in self.transactors:
            transactors.finish()
        self._wait(self.invariants.stabilities.undecided, "transactions are open")
        self._wait(lambda: unsettled(self.stalled_readers), "answers did not come")
        self.hand_back()
        self._wait(lambda: availability.behind(self.consumers), "not read")
        if self.options.has_tiers:
            self._wait(self.tier_truth.left, "the store is not as the metadata says", within_s=STORE_S)

    def hand_back(self) -> None:
        """Have every partition led by its first replica: a broker that may lead must do so when it is asked to."""
        client = self._client("elector", [topic.name for topic in self.options.topics])
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=4_000)

        def ask(_: object = None) -> None:
            client.runtime.call_later(2.0, client.ask_any, request, 2, ElectLeadersResponse, ask)

        client.ask_any(request, 2, ElectLeadersResponse, ask)
        self._wait(self.availability.led_by_others, "not led by the first replica")
        client.kill()

    def _not_whole(self) -> list[str]:
        return self.availability.not_whole()

    def read_all(self) -> None:
        for consumer in (*self.consumers, *self.table_readers):
            consumer.stop()
        readers = [self.consumer(topic, f"final-{topic.name}", is_final=True) for topic in self.options.topics]
        readers += [
            self.consumer(topic, f"final-{topic.name}", is_final=True, committed_only=True)
            for topic in self.options.outputs
        ]
        if self.options.table is not None:
            readers.append(self.table_reader(self.options.table, "final-table", repeats=False))
        self._wait(lambda: unread(readers), "the final read did not reach the end")

    def _wait(self, what_is_left: Callable[[], list[str]], words: str, *, within_s: float = LIVENESS_S) -> None:
        if not self.loop.run_while(lambda: bool(what_is_left()), within_s=within_s):
            down = [each.name for each in self.cluster.nodes.values() if not each.is_up]
            not_running = f" (not running: {', '.join(down)})" if down else ""
            raise NotAlive(
                f"{words}, {within_s:g} s after all faults were mended{not_running}: {'; '.join(what_is_left())}"
            )

    def judge(self) -> None:
        vanished = [
            words for each in self.committers if isinstance(each, RecreatedCommitter) for words in each.vanished
        ]
        if vanished:
            raise Violation(f"acknowledged commits vanished: {'; '.join(vanished[:3])}")
        if self.history.surprises:
            raise Violation("; ".join(self.history.surprises[:5]))
        transacted = [each.ops() for each in self.processors] + [each.ops() for each in self.transactors]
        self.history.ops += [op for ops in transacted for op in ops]
        for topic in self.options.topics:
            # What transactions take from a topic, and what they write, is judged together.
            outputs = self.options.outputs if topic.name == "orders" else ()
            ops = ops_of(self.history.ops, {topic.name, *(each.name for each in outputs)})
            ops = in_order_of_sending(ops)
            if topic.forgets:
                ops = self.forgotten.left_of(ops)
            report = check(ops if topic.acks == ALL else [without_offsets(op) for op in ops])
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
    """Run one seed."""
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
    result.copied = simulation.tier_truth.copied
    truth = simulation.object_truth
    result.objects, result.merged, result.orphans = truth.objects, truth.released, truth.condemned
    result.compacted = simulation.tier_truth.compacted
    result.store_reads = simulation.cluster.bucket.counts["read"]
    result.forgotten = sum(truth.start for truth in simulation.invariants.partitions.values())
    result.events = simulation.loop.events
    result.trace = simulation.loop.trace
    result.real_s = time.perf_counter() - began
    return result
