"""A log that a cleaner went over, or that was trimmed: what is shown is right, and what cannot be had is refused.

What a cleaner drops, and when, is up to the test: it does it to the files while the broker is down.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.views.ground import SCHEMA, Feed, Row, rows_of

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.testing import embedded
from strandline.views import AtTime, Desk, define
from strandline.views.failures import BeyondReach
from strandline.views.folding import walked

BEGIN_MS = 1_700_000_000_000


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with embedded(data=tmp_path / "node") as broker:
        yield broker


def put(feed: Feed, customer: str, total: float | None, offset: int) -> None:
    """A batch of its own."""
    feed.put(customer, total, time_ms=BEGIN_MS + offset * 1000)
    feed.flush()


def clean(broker: EmbeddedBroker, topic: str, dropped: set[int], *, partition: int = 0) -> None:
    """Drop the batches with these offsets, as a cleaner would."""
    broker.stop()
    (directory,) = broker.data.glob(f"**/{topic}-{partition}")
    (log,) = directory.glob("*.log")
    content = log.read_bytes()
    kept = b""
    at = 0
    while at < len(content):
        offset, length = struct.unpack_from(">qi", content, at)
        if offset not in dropped:
            kept += content[at : at + 12 + length]
        at += 12 + length
    log.write_bytes(kept)
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        path.unlink()
    for path in broker.data.glob("**/.kafka_cleanshutdown"):
        path.unlink()
    broker.start()


def at_offset(offset: int) -> AtTime:
    """The moment at which the record with this offset was the newest."""
    return AtTime(BEGIN_MS + offset * 1000)


def test_a_log_that_was_compacted(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    feed = Feed(own_broker, "totals", partitions=1)
    put(feed, "ada", 1.0, 0)
    put(feed, "bob", 1.0, 1)
    put(feed, "ada", 2.0, 2)
    views = tmp_path / "views"
    with feed.view(views) as view:
        assert view.snapshots[0].offsets == {0: 3}
        assert view.reach.is_log_start
    put(feed, "bob", None, 3)
    put(feed, "cid", 1.0, 4)
    put(feed, "ada", 3.0, 5)
    put(feed, "cid", 2.0, 6)
    with feed.view(views) as view:
        assert rows_of(view, as_of={0: 1}) == [("ada", 1.0, 1)]
    # All that is old is gone, and the tombstone of bob with it: the snapshot still has bob.
    clean(own_broker, "totals", {0, 1, 2, 3, 4})
    with feed.view(views) as view:
        now = [("ada", 3.0, 3), ("cid", 2.0, 2)]
        assert rows_of(view) == now
        assert view.get("bob") is None
        # What the snapshot was made of, exactly; and nothing before it, nor between it and now.
        then = [("ada", 2.0, 2), ("bob", 1.0, 1)]
        assert rows_of(view, as_of={0: 3}) == then
        assert view.reach.words == "as-of reaches back to offsets 0:3 (2023-11-14T22:13:22.000Z)"
        assert rows_of(view, as_of={0: 0}) == [], "before the first record there was nothing"
        for offset in (1, 2, 4, 5, 6):
            with pytest.raises(BeyondReach, match=r"is beyond reach: as-of reaches back to offsets 0:3"):
                view.query(as_of={0: offset})
        # The record behind the snapshot is gone, so its time is not known: it may have been before or after any time.
        for offset in (0, 1, 2, 3, 4):
            with pytest.raises(BeyondReach, match=r"the nearest state that is kept is that of offsets 0:3 \(2023-"):
                view.query(as_of=at_offset(offset))
        with pytest.raises(BeyondReach, match=r"kept is that of offsets 0:7 .*, so say offsets$"):
            view.query(as_of=at_offset(100))
        # From here on everything is there again.
        assert view.snapshot() is not None
        put(feed, "dan", 1.0, 7)
        assert rows_of(view, as_of={0: 7}) == now
        assert rows_of(view) == [*now, ("dan", 1.0, 1)]


def at_second(second: int) -> AtTime:
    return AtTime(BEGIN_MS + second * 1000)


def put_at(feed: Feed, second: int, customer: str, total: float | None) -> None:
    """A batch of its own, with any time."""
    put(feed, customer, total, second)


@pytest.mark.slow
def test_times_that_are_out_of_order(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A record that was compacted away was later than those behind it: the log as it is now does not show that."""
    feed = Feed(own_broker, "totals", partitions=1)
    put_at(feed, 10, "ada", 1.0)
    put_at(feed, 100, "ada", 2.0)
    put_at(feed, 20, "bob", 1.0)
    put_at(feed, 30, "cid", 1.0)
    put_at(feed, 40, "ada", 3.0)
    before = tmp_path / "before"
    now = [("ada", 3.0, 3), ("bob", 1.0, 1), ("cid", 1.0, 1)]
    with feed.view(before) as view:
        assert rows_of(view, as_of=at_second(50)) == [("ada", 1.0, 1)]
        assert rows_of(view, as_of=at_second(100)) == now
    clean(own_broker, "totals", {0, 1})
    with feed.view(before) as view:
        # The snapshot from before has seen all of them, and knows that one is later.
        assert rows_of(view, as_of=at_second(100)) == now
        with pytest.raises(BeyondReach):
            view.query(as_of=at_second(50))
    with feed.view(tmp_path / "after") as view:
        for second in (50, 100):
            with pytest.raises(BeyondReach, match=r"records that are gone .* are not known, so say offsets$"):
                view.query(as_of=at_second(second))
        put_at(feed, 60, "dan", 1.0)
        assert rows_of(view, as_of={0: 5}) == now
        # The place that was just shown, and the snapshot there, do not say which time it belongs to.
        with pytest.raises(BeyondReach):
            view.query(as_of=at_second(55))
    with feed.view(before) as view:
        with pytest.raises(BeyondReach):
            view.query(as_of=at_second(55))
        assert rows_of(view, as_of=at_second(100)) == [*now, ("dan", 1.0, 1)]


