"""`strandline storage check`: what it finds, what a repair deletes, and what it never touches."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from tests.cli.conftest import CommandLine
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import listed
from tests.tiers.test_unfinished_copies import LATEST_TIERED, cluster_of, place_of, write_event
from tests.tiers.tiered_nodes import (
    copies,
    fill,
    local_bases,
    objects,
    properties,
    read,
    settings_of_tiered,
    wait_until,
)

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.tiers.records import RemoteSegment, SegmentAdded
from strandline.tiers.segment_states import SegmentState

HOURS_AGO_S = 7200.0
RECORDS = 400


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    # Nothing but the first look of the leader: afterwards it repairs nothing that these tests make.
    with strandline.embedded(data=tmp_path / "data", properties=properties(tmp_path / "store")) as found:
        found.create_topic("orders", **settings_of_tiered(retention_ms=-1))
        rng = random.Random(4)
        fill(found.bootstrap, ["orders"], [rng.randbytes(500) for _ in range(RECORDS)])
        with Peer(found.port) as peer:
            last = wait_until(lambda: local_bases(tmp_path / "data", "orders")[-1], "there are segments")
            wait_until(lambda: listed(peer, "orders", LATEST_TIERED).offset == last - 1, "they are copied")
        yield found


@pytest.fixture
def cli(log: EmbeddedBroker) -> CommandLine:
    return CommandLine(log.bootstrap)


def age(path: Path) -> None:
    then = time.time() - HOURS_AGO_S
    os.utime(path, (then, then))


def problems(cli: CommandLine, *options: str) -> list[tuple[str, bool]]:
    ended = cli.run("storage", "check", "--json", *options)
    assert ended.status == (5 if ended.objects else 0), ended.stderr
    return sorted((each["problem"], each["can_repair"]) for each in ended.objects)


def test_a_sound_store_is_told_so_and_nothing_is_written(log: EmbeddedBroker, cli: CommandLine, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in objects(tmp_path / "store")}
    ended = cli.ok("storage", "check", "--deep")
    assert "all is well" in ended.stderr
    assert f"{len(copies(tmp_path / 'store'))} segments" in ended.stderr
    assert not ended.stdout
    assert "nothing" not in cli.ok("storage", "check", "--repair", "--yes").stderr
    assert {path: path.read_bytes() for path in objects(tmp_path / "store")} == before


def test_lost_and_damaged_objects_are_named_and_never_deleted(
    log: EmbeddedBroker, cli: CommandLine, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first, second, third, fourth = copies(store)[:4]
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    flipped = bytearray(third.read_bytes())
    flipped[100] ^= 1
    third.write_bytes(flipped)
    index = fourth.with_suffix(".idx")
    index.write_bytes(index.read_bytes()[:-1] + b"\xff")
    assert problems(cli) == [("missing", False), ("truncated", False)]
    deep = cli.run("storage", "check", "--deep", "--json", "--repair", "--yes", "--grace", "0")
    assert deep.status == 5
    found = {each["problem"]: each for each in deep.objects}
    assert sorted(each["problem"] for each in deep.objects) == ["damaged", "damaged", "missing", "truncated"]
    assert found["missing"]["from"] == int(first.name[:20])
    assert first.relative_to(store).as_posix() in found["missing"]["what"]
    assert {second, third, fourth, index, first.with_suffix(".idx")} <= set(objects(store))


def test_orphans_go_when_they_are_old_and_this_clusters_alone(
    log: EmbeddedBroker, cli: CommandLine, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    named = copies(store)[0]
    own, young = (named.with_name(f"{number:020}-{each}.log") for number, each in ((7, _id(1)), (8, _id(2))))
    stranger = store / "Another-cluster-0123456" / named.relative_to(store / cluster_of(store))
    odd = named.with_name("notes.txt")
    gone = named.parents[2] / _id(3) / "0" / f"{0:020}-{_id(4)}.idx"
    stranger.parent.mkdir(parents=True)
    gone.parent.mkdir(parents=True)
    for path in (own, young, stranger, odd, gone):
        shutil.copy(named, path)
        age(path)
    os.utime(young)
    for path in copies(store):
        # An old object that the metadata names is none, however old.
        if path not in (own, young, stranger):
            age(path)
    before = set(objects(store))
    values = read(log.bootstrap, "orders", 0, RECORDS)
    assert problems(cli) == [("orphan", True), ("orphan", True), ("unknown", False)]
    refused = cli.run("storage", "check", "--repair")
    assert refused.status == 2
    assert "nothing was repaired" in refused.stderr
    assert set(objects(store)) == before
    assert cli.run("storage", "check", "--repair", "--yes").status == 5, "the strange name stays"
    assert set(objects(store)) == before - {own, gone}
    assert problems(cli) == [("unknown", False)]
    assert problems(cli, "--grace", "0") == [("orphan", True), ("unknown", False)]
    assert read(log.bootstrap, "orders", 0, RECORDS) == values


def _id(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012x}"


def test_what_was_begun_long_ago_is_ended(log: EmbeddedBroker, cli: CommandLine, tmp_path: Path) -> None:
    place = place_of(tmp_path / "data")
    now_ms = time.time_ns() // 1_000_000
    old_ms = now_ms - int(HOURS_AGO_S * 1000)
    for number, event_ms in ((71, old_ms), (72, now_ms)):
        begun = RemoteSegment(
            UUID(int=number), 0, 99, ((0, 0),), 5, 1000, 9, event_ms, SegmentState.COPY_STARTED, is_txn_index_empty=True
        )
        write_event(log, SegmentAdded(place, begun))
    assert problems(cli) == [("copy-started", True)]
    assert problems(cli, "--grace", "0") == [("copy-started", True)], "a copy may be under way"
    assert cli.ok("storage", "check", "--repair", "--yes").status == 0
    assert problems(cli) == []


def test_the_metadata_that_is_lost_makes_no_orphans(log: EmbeddedBroker, cli: CommandLine, tmp_path: Path) -> None:
    """An administrator who deleted `__remote_log_metadata` must not lose the objects, too."""
    store = tmp_path / "store"
    cli.ok("topic", "delete", "__remote_log_metadata", "--yes")
    for path in objects(store):
        age(path)
    before = set(objects(store))
    ended = cli.run("storage", "check", "--repair", "--yes", "--json")
    assert ended.status == 5
    assert not any(each["can_repair"] for each in ended.objects)
    assert set(objects(store)) >= before


def test_a_wrong_bucket_is_told_in_a_sentence(log: EmbeddedBroker, cli: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    empty = cli.run("storage", "check", "--store", other.as_uri())
    assert empty.status == 1
    assert "strandline-cluster.json" in empty.stderr
    marker = (tmp_path / "store" / "strandline-cluster.json").read_text()
    (other / "strandline-cluster.json").write_text(marker.replace(cluster_of(tmp_path / "store"), "Another-cluster-01"))
    wrong = cli.run("storage", "check", "--repair", "--yes", "--store", other.as_uri())
    assert wrong.status == 1
    assert "belongs to the cluster Another-cluster-01" in wrong.stderr
