"""Judges a history: every anomaly by the name that Jepsen's Kafka checker gave it, with evidence. Pure.

    report = check(ops)
    assert report.ok, report

| class | what happened |
|---|---|
| inconsistent-offsets | one offset held two values |
| duplicate | one value at two offsets |
| lost-write | a committed record below what was read was never read |
| unseen | an acknowledged record was never read, the final phase included |
| vanished | a record was read and is missing from the final read |
| G1a | a record was read whose write certainly failed |
| phantom | a record was read that was never sent |
| poll-skip, nonmonotonic-poll | the next call of a consumer jumped over records, or stepped back |
| int-poll-skip, int-nonmonotonic-poll | the same inside one call |
| nonmonotonic-send, int-nonmonotonic-send | a later send of a producer stands before an earlier one |
| nonmonotonic-watermark | one client saw the high watermark go back |
| nonmonotonic-commit | the only committer of a group read a lower position than it had committed |
| producer-id-twice | two producers were given one producer id |
| group-skip | a group's position stood above a record that none of its members had processed |
| zombie-commit | a member moved the position back that another member had committed since |
| nonmonotonic-position | a process read a lower position of a group than was committed or read before |
| precommitted-read | a record was read before the commit of its transaction was asked for |
| torn | some records of a transaction were read, and others of it are missing from the final read |
| doubled | two transactions of a group that count consumed one record |
| skipped | a record below a group's last position was consumed by no transaction that counts |
| double-acquire | a share group was given a record that was accepted before, or two consumers accepted it |
| early-delay | a share group was given a record before it was due |
| reordered-key | a share group with an order was given a record before an earlier one of its key was accepted |
| lost-task | a record is below a share group's start offset, and was neither accepted nor rejected |
| stuck-task | a share group did not finish a record by the end |

Reads of partitions that transactions write to are taken for read_committed ones. Of cycles (G1c) nothing is judged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from strandline.testing import group_checks, order_checks, record_checks, share_checks, transaction_checks
from strandline.testing.history import Op, Poll, Send
from strandline.testing.observed_log import ObservedLog, observe
from strandline.testing.record_checks import Anomaly

EVIDENCE_MAX = 20
"""How many anomalies of one class a report keeps; it counts all."""

RECORD_CHECKS: tuple[Callable[[ObservedLog], Iterator[Anomaly]], ...] = (
    record_checks.inconsistent_offsets,
    record_checks.duplicate,
    record_checks.lost_write,
    record_checks.unseen,
    record_checks.vanished,
    record_checks.aborted_read,
    record_checks.phantom,
)


@dataclass
class Report:
    """The verdict. `counts` has every anomaly, `anomalies` the first of each class with their evidence."""

    counts: Counter[str] = field(default_factory=Counter)
    anomalies: list[Anomaly] = field(default_factory=list)
    ops: int = 0
    sends: Counter[str] = field(default_factory=Counter)
    """Records sent, by outcome."""
    reads: int = 0
    """Records read by all processes together."""
    errors: Counter[str] = field(default_factory=Counter)
    """Error messages that clients got."""
    partitions: int = 0
    realtime_lag_ns: int = 0
    """The longest time for which a consumer that asked did not get a record that was known to exist; a metric."""
    without_final_read: tuple[str, ...] = ()
    """Partitions that no process read in full at the end; without that, `vanished` cannot be judged."""

    @property
    def ok(self) -> bool:
        return not self.counts

    def add(self, anomalies: Iterator[Anomaly]) -> None:
        for anomaly in anomalies:
            self.counts[anomaly.kind] += 1
            if self.counts[anomaly.kind] <= EVIDENCE_MAX:
                self.anomalies.append(anomaly)

    def __str__(self) -> str:
        sends = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.sends.items())) or "none"
        lines = [f"{self.ops} operations on {self.partitions} partitions; sends: {sends}; {self.reads} records read"]
        lines += [f"{count} x {error}" for error, count in self.errors.most_common(EVIDENCE_MAX)]
        if self.without_final_read:
            lines.append(f"no final read of {', '.join(self.without_final_read)}")
        if self.ok:
            lines.append("no anomalies")
        for kind, count in sorted(self.counts.items()):
            shown = [anomaly for anomaly in self.anomalies if anomaly.kind == kind]
            more = f", the first {len(shown)} of them" if len(shown) < count else ""
            lines.append(f"{count} x {kind}{more}:")
            lines += [f"    {anomaly}" for anomaly in shown]
        return "\n".join(lines)


def check(ops: Sequence[Op]) -> Report:
    """Reads the whole history and returns every anomaly in it. ValueError if the history itself makes no sense."""
    logs = observe(ops)
    report = Report(ops=len(ops), partitions=len(logs))
    report.without_final_read = tuple(sorted(name for name, log in logs.items() if not log.final_reads))
    _count(ops, report)
    for record_check in RECORD_CHECKS:
        for log in logs.values():
            report.add(record_check(log))
    report.add(_order_anomalies(ops, logs))
    report.add(group_checks.positions(ops))
    report.add(group_checks.group_skip(ops, logs))
    report.add(transaction_checks.precommitted_read(ops, logs))
    report.add(transaction_checks.torn(ops, logs))
    report.add(transaction_checks.exactly_once(ops, logs))
    report.add(share_checks.tasks(ops))
    report.realtime_lag_ns = order_checks.realtime_lag_ns(order_checks.in_call_order(ops))
    return report


def _order_anomalies(ops: Sequence[Op], logs: Mapping[str, ObservedLog]) -> Iterator[Anomaly]:
    ordered = order_checks.in_call_order(ops)
    yield from order_checks.poll_order(ordered, logs)
    yield from order_checks.send_order(ordered, logs)
    yield from order_checks.watermark_order(ordered)
    yield from order_checks.commit_order(ordered)
    yield from order_checks.producer_id_twice(ordered)


def _count(ops: Sequence[Op], report: Report) -> None:
    for op in ops:
        if op.error:
            report.errors[f"{op.f} {op.outcome}: {op.error}"] += 1
        for mop in op.mops:
            if isinstance(mop, Send):
                report.sends[op.outcome] += 1
            elif isinstance(mop, Poll):
                report.reads += len(mop.records)
