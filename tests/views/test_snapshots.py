"""Snapshots are a cache: whole or not there, never of another topic, made again when they are damaged."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.views.ground import Feed, rows_of

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.views import View, ViewFailed, define, snapshots
from strandline.views import open as open_view
from strandline.views.snapshots import SNAPSHOTS_MAX, SnapshotStore
from strandline.views.view_store import SNAPSHOT_EVERY_MS

SYNCS = 3 + 3
"""Of a snapshot of three partitions: its files, meta.json, its directory, and the directory above once it is named."""


def refresher(feed: Feed, directory: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.views.refresher", feed.broker.bootstrap, feed.topic, str(directory), *words],
        stdout=subprocess.PIPE,
        text=True,
    )


def filled(broker: EmbeddedBroker, topic: str, count: int = 200) -> Feed:
    feed = Feed(broker, topic)
    for number in range(count):
        feed.put(f"c{number}", float(number))
    feed.flush()
    return feed


def paths(directory: Path, pattern: str) -> list[Path]:
    return sorted(directory.glob(f"*/*/{pattern}"))


@pytest.mark.slow
def test_a_snapshot_killed_at_any_step_is_made_again(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = filled(broker, topic)
    expected = feed.rows()
    # A file, meta.json, the directory, and when it has its name.
    steps = (1, 4, 5, SYNCS)
    processes = {step: refresher(feed, tmp_path / str(step), "dies", str(step)) for step in steps}
    for step, process in processes.items():
        directory = tmp_path / str(step)
        process.communicate(timeout=100)
        assert process.returncode == -signal.SIGKILL
        is_named = step == SYNCS
        assert len(paths(directory, "at-*")) == is_named, step
        assert len(paths(directory, "making-*")) == (not is_named), step
        with feed.view(directory) as view:
            assert rows_of(view) == expected
            assert len(view.snapshots) == 1
        assert not paths(directory, "making-*")


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["torn", "changed", "missing", "meta torn", "meta missing"])
def test_a_damaged_snapshot_is_made_again(broker: EmbeddedBroker, topic: str, tmp_path: Path, harm: str) -> None:
    feed = filled(broker, topic)
    expected = feed.rows()
    with feed.view(tmp_path) as view:
        assert rows_of(view) == expected
    (snapshot,) = paths(tmp_path, "at-*")
    part, meta = snapshot / "1.parquet", snapshot / "meta.json"
    content = bytearray(part.read_bytes())
    match harm:
        case "torn":
            part.write_bytes(content[:-40])
        case "changed":
            content[len(content) // 2] ^= 1
            part.write_bytes(content)
        case "missing":
            part.unlink()
        case "meta torn":
            meta.write_text(meta.read_text()[:-100])
        case "meta missing":
            meta.unlink()
    with feed.view(tmp_path) as view:
        assert rows_of(view) == expected
    store = SnapshotStore(snapshot.parent)
    (again,) = store.snapshots()
    held = store.hold(again)
    assert held is not None
    held.release()


def test_a_topic_made_anew_has_no_snapshots(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = filled(broker, topic)
    with feed.view(tmp_path) as view:
        assert len(rows_of(view)) == 200
        feed.delete()
        again = Feed(broker, topic)
        again.put("ada", 1.0)
        again.flush()
        # The view that is open notices, and so does one that is opened with the same directory.
        assert rows_of(view) == [("ada", 1.0, 1)]
        assert view.get("c1") is None
    with again.view(tmp_path) as view:
        assert rows_of(view) == [("ada", 1.0, 1)]
        assert [each.rows for each in view.snapshots] == [1]


@pytest.mark.slow
def test_two_processes_refresh_one_directory(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """While somebody writes: every answer has every key once, and no snapshot is half of another."""
    feed = filled(broker, topic, 100)
    stop = threading.Event()

    def write() -> None:
        total = 0.0
        while not stop.is_set():
            total += 1
            for number in range(100):
                feed.put(f"c{number}", total)
            feed.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        processes = [refresher(feed, tmp_path, "rounds", "4") for _ in range(2)]
        for process in processes:
            told, _ = process.communicate(timeout=100)
            assert process.returncode == 0
            assert told.splitlines() == ["100 100"] * 4
    finally:
        stop.set()
        writer.join()
    feed.settle()
    assert not paths(tmp_path, "making-*")
    kept = paths(tmp_path, "at-*")
    assert 1 <= len(kept) <= SNAPSHOTS_MAX
    with feed.view(tmp_path) as view:
        assert rows_of(view) == feed.rows()
        for snapshot in view.snapshots:
            assert rows_of(view, as_of=snapshot.offsets) == feed.rows(below=snapshot.offsets)


@pytest.mark.slow
def test_what_is_read_is_not_taken_away(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = filled(broker, topic, 20)
    with feed.view(tmp_path) as first:
        feed.put("c0", 100.0)
        feed.flush()
        with feed.view(tmp_path) as reader:
            assert rows_of(reader) == feed.rows()
            assert first.snapshot() is not None
            for number in range(SNAPSHOTS_MAX + 2):
                feed.put("c1", float(number))
                feed.flush()
                assert first.snapshot() is not None
            # The reader's own is the oldest, and nobody takes that; now it holds one in the middle.
            middle = first.snapshots[2]
            assert rows_of(reader, as_of=middle.offsets) == feed.rows(below=middle.offsets)
            for number in range(SNAPSHOTS_MAX + 2):
                feed.put("c1", float(number))
                feed.flush()
                assert first.snapshot() is not None
            assert rows_of(reader, as_of=middle.offsets) == feed.rows(below=middle.offsets)
            assert middle.path.exists()
        assert len(first.snapshots) <= SNAPSHOTS_MAX + 1


def test_the_oldest_and_the_newest_stay(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = filled(broker, topic, 20)
    with feed.view(tmp_path) as view:
        (oldest,) = view.snapshots
        for number in range(2 * SNAPSHOTS_MAX):
            feed.put("c1", float(number))
            feed.flush()
            newest = view.snapshot()
            assert newest is not None
        kept = view.snapshots
        assert len(kept) == SNAPSHOTS_MAX
        assert (kept[0].path, kept[-1].path) == (oldest.path, newest.path)


def test_when_a_snapshot_is_worth_it(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    feed = filled(broker, topic, 20)
    with feed.view(tmp_path) as view:
        assert len(view.snapshots) == 1
        made_ms = view.snapshots[0].made_ms
        feed.put("c1", 7.0)
        feed.flush()
        view.refresh()
        assert len(view.snapshots) == 1, "one record is no reason"
        desk = view._session
        (store,) = desk._stores.values()
        assert store.maybe_snapshot(view.definition, now_ms=made_ms + SNAPSHOT_EVERY_MS - 1) is None
        assert store.maybe_snapshot(view.definition, now_ms=made_ms + SNAPSHOT_EVERY_MS) is not None
        assert store.maybe_snapshot(view.definition, now_ms=made_ms + 9 * SNAPSHOT_EVERY_MS) is None, "nothing new"


def test_a_snapshot_outlives_its_schema(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """A view of the same topic with other columns uses what is there: the records themselves are in it."""
    feed = filled(broker, topic, 20)
    with feed.view(tmp_path) as view:
        assert len(view.snapshots) == 1

    def other(name: str, schema: str, key: str) -> View:
        definition = define(name, topic, schema=schema, key=(key,))
        return open_view(definition, bootstrap=broker.bootstrap, directory=tmp_path)

    with other("visits", "who STRING, visits STRING", "who") as view:
        read: list[int] = []
        view._session.on_read = read.append
        assert view.get("c3") == {"who": "c3", "visits": "3"}
        assert view.query("select count(*), max(visits) from visits").rows == [(20, "9")]
        assert not read
        assert view.snapshot() is not None
    with feed.view(tmp_path) as view:
        assert rows_of(view) == feed.rows()


def test_a_disk_that_takes_no_snapshot(
    broker: EmbeddedBroker, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer comes from the log alone; who asks for a snapshot is told why there is none."""
    feed = filled(broker, topic, 20)
    (tmp_path / "views").write_text("a file")
    with feed.view(tmp_path / "views") as view:
        assert "no snapshot can be kept in " in caplog.text
        assert rows_of(view) == feed.rows()
        assert view.get("c3") is not None
        assert rows_of(view, as_of=dict.fromkeys(range(3), 0)) == []
        with pytest.raises(ViewFailed, match=r"no snapshot can be kept in .*: Not a directory"):
            view.snapshot()


def test_a_full_disk(broker: EmbeddedBroker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written before the disk was full is removed by who comes next."""
    feed = filled(broker, topic, 20)
    sync = snapshots.sync

    def full(path: Path) -> None:
        if path.name == "meta.json":
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(path)

    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "sync", full)
        with feed.view(tmp_path) as view:
            assert rows_of(view) == feed.rows()
            assert not view.snapshots
    with feed.view(tmp_path) as view:
        assert rows_of(view) == feed.rows()
        assert len(view.snapshots) == 1
    assert not paths(tmp_path, "making-*")