@pytest.mark.slow
def test_a_tombstone_that_was_compacted(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    feed = Feed(own_broker, "totals", partitions=1)
    put_at(feed, 10, "bob", 1.0)
    put_at(feed, 100, "bob", None)
    put_at(feed, 20, "ada", 1.0)
    with feed.view(tmp_path / "before") as view:
        assert rows_of(view, as_of=at_second(50)) == [("bob", 1.0, 1)]
    clean(own_broker, "totals", {0, 1})
    with feed.view(tmp_path / "after") as view:
        assert rows_of(view) == [("ada", 1.0, 1)]
        with pytest.raises(BeyondReach):
            view.query(as_of=at_second(50))


class Written(NamedTuple):
    second: int
    customer: str
    total: float | None


def state_of(records: Sequence[Written]) -> list[Row]:
    """What plain Python makes of them."""
    newest = {each.customer: each.total for each in records}
    return sorted((customer, total, int(total)) for customer, total in newest.items() if total is not None)


def what_goes(rng: random.Random, records: Sequence[Written]) -> set[int]:
    """Some of the offsets that a cleaner may take: what was replaced, and tombstones with nothing before them."""
    dropped: set[int] = set()
    for offset, record in enumerate(records[:-1]):
        before = {at for at, each in enumerate(records[:offset]) if each.customer == record.customer}
        is_replaced = any(each.customer == record.customer for each in records[offset + 1 :])
        if (is_replaced or (record.total is None and before <= dropped)) and rng.random() < 0.7:
            dropped.add(offset)
    return dropped


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_every_moment_is_exact_or_refused(own_broker: EmbeddedBroker, tmp_path: Path, seed: int) -> None:
    """Times in any order, tombstones, a cleaner between; with snapshots from before, from after, and with none."""
    rng = random.Random(seed)
    print(f"seed {seed}")
    feed = Feed(own_broker, "totals", partitions=1)
    records: list[Written] = []
    told = {"exact": 0, "refused": 0}
    for directory in ("one", "two", "three"):
        for _ in range(6):
            total = None if rng.random() < 0.3 else float(len(records))
            records.append(Written(rng.randrange(12), rng.choice("abc"), total))
            put_at(feed, *records[-1])
        with feed.view(tmp_path / "one") as view:
            assert view.snapshot() is not None
        clean(own_broker, "totals", what_goes(rng, records))
        with feed.view(tmp_path / directory) as view:
            assert rows_of(view) == state_of(records)
            later = {second: [each.second > second for each in records] for second in range(-1, 13)}
            moments: dict[object, int] = {at_second(each): [*later[each], True].index(True) for each in later}
            moments |= {f"0:{offset}": offset for offset in range(len(records) + 1)}
            for moment in rng.sample(list(moments), 12):
                try:
                    assert rows_of(view, as_of=moment) == state_of(records[: moments[moment]]), moment
                    told["exact"] += 1
                except BeyondReach:
                    told["refused"] += 1
    assert min(told.values()) > 0, told


def test_a_refresh_that_fails_after_a_gap(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The fold came to the end without a tombstone, and what was to replace it was not finished."""
    feed = Feed(own_broker, "totals", partitions=1)
    put(feed, "ada", 1.0, 0)
    put(feed, "bob", 1.0, 1)
    query = "select customer, total from totals"
    with Desk(own_broker.bootstrap, directory=tmp_path / "none") as desk:
        desk.add(define("totals", "totals", schema=SCHEMA, key=("customer",)))
        assert sorted(desk.query(query).rows) == [("ada", 1.0), ("bob", 1.0)]
        put(feed, "bob", None, 2)
        put(feed, "ada", 2.0, 3)
        clean(own_broker, "totals", {0, 1, 2})
        batches: list[int] = []

        def fail_at_the_second(records: int) -> None:
            batches.append(records)
            if len(batches) == 2:
                raise ConnectionError("planted")

        desk.on_read = fail_at_the_second
        with pytest.raises(ConnectionError):
            desk.query(query)
        for _ in range(2):
            assert desk.query(query).rows == [("ada", 2.0)]
        assert desk.row("totals", "bob") is None


@pytest.mark.slow
def test_a_log_that_is_compacted_while_it_is_read(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A record is replaced behind the end that was asked for, and gone before the fold comes to it."""
    feed = Feed(own_broker, "totals", partitions=2)
    feed.put("ada", 1.0, partition=0)
    feed.put("bob", 1.0, partition=1)
    feed.flush()
    with Desk(own_broker.bootstrap, directory=tmp_path / "views") as desk:
        desk.add(define("totals", "totals", schema=SCHEMA, key=("customer",)))

        batches: list[int] = []

        def replace_bob(records: int) -> None:
            batches.append(records)
            if len(batches) == 1:
                feed.put("bob", 2.0, partition=1)
                feed.flush()
                clean(own_broker, "totals", {0}, partition=1)

        desk.on_read = replace_bob
        assert sorted(desk.query("select customer, total from totals").rows) == [("ada", 1.0), ("bob", 2.0)]
        assert batches == [1, 1]


@pytest.mark.slow
def test_an_open_view_falls_behind_a_cleaner(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """One that has a snapshot, and one that was folded from the log alone."""
    feed = Feed(own_broker, "totals", partitions=1)
    put(feed, "ada", 1.0, 0)
    put(feed, "bob", 1.0, 1)
    query = "select customer, total from totals"
    with feed.view(tmp_path / "views") as view, Desk(own_broker.bootstrap, directory=tmp_path / "none") as desk:
        assert len(view.snapshots) == 1
        desk.add(view.definition)
        assert sorted(desk.query(query).rows) == [("ada", 1.0), ("bob", 1.0)]
        assert not desk.snapshots("totals")
        put(feed, "bob", None, 2)
        put(feed, "ada", 2.0, 3)
        clean(own_broker, "totals", {0, 1, 2})
        assert rows_of(view) == [("ada", 2.0, 2)]
        assert desk.query(query).rows == [("ada", 2.0)]


def test_a_log_that_was_trimmed(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Rows whose records were deleted from the log are gone now, and were there then."""
    feed = Feed(own_broker, "totals", partitions=1, cleanup_policy="compact,delete")
    for offset, customer in enumerate(("ada", "bob", "cid", "ada")):
        put(feed, customer, float(offset), offset)
    with feed.view(tmp_path / "views") as view:
        before = rows_of(view)
        assert [row[0] for row in before] == ["ada", "bob", "cid"]
        admin = AdminClient({"bootstrap.servers": own_broker.bootstrap, "log_level": 0})
        for told in admin.delete_records([TopicPartition("totals", 0, 2)]).values():
            told.result()
        for _ in range(2):
            assert [row[0] for row in rows_of(view)] == ["ada", "cid"]
            assert view.get("bob") is None
            put(feed, "cid", 9.0, 4)
        assert rows_of(view, as_of={0: 4}) == before
        assert not view.reach.is_log_start
        with pytest.raises(BeyondReach):
            view.query(as_of={0: 3})
    # And for one who has no snapshot.
    with feed.view(tmp_path / "others") as view:
        assert [row[0] for row in rows_of(view)] == ["ada", "cid"]


def batch(base_offset: int, last_delta: int, count: int) -> bytes:
    return struct.pack(">qi11xi30xi", base_offset, 49, last_delta, count)


@pytest.mark.parametrize(
    ("batches", "position", "expected"),
    [
        ([batch(0, 4, 5), batch(5, 0, 1)], 0, (6, True)),
        ([batch(0, 4, 5)], 2, (5, True)),
        ([batch(0, 4, 4)], 0, (5, False)),
        ([batch(3, 0, 1)], 2, (4, False)),
        ([batch(0, 0, 1), batch(2, 0, 1)], 0, (3, False)),
        ([batch(0, 2, 3), batch(3, 1, 2)[:-1]], 0, (3, True)),
        ([], 7, (7, True)),
    ],
)
def test_gaps_in_batches(batches: list[bytes], position: int, expected: tuple[int, bool]) -> None:
    assert walked(memoryview(b"".join(batches)), position) == expected
