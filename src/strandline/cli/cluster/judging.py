"""Judges a cluster in words: findings for `cluster health` and the web console.

It defines no command, so that the console reads the same judgement.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.cli.cluster.reading import quorum_or_failure
from strandline.cli.cluster.state import ClusterState, QuorumDescription, listed
from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import is_spoken
from strandline.cli.common.plain_words import count, size
from strandline.cli.doctor.findings import Finding, Level, note, ok, problem, warning
from strandline.cli.doctor.storage import storage_findings
from strandline.cli.txn.health import transaction_findings

ROOM_SHARE_MIN = 0.10
ROOM_SHARE_LOW = 0.02


def judged(cluster: Cluster, state: ClusterState) -> list[Finding]:
    """Return every finding about a cluster in this state, whose brokers are asked for what the state does not have."""
    findings = list(health_findings(state))
    if state.quorum_failure is None:
        # Without a quorum the leaders are unknown, and a broker that is asked for offsets may be gone.
        findings += transaction_findings(cluster)
    findings += storage_findings(cluster, [(broker.host, broker.port) for broker in state.live_brokers()])
    return findings


def health_findings(state: ClusterState) -> Iterator[Finding]:
    """Yield what is well and what is not, the worst kinds first."""
    yield from _quorum_findings(state.quorum, state.quorum_failure)
    yield from _leader_findings(state)
    yield from _replica_findings(state)
    yield from _disk_findings(state)
    moving = state.reassignments
    if moving:
        yield note("reassignment", f"{count(len(moving), 'partition')} being moved", "strandline cluster reassign")


def quorum_troubles(cluster: Cluster) -> Iterator[Finding]:
    """Yield what is wrong with the quorum; nothing if all is well, or if this user may not know."""
    if is_spoken(cluster):
        found = _quorum_findings(*quorum_or_failure(cluster))
        yield from (each for each in found if each.level in (Level.WARNING, Level.PROBLEM))


def _quorum_findings(quorum: QuorumDescription | None, failure: str | None) -> Iterator[Finding]:
    if failure is not None or (quorum is not None and quorum.leader_id < 0):
        text = failure or "the quorum has no leader"
        yield problem("quorum", text, "start the controllers that are down: a majority must run")
        return
    if quorum is None:
        yield note("quorum", "the cluster does not tell how its quorum is")
        return
    voters, silent = quorum.voters, quorum.silent_voters()
    words = f"node {quorum.leader_id} leads the quorum, and {len(voters) - len(silent)} of {len(voters)} voters answer"
    if silent:
        spare = len(voters) - len(silent) - (len(voters) // 2 + 1)
        left = f"{spare} more may be lost" if spare > 0 else "one more lost, and nothing in the cluster can change"
        if spare < 0:
            left = "the others ask a leader that was just elected within a second; look again"
        names = ", ".join(str(node_id) for node_id in silent)
        yield warning("quorum", f"{words}; {left}", f"start node {names}")
    else:
        yield ok("quorum", words)


def _leader_findings(state: ClusterState) -> Iterator[Finding]:
    offline = state.offline()
    if offline:
        reasons: dict[str, list[str]] = {}
        for each in offline:
            reasons.setdefault(state.why_offline(each), []).append(each.name)
        for reason, names in reasons.items():
            shown = ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")
            yield problem(
                "offline",
                f"{count(len(names), 'partition')} without a leader: {shown}; {reason}",
                "start that broker; if it is lost for good, `strandline cluster elect --unclean --topic NAME` takes "
                "another replica and loses what only the dead one had"
                if not state.has_lost_quorum
                else "first the quorum, which elects leaders",
            )
    away = state.not_preferred()
    if away:
        yield note(
            "preferred",
            f"{count(len(away), 'partition')} not led by the preferred replica: {listed(away)}",
            "strandline cluster elect",
        )


def _replica_findings(state: ClusterState) -> Iterator[Finding]:
    refusing = state.refusing_writes()
    if refusing:
        missing = sorted({node_id for each in refusing for node_id in each.missing})
        reasons = ", ".join(state.why_missing(node_id) for node_id in missing)
        yield problem(
            "min-in-sync",
            f"{count(len(refusing), 'partition')} with fewer replicas in sync than min.insync.replicas, so that "
            f"acks=all is refused: {listed(refusing)}; {reasons}",
            "bring these brokers back; `strandline cluster status --watch` shows them catch up",
        )
    for node_id, lacking in state.missing_by_broker().items():
        yield warning(
            "replicas",
            f"{state.why_missing(node_id)}: {count(len(lacking), 'partition')} lack its replica: {listed(lacking)}",
            _advice_on_missing(state, node_id),
        )
    at_minimum = [each for each in state.under_replicated() if each.is_at_minimum]
    if at_minimum:
        yield warning(
            "min-in-sync",
            f"{count(len(at_minimum), 'partition')} would refuse acks=all if one more replica were lost: "
            f"{listed(at_minimum)}",
            "bring the missing replicas back before you stop another broker",
        )
    idle = [broker for broker in state.brokers if not broker.is_up]
    for broker in idle:
        if not state.found.replicas_by_broker[broker.node_id]:
            yield warning(
                "brokers",
                f"broker {broker.node_id} is down, and no partition needs it",
                f"if it is gone for good: strandline cluster forget {broker.node_id}",
            )
    if state.has_lost_quorum:
        yield note("replicas", "which brokers and replicas are well is what a broker knew when the quorum ended")
    elif not state.under_replicated() and not state.offline():
        yield ok("replicas", f"all replicas of {count(len(state.partitions), 'partition')} are in sync")


def _advice_on_missing(state: ClusterState, node_id: int) -> str:
    broker = state.broker(node_id)
    if broker is not None and broker.is_up:
        return "it comes by itself; if it does not, its log says why"
    return (
        f"start broker {node_id}, and it catches up; if it is lost for good, give its id to a new node, or move its "
        f"replicas away: strandline cluster drain {node_id}"
    )


def _disk_findings(state: ClusterState) -> Iterator[Finding]:
    for broker in state.brokers:
        disk = broker.disk
        if disk is None:
            continue
        if disk.failed_directories:
            yield problem(
                "disk",
                f"broker {broker.node_id} has {count(disk.failed_directories, 'directory that failed')}",
                "look at its log; replace the disk and start it again, it fills itself",
            )
        if disk.total_bytes and disk.usable_bytes is not None:
            share = disk.usable_bytes / disk.total_bytes
            if share < ROOM_SHARE_MIN:
                level = Level.PROBLEM if share < ROOM_SHARE_LOW else Level.WARNING
                text = f"broker {broker.node_id} has {size(disk.usable_bytes)} of disk left ({share:.0%})"
                yield Finding(level, "disk", text, "delete or trim topics, shorten retention, or give it more room")
