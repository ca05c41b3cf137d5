"""`strandline storage check` of object topics: what it finds, what a repair deletes, and what it never touches."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.hostile.peer import Peer
from tests.tiers.objects.commit_log import PLACE_A, TOPIC_A, TOPIC_B, claim, commit, object_id, piece
from tests.tiers.objects.test_object_topics import OBJECT, wal_objects
from tests.tiers.raw_reads import fetch_once
from tests.tiers.test_storage_check import age, problems
from tests.tiers.tiered_nodes import fill, properties, read, wait_until

import strandline
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.tiers.metadata_fold import MetadataFold
from strandline.tiers.store.interface import StoredObject
from strandline.tiers.wal.commit_check import CheckedCommits, compare_commits, confirmed
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.events import COMMIT_TOPIC, RELEASED, CommitEvent, ObjectsCondemned, OffsetsMoved
from strandline.tiers.wal.wal_objects import object_id_of, wal_key

RECORDS = 60
SETTINGS = {"strandline_object_flush_interval_ms": "10"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with strandline.embedded(data=tmp_path / "data", properties=properties(tmp_path / "store", **SETTINGS)) as found:
        found.create_topic("orders", **OBJECT)
        rng = random.Random(4)
        fill(found.bootstrap, ["orders"], [rng.randbytes(500) for _ in range(RECORDS)])
        yield found


def test_every_kind_of_damage_is_named_and_only_what_is_needed_by_none_goes(
    log: EmbeddedBroker, tmp_path: Path
) -> None:
    store, cli = tmp_path / "store", CommandLine(log.bootstrap)
    sound = wait_until(lambda: wal_objects(store), "there are objects")
    assert len(sound) >= 4
    for path in sound:
        age(path)
    ended = cli.ok("storage", "check", "--deep")
    assert "all is well" in ended.stderr, "objects that a commit names are no orphans, however old"
    first, second, third = sound[:3]
    cluster_id = first.relative_to(store).parts[0]
    orphan = wal_key(cluster_id, object_id(7, broker=9, epoch=3))
    for key in (orphan, f"{cluster_id}/wal/00/notes.txt"):
        (store / key).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sound[3], store / key)
        age(store / key)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    flipped = bytearray(third.read_bytes())
    flipped[-1] ^= 1
    third.write_bytes(flipped)
    expected = [("missing", False), ("orphan", True), ("truncated", False), ("unknown", False)]
    assert problems(cli) == expected
    repaired = cli.run("storage", "check", "--repair", "--yes", "--deep", "--json")
    found = {each["problem"]: each for each in repaired.objects}
    assert sorted(found) == ["damaged", "missing", "orphan", "truncated", "unknown"]
    assert found["missing"]["topic"] == "orders"
    assert found["missing"]["objects"] == [first.relative_to(store).as_posix()]
    start, end = found["damaged"]["from"], found["damaged"]["to"]
    assert f"offsets {start} to {end - 1} of orders-0" in found["damaged"]["what"]
    assert not (store / orphan).exists()
    assert second.exists(), "what may be mended is not deleted"
    assert third.exists(), "what may be mended is not deleted"
    assert problems(cli) == [("missing", False), ("truncated", False), ("unknown", False)]
    assert len(read(log.bootstrap, "orders", 0, RECORDS)) == RECORDS, "the leader still has them"


def test_a_commit_log_that_was_lost_makes_no_orphans(tmp_path: Path) -> None:
    """A disk was replaced: a leader that began again at 0 would give offsets twice, and the sweeper delete the rest."""
    store, data = tmp_path / "store", tmp_path / "data"
    quick = {"strandline_object_orphan_ms": "1000", "log_segment_delete_delay_ms": "0"}
    with strandline.embedded(data=data, properties=properties(store, **SETTINGS, **quick)) as log:
        cli = CommandLine(log.bootstrap)
        log.create_topic("orders", **OBJECT)
        fill(log.bootstrap, ["orders"], [b"%d" % number for number in range(RECORDS)])
        before = wal_objects(store)
        log.stop()
        for path in before:
            age(path)
        shutil.rmtree(data / f"{COMMIT_TOPIC}-0")
        log.start()
        words = "object topics are not led: __strandline_object_commits is empty"
        wait_until(lambda: words in log.stderr_text(), "the node says what is wrong")
        with Peer(log.port) as peer:
            assert fetch_once(peer, "orders", 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        for _ in range(3):
            # Each look takes longer than the time for which an object without a commit is watched.
            ended = cli.run("storage", "check", "--repair", "--yes", "--json")
            assert ended.status == 5
            assert {each["problem"] for each in ended.objects} == {"orphan"}
            assert not any(each["can_repair"] for each in ended.objects)
        assert wal_objects(store) == before


# Rules, without a cluster

CLUSTER = "cluster"
NOW_MS, GRACE_MS = 10_000_000, 1000


def checked(*events: CommitEvent, stored: tuple[int, ...] = (), is_whole: bool = True) -> CheckedCommits:
    fold = CommitFold()
    for each in events:
        fold.apply(each)
    keys = [wal_key(CLUSTER, object_id(each)) for each in stored]
    listed = {key: StoredObject(key, 1000, None, 1) for key in keys}
    dead_ms = dict.fromkeys(fold.dead, 1)
    return CheckedCommits(
        fold,
        MetadataFold(CLUSTER),
        CLUSTER,
        listed,
        {TOPIC_A: "orders"},
        NOW_MS,
        GRACE_MS,
        dead_ms,
        {TOPIC_A: 1, TOPIC_B: 1},
        is_whole=is_whole,
    )


def found(checking: CheckedCommits) -> list[tuple[str, bool]]:
    return [(str(each.problem), each.can_repair) for each in compare_commits(checking)]


BEGUN = (claim(1, 10, PLACE_A), commit(object_id(1), piece(PLACE_A, 0, 5)), commit(object_id(2), piece(PLACE_A, 5, 9)))


def test_what_no_segment_and_no_object_has_is_a_gap() -> None:
    assert found(checked(*BEGUN, stored=(1, 2))) == []
    released = OffsetsMoved(RELEASED, ((*PLACE_A, 0, 5),))
    gap = checked(*BEGUN, released, stored=(2,))
    assert found(gap) == [("missing", False)]
    assert compare_commits(gap)[0].ranges[0][3:] == (0, 5)


def test_a_difference_of_a_moment_is_no_finding() -> None:
    """An object was committed after the list, or released after the log was read."""
    before = compare_commits(checked(*BEGUN, stored=(1,)))
    assert [each.object_id for each in before] == [object_id(2)]
    assert confirmed(before, compare_commits(checked(*BEGUN, stored=(1, 2)))) == []
    assert confirmed(before, compare_commits(checked(*BEGUN, stored=(1,)))) == before


def test_objects_that_are_needed_no_more_are_deleted_and_those_of_a_lost_log_never() -> None:
    rejected = commit(object_id(3), piece(PLACE_A, 0, 5))
    assert found(checked(*BEGUN, rejected, stored=(1, 2, 3))) == [("delete-started", True)]
    assert found(checked(*BEGUN, stored=(1, 2, 4))) == [("orphan", True)]
    condemned = ObjectsCondemned((object_id(4),))
    assert found(checked(*BEGUN, condemned, stored=(1, 2, 4))) == [("delete-started", True)]
    assert found(checked(*BEGUN, condemned, stored=(1, 2))) == []
    assert found(checked(stored=(1, 2), is_whole=False)) == [("orphan", False)] * 2


def test_a_topic_that_is_gone_keeps_no_ranges() -> None:
    place = TOPIC_B, 0
    gone = checked(claim(1, 10, place), commit(object_id(1), piece(place, 0, 5)))
    assert found(gone) == [("topic-gone", True)], "and an object that only it needs is not missing"
    assert compare_commits(gone)[0].topic_id == TOPIC_B


def test_only_whole_names_are_objects() -> None:
    assert object_id_of(wal_key(CLUSTER, object_id(12))) == object_id(12)
    assert object_id_of(f"{CLUSTER}/wal/00/1-2-3.tmp") is None
