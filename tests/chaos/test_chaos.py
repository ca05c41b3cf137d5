"""Three brokers as processes under kills and pauses, for as long as a test may take. `make chaos` is the long run.

Without root: no partitions, no power cuts. The verdict is the checker's, and the same history with one acknowledged
record taken out of it must not pass.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from bench.brokers import BrokerFailed
from bench.cluster_node import StrandlineSystem
from bench.clusters import Cluster
from tests.chaos import network as namespaces
from tests.chaos.availability import acknowledgement_times, longest_silence_s, time_without
from tests.chaos.disks import NodeDisk
from tests.chaos.faults import FAULTS, possible
from tests.chaos.ground import Ground, GroundFailed, ground, machine_wide_lock
from tests.chaos.groups import GROUP_SETTINGS, PROTOCOLS
from tests.chaos.nemesis import Nemesis
from tests.chaos.rounds import Round, play
from tests.chaos.shares import SHARE_SETTINGS
from tests.chaos.tables import CLEANING_SETTINGS, Written
from tests.chaos.tables import Ledger as TableLedger
from tests.chaos.transactions import TRANSACTION_SETTINGS
from tests.crash.filesystems import why_not_mountable
from tests.crash.harness import new_seed, without_one_record

from strandline.testing.checker import check
from strandline.testing.history import Acknowledged, Consumed, Member, Op, Poll, Send, SharePosition

SESSION_MS = 3_000


def storm(seconds: float, *, rate: int = 400) -> tuple[Round, Nemesis]:
    seed = new_seed()
    rng = random.Random(seed)
    sessions = {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "500"}
    settings = {**GROUP_SETTINGS, **TRANSACTION_SETTINGS, **CLEANING_SETTINGS, **SHARE_SETTINGS, **sessions}
    with ground(StrandlineSystem(), settings=settings, plain=True) as made:
        wanted = possible(made, ["kill -9", "pause", "short pause", "clean restart"])
        nemesis = Nemesis(made, wanted, rng, SESSION_MS / 1000, print)
        try:
            made.cluster.start()
            played = play(
                nemesis,
                1,
                seconds=seconds,
                per_second=rate,
                seed=seed,
                stopping=threading.Event(),
                say=print,
                kafka_python=False,
            )
        except BaseException as error:
            for node in made.cluster.nodes:
                error.add_note(f"node {node.node_id}:\n{node.log_text()[-4000:]}")
            raise
        tracebacks = [node.log_text() for node in made.cluster.nodes if "Traceback" in node.log_text()]
    assert not tracebacks, tracebacks[0][-4000:]
    return played, nemesis


def judge(played: Round, nemesis: Nemesis) -> None:
    print(played.report)
    assert played.is_clean, f"{played.report} {played.wrong}"
    assert not nemesis.unexpected_exits
    assert played.sends.keys() == {"ok"}, "a send was given up, though it could have been retried"
    assert not [fault.remark for fault in played.faults if fault.remark]
    assert not check(without_one_record(played.ops, random.Random(1))).ok, "a lost record would not have been noticed"
    assert played.table_passes, "nobody read the compacted topic to its end"
    judge_groups(played.ops)
    judge_transactions(played.ops)
    judge_shares(played.ops)


def judge_transactions(ops: list[Op]) -> None:
    """Transactions were committed and aborted, and what must not happen to them would have been noticed."""
    all_committed = [op for op in ops if op.f == "txn" and op.outcome == "ok"]
    committed = all_committed[0]
    assert any(op.f == "txn" and op.outcome == "fail" for op in ops)
    planted = {
        "G1a": [replace(op, outcome="fail") if op is committed else op for op in ops],
        "doubled": [*ops, replace(committed, mops=tuple(mop for mop in committed.mops if not isinstance(mop, Send)))],
        "precommitted-read": [replace(op, invoked_ns=2**62) if op is committed else op for op in ops],
    }
    for anomaly, history in planted.items():
        assert check(history).counts[anomaly], f"{anomaly} would not have been noticed"
    # What the last one of a partition skips may be yet to come, and in a storm there are few.
    assert any(check(without_consumed(ops, each)).counts["skipped"] for each in all_committed)


def without_consumed(ops: list[Op], one: Op) -> list[Op]:
    """As if a transaction had written what it wrote, and taken nothing for it."""
    mops = tuple(mop for mop in one.mops if not isinstance(mop, Consumed))
    return [replace(op, mops=mops) if op is one else op for op in ops]


def judge_groups(ops: list[Op]) -> None:
    """Each group committed and was asked about, and one record that no member processed would have been noticed."""
    committed = {mop.group for op in ops if op.f == "commit" and op.outcome == "ok" for mop in op.mops}
    asked = {mop.group for op in ops if op.f == "read_committed_offset" for mop in op.mops}
    assert len(committed) == len(asked & committed) == len(PROTOCOLS)
    for group in sorted(committed):
        found = check(without_one_processed(ops, group)).counts
        assert found["group-skip"], f"a record that {group} skipped would not have been noticed"


def judge_shares(ops: list[Op]) -> None:
    """Tasks were accepted and released, and what must not happen to them would have been noticed."""
    accepted = [op for op in ops if op.f == "share_acknowledge" and op.outcome == "ok"]
    one = next(op for op in accepted if any(mop.kind == "accept" for mop in op.mops if isinstance(mop, Acknowledged)))
    (start,) = (op for op in ops if op.f == "share_start")
    (at_end,) = start.mops
    assert isinstance(at_end, SharePosition)
    planted = {
        "double-acquire": [*ops, replace(one, process=-1, invoked_ns=2**62)],
        "stuck-task": [replace(op, mops=(at_end._replace(offset=0),)) if op is start else op for op in ops],
    }
    for anomaly, history in planted.items():
        assert check(history).counts[anomaly], f"{anomaly} would not have been noticed"


def without_one_processed(ops: list[Op], group: str) -> list[Op]:
    """The history of a group whose members left out the first record of a partition."""
    members = {op.process for op in ops for mop in op.mops if isinstance(mop, Member) and mop.group == group}
    planted = []
    for op in ops:
        if op.process in members and op.f == "poll":
            mops = tuple(
                Poll(
                    mop.partition, tuple(record for record in mop.records if record[0] != 0 or mop.partition[-1] != "0")
                )
                if isinstance(mop, Poll)
                else mop
                for mop in op.mops
            )
            planted.append(replace(op, mops=mops))
        else:
            planted.append(op)
    return planted


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_in_a_short_storm() -> None:
    played, nemesis = storm(8)
    judge(played, nemesis)
    assert played.faults


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_in_a_storm() -> None:
    played, nemesis = storm(90)
    judge(played, nemesis)
    assert len(played.faults) >= 5
    assert played.acknowledged > 10_000


def sends(*times_s: float, partition: str = "t-0") -> list[Op]:
    return [
        Op(1, "ok", "send", (Send(partition, str(number), number),), 0, int(time_s * 1e9))
        for number, time_s in enumerate(times_s)
    ]


@pytest.mark.parametrize(
    ("ops", "silence_s"),
    [
        (sends(*range(12)), 1.0),
        (sends(1, 2, 9, 10), 7.0),
        (sends(1, 2, 14), 8.0),
        (sends(0, 11), 9.0),
        (sends(1, 2, 3, 4, 5, 6, 7, 8, 9, 10) + sends(1, 10, partition="t-1"), 9.0),
        ([], 0.0),
    ],
    ids=["steady", "gap", "gap over the end", "nothing inside", "the worse partition", "no acknowledgement"],
)
def test_silence(ops: list[Op], silence_s: float) -> None:
    times = acknowledgement_times(ops)
    # Told from when the fault began, at second 1, to when the next one did, at second 10.
    assert longest_silence_s(times, int(1e9), int(10e9)) == pytest.approx(silence_s)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 9.0),
        ([(2, 4)], 7.0),
        ([(0, 3), (2, 4)], 6.0),
        ([(3, 5), (4, 20)], 2.0),
        ([(0, 99)], 0.0),
        ([(20, 30)], 9.0),
    ],
)
def test_time_outside_of_faults(spans: list[tuple[int, int]], seconds: float) -> None:
    found = time_without(int(1e9), int(10e9), [(int(start * 1e9), int(end * 1e9)) for start, end in spans])
    assert found == pytest.approx(seconds)


A, B = b"a", b"b"
WRITTEN = {0: Written(A, b"1", 0.0), 1: Written(B, b"1", 0.0), 2: Written(A, b"2", 0.0), 3: Written(B, None, 0.0)}


@pytest.mark.parametrize(
    ("found", "end", "is_right"),
    [
        ({A: (2, b"2"), B: (3, None)}, 4, True),
        ({A: (2, b"2")}, 4, True),  # A tombstone may be gone.
        ({A: (2, b"2"), B: (1, b"1")}, 4, False),  # What it deleted may not stay.
        ({A: (2, b"2"), B: (1, b"1")}, 3, True),  # A reader that had another end in mind.
        ({B: (3, None)}, 4, False),
        ({A: (0, b"1"), B: (3, None)}, 4, False),
        ({A: (5, b"2"), B: (3, None)}, 6, False),  # Renumbered.
        ({A: (2, b"3"), B: (3, None)}, 4, False),
    ],
)
def test_what_a_table_must_hold(found: dict[bytes, tuple[int, bytes | None]], end: int, is_right: bool) -> None:
    assert (TableLedger({0: WRITTEN}).wrong_with(0, found, end) == "") is is_right


def test_only_what_the_ground_allows_is_done(tmp_path: Path) -> None:
    assert len({fault.kind for fault in FAULTS}) == len(FAULTS)
    made = Ground(Cluster("plain", [], tmp_path), tmp_path)
    assert {fault.kind for fault in possible(made)} == {"kill -9", "clean restart", "pause", "short pause"}
    with pytest.raises(BrokerFailed, match="power cut"):
        possible(made, ["power cut"])


@pytest.mark.skipif(bool(why_not_mountable(loop=True)), reason=why_not_mountable(loop=True))
def test_a_full_disk_is_full(tmp_path: Path) -> None:
    disk = NodeDisk.create(tmp_path / "node")
    try:
        disk.fill()
        with pytest.raises(OSError, match="No space"):
            (disk.mount_point / "more").write_bytes(bytes(65_536))
        disk.empty()
        (disk.mount_point / "more").write_bytes(bytes(65_536))
    finally:
        disk.release()


@pytest.mark.skipif(bool(namespaces.why_not()), reason=namespaces.why_not())
def test_a_network_can_be_cut_one_way() -> None:
    try:
        with machine_wide_lock():
            namespaces.remove_all()
            network = namespaces.Network((1, 2, 3))
            try:
                network.create()
                assert is_heard(1, 2)
                network.mute(1)
                assert not is_heard(1, 2)
                network.heal()
                assert is_heard(1, 2)
                network.cut_off(1, from_clients=False)
                assert not is_heard(1, 2)
                assert is_heard(2, 3)
            finally:
                namespaces.remove_all()
    except GroundFailed as reason:
        pytest.skip(str(reason))


def is_heard(speaker: int, listener: int) -> bool:
    """Whether a datagram of one node reaches the other: nothing has to come back."""
    listening = (
        "import socket,sys; s=socket.socket(2,2); s.bind(('0.0.0.0',7007)); s.settimeout(0.7); print(1,flush=True)"
    )
    listening += "\ntry: s.recv(1)\nexcept TimeoutError: sys.exit(1)"
    speaking = f"import socket; socket.socket(2,2).sendto(b'x',('{namespaces.host_of(listener)}',7007))"
    with subprocess.Popen(
        [*namespaces.inside(listener), sys.executable, "-c", listening], stdout=subprocess.PIPE, text=True
    ) as ear:
        assert ear.stdout is not None
        assert ear.stdout.readline()
        # The first datagram may be lost while addresses are resolved.
        for _ in range(3):
            subprocess.run([*namespaces.inside(speaker), sys.executable, "-c", speaking], check=False)
        return ear.wait() == 0
