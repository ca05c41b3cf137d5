"""What is said of a cluster that is not whole, and where replicas go: from a state alone, without a cluster."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from strandline.cli.cluster import reading
from strandline.cli.cluster.cluster_rows import node_rows, partition_lines
from strandline.cli.cluster.judging import health_findings
from strandline.cli.cluster.reassigning import plan_lines
from strandline.cli.cluster.reassignment_plan import (
    Move,
    check_brokers,
    plan_drain,
    plan_file,
    plan_replicas,
    plan_replication_factor,
)
from strandline.cli.cluster.state import (
    BrokerState,
    ClusterState,
    DiskState,
    PartitionState,
    QuorumDescription,
    QuorumNode,
    Reassignment,
)
from strandline.cli.cluster.status import as_json_object
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed
from strandline.cli.doctor.findings import Level
from strandline.codec.messages.describe_quorum_response import DescribeQuorumResponse
from strandline.errors import ErrorCode


def broker(node_id: int, *, up: bool = True, rack: str | None = None, host: str = "", disk: DiskState | None = None):  # type: ignore[no-untyped-def]
    return BrokerState(node_id, host or f"h{node_id}", 9092, rack, up, disk)


def partition(index: int, leader: int | None, replicas: str, in_sync: str, minimum: int = 2) -> PartitionState:
    ids = tuple(int(digit) for digit in replicas)
    return PartitionState("orders", index, leader, ids, tuple(int(digit) for digit in in_sync), minimum)


def quorum(*silent: int, leader: int = 1) -> QuorumDescription:
    nodes = [QuorumNode(n, True, 100, 1_000 if n in silent else 99_800, 99_800, f"h{n}:9093") for n in (1, 2, 3)]
    return QuorumDescription(leader, 7, 100, tuple(nodes), 100_000)


WHOLE = ClusterState(
    "c",
    tuple(broker(n) for n in (1, 2, 3)),
    (partition(0, 1, "123", "123"), partition(1, 2, "231", "231")),
    quorum(),
    reassignments=(),
)
ONE_DOWN = ClusterState(
    "c",
    (broker(1), broker(2), broker(3, up=False)),
    (partition(0, 1, "123", "12"), partition(1, 2, "231", "12"), partition(2, 1, "312", "12")),
    quorum(3),
    reassignments=(),
)


def levels(state: ClusterState) -> dict[str, Level]:
    """The worst level of each check."""
    order = list(Level)
    found: dict[str, Level] = {}
    for finding in health_findings(state):
        found[finding.check] = max(finding.level, found.get(finding.check, Level.OK), key=order.index)
    return found


def test_a_whole_cluster_is_well() -> None:
    assert levels(WHOLE) == {"quorum": Level.OK, "replicas": Level.OK}
    assert partition_lines(WHOLE) == ["2 partitions, 6 replicas: all in sync"]


def test_one_broker_down_is_a_warning_that_names_it() -> None:
    assert levels(ONE_DOWN) == {"quorum": Level.WARNING, "replicas": Level.WARNING, "min-in-sync": Level.WARNING}
    said = [finding.text for finding in health_findings(ONE_DOWN)]
    assert all(finding.advice for finding in health_findings(ONE_DOWN)), "each says what to do"
    assert (
        "node 1 leads the quorum, and 2 of 3 voters answer; one more lost, and nothing in the cluster can change"
        in said
    )
    assert "broker 3 is down: 3 partitions lack its replica: orders-0, orders-1, orders-2" in said
    assert partition_lines(ONE_DOWN)[1] == ("3 lack a replica, because broker 3 is down: orders-0, orders-1, orders-2")
    rows = {row["node"]: row for row in node_rows(ONE_DOWN)}
    assert [(row["state"], row["leaders"], row["out_of_sync"]) for row in rows.values()] == [
        ("up", 2, 0),
        ("up", 1, 0),
        ("down", 0, 3),
    ]


def test_writes_that_are_refused_are_a_problem() -> None:
    state = ClusterState(
        "c", (broker(1), broker(2, up=False), broker(3)), (partition(0, 1, "123", "1"),), quorum(), reassignments=()
    )
    assert levels(state)["min-in-sync"] is Level.PROBLEM
    (problem,) = [finding for finding in health_findings(state) if finding.level is Level.PROBLEM]
    assert "acks=all is refused: orders-0; broker 2 is down, broker 3 is catching up" in problem.text


def test_a_partition_without_a_leader_says_who_could_lead() -> None:
    state = ClusterState(
        "c", (broker(1), broker(2, up=False)), (partition(0, None, "12", "2"),), quorum(), reassignments=()
    )
    (problem,) = [finding for finding in health_findings(state) if finding.check == "offline"]
    assert problem.level is Level.PROBLEM
    assert "orders-0; only 2 may lead it, and broker 2 is down" in problem.text
    assert as_json_object(state)["offline"] == ["orders-0"]


def test_no_quorum_is_a_problem_though_the_rest_is_well() -> None:
    state = ClusterState("c", WHOLE.brokers, WHOLE.partitions, None, "the quorum has no leader")
    # The state is what a broker knew when the quorum ended, so that nothing is said to be well.
    assert levels(state) == {"quorum": Level.PROBLEM, "replicas": Level.NOTE}
    offline = ClusterState("c", WHOLE.brokers, (partition(0, None, "12", "2"),), None, "the quorum has no leader")
    (problem,) = [finding for finding in health_findings(offline) if finding.check == "offline"]
    assert "elect" not in problem.advice.split()
    assert partition_lines(state) == ["2 partitions, 6 replicas, as a broker knew them when the quorum ended"]
    leaderless = ClusterState("c", WHOLE.brokers, WHOLE.partitions, quorum(leader=-1))
    assert levels(leaderless) == {"quorum": Level.PROBLEM, "replicas": Level.NOTE}


def test_a_voter_that_never_asked_the_leader_is_silent() -> None:
    """The leader of before, which died: the next one has no time for it."""
    nodes = (QuorumNode(1, True, 100, -1, -1), QuorumNode(2, True, 100, 99_999), QuorumNode(3, True, 100, 99_800))
    assert QuorumDescription(2, 8, 100, nodes, 100_000).silent_voters() == [1]
    without_times = tuple(QuorumNode(n, True, 100) for n in (1, 2, 3))
    assert QuorumDescription(2, 8, 100, without_times, 100_000).silent_voters() == []


def test_a_user_who_may_not_know_the_quorum_hears_of_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = DescribeQuorumResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def ask(cluster: object) -> QuorumDescription | None:
        return reading._ask_quorum(SimpleNamespace(ask=lambda *_: refused))  # type: ignore[arg-type]  # no connection

    monkeypatch.setattr(reading, "read_quorum", ask)
    assert reading.quorum_or_failure(SimpleNamespace()) == (None, None)  # type: ignore[arg-type]  # not used
    state = ClusterState("c", WHOLE.brokers, WHOLE.partitions, None)
    assert levels(state) == {"quorum": Level.NOTE, "replicas": Level.OK}


@pytest.mark.parametrize(
    ("disk", "level"),
    [
        (DiskState(5, 100, 50), None),
        (DiskState(5, 100, 9), Level.WARNING),
        (DiskState(5, 100, 1), Level.PROBLEM),
        (DiskState(5, None, None), None),
        (DiskState(5, 100, 50, failed_directories=1), Level.PROBLEM),
    ],
)
def test_disks(disk: DiskState, level: Level | None) -> None:
    state = ClusterState("c", (broker(1, disk=disk),), (), quorum(), reassignments=())
    assert levels(state).get("disk") is level


def test_moves_and_leaders_elsewhere_are_notes() -> None:
    moving = (Reassignment("orders", 0, (1, 2, 3), (3,), ()),)
    state = ClusterState("c", WHOLE.brokers, (partition(0, 2, "123", "123"),), quorum(), reassignments=moving)
    assert levels(state) == {
        "quorum": Level.OK,
        "replicas": Level.OK,
        "preferred": Level.NOTE,
        "reassignment": Level.NOTE,
    }


def test_a_controller_alone_has_a_row_of_its_own() -> None:
    state = ClusterState("c", (broker(7),), (), quorum(2), reassignments=())
    assert [(row["node"], row["roles"], row["address"], row["state"]) for row in node_rows(state)] == [
        (1, ["controller"], "h1:9093", "up"),
        (2, ["controller"], "h2:9093", "silent"),
        (3, ["controller"], "h3:9093", "up"),
        (7, ["broker"], "h7:9092", "up"),
    ]


FOUR = ClusterState(
    "c",
    tuple(broker(n, disk=DiskState(8, sizes={("orders", 0): 1000, ("orders", 1): 24})) for n in (1, 2, 3, 4)),
    (partition(0, 1, "123", "123"), partition(1, 2, "231", "231"), partition(2, 3, "341", "341")),
)


def test_a_drain_moves_every_replica_to_those_that_have_few() -> None:
    moves = plan_drain(FOUR, 3)
    assert [str(move) for move in moves] == [
        "orders-0: 1,2,3 -> 1,2,4",
        "orders-1: 2,3,1 -> 2,4,1",
        "orders-2: 3,4,1 -> 2,4,1",
    ]
    assert plan_lines(FOUR, moves)[0] == "3 partitions to move, 1 KiB to copy"
    assert plan_drain(FOUR, 3) == moves, "a plan is the same when it is made again"


def test_a_drain_prefers_other_racks_then_other_hosts() -> None:
    brokers = (
        broker(1, rack="a", host="x"),
        broker(2, rack="b", host="y"),
        broker(3, rack="a", host="x"),
        broker(4, rack="c", host="z"),
    )
    (move,) = plan_drain(ClusterState("c", brokers, (partition(0, 1, "12", "12"),)), 2)
    assert move.after == (1, 4)
    hosts = tuple(broker(n, host=host) for n, host in ((1, "x"), (2, "y"), (3, "x"), (4, "z")))
    (move,) = plan_drain(ClusterState("c", hosts, (partition(0, 1, "12", "12"),)), 2)
    assert move.after == (1, 4)


def test_a_drain_that_cannot_be_says_why() -> None:
    with pytest.raises(
        CommandFailed, match=r"orders-0 and 1 others have up to 3 replicas, and only 2 other brokers are up"
    ):
        plan_drain(WHOLE, 3)
    with pytest.raises(NotFound, match="there is no broker 9"):
        plan_drain(WHOLE, 9)
    down = ClusterState("c", (broker(1), broker(2), broker(3, up=False)), (partition(0, 1, "12", "12"),))
    with pytest.raises(CommandFailed, match=r"orders-0 has 2 replicas"):
        plan_drain(down, 2)


def test_more_and_fewer_replicas() -> None:
    lone = ClusterState("c", FOUR.brokers, (partition(0, 1, "1", "1"), partition(1, 1, "1", "1")))
    assert [move.after for move in plan_replication_factor(lone, lone.partitions, 3)] == [(1, 2, 3), (1, 4, 2)]
    behind = (partition(0, 2, "123", "23"),)
    assert [move.after for move in plan_replication_factor(FOUR, behind, 2)] == [(2, 3)], "out of sync goes first"
    assert [move.after for move in plan_replication_factor(FOUR, behind, 1)] == [(2,)], "the leader stays"
    with pytest.raises(CommandFailed, match="cannot have 5 replicas: 4 brokers are up"):
        plan_replication_factor(FOUR, lone.partitions, 5)
    with pytest.raises(UsageFailed):
        plan_replication_factor(FOUR, lone.partitions, 0)


def test_named_replicas_are_rotated_so_that_leaders_are_spread() -> None:
    moves = plan_replicas(FOUR.partitions, [4, 3, 2], rotate=True)
    assert [move.after for move in moves] == [(4, 3, 2), (3, 2, 4), (2, 4, 3)]
    assert [move.after for move in plan_replicas(FOUR.partitions[:1], [4, 3], rotate=False)] == [(4, 3)]
    assert plan_replicas(FOUR.partitions[:1], [1, 2, 3], rotate=True) == []


def test_a_file_of_moves() -> None:
    entries = [
        {"topic": "orders", "partition": 0, "replicas": [4, 2], "log_dirs": ["any", "any"]},
        {"topic": "orders", "partition": 1, "replicas": [2, 3, 1]},
    ]
    moves = plan_file(FOUR, json.dumps({"version": 1, "partitions": entries}), file_name="f")
    assert moves == [Move("orders", 0, (1, 2, 3), (4, 2))]
    check_brokers(FOUR, moves)
    with pytest.raises(NotFound, match="there is no broker 9"):
        check_brokers(FOUR, [Move("orders", 0, (1,), (9,))])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "no JSON"),
        ("[]", "no plan of moves"),
        ('{"version": 2, "partitions": []}', "no plan of moves"),
        ('{"partitions": [{"topic": "orders"}]}', "names no topic, partition and replicas"),
        ('{"partitions": [{"topic": "orders", "partition": 0, "replicas": []}]}', "names no topic"),
        ('{"partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 1]}]}', "a broker twice"),
        ('{"partitions": [{"topic": "orders", "partition": 9, "replicas": [1]}]}', "no partition orders-9"),
        (
            '{"partitions": [{"topic": "orders", "partition": 0, "replicas": [1]}, '
            '{"topic": "orders", "partition": 0, "replicas": [2]}]}',
            "stands there twice",
        ),
    ],
)
def test_files_that_are_none(content: str, said: str) -> None:
    with pytest.raises(CommandFailed, match=said):
        plan_file(FOUR, content, file_name="f")
