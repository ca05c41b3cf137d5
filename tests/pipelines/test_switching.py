"""The switch of two versions whose tables lie in topics: no Spark, and a fault at every point of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.clients.positions import until_decided
from tests.pipelines.rebuild_ground import TwoVersions, ends_of, put_rows, table_of, topic_id
from tests.spark.sink_ground import consume

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.rebuild import phases
from strandline.pipelines.rebuild.ownership import Ownership
from strandline.pipelines.rebuild.phases import Phase, RebuildRefused, Wish
from strandline.pipelines.rebuild.rebuilding import Means, Rebuilding
from strandline.pipelines.rebuild.switching import Removal, RemovesMuch, Switching, give_up
from strandline.pipelines.rebuild.table_snapshot import newest_records
from strandline.pipelines.run.multi_topic_commit import MultiTopicCommit
from strandline.pipelines.versions.state import PipelineState, checkpoint_of
from strandline.runtime import fault_points
from strandline.runtime.fault_points import PlantedFault
from strandline.spark.display import Display

OLD = {"a": "1", "b": "2", "c": "3", **{f"same-{each}": "x" for each in range(20)}}
NEW = {"b": "20", "c": "3", "d": "4", **{f"same-{each}": "x" for each in range(20)}}
SWITCH_POINTS = [each for each in fault_points.REBUILD_POINTS if each.startswith("switch-")]
INNER_POINTS = SWITCH_POINTS[SWITCH_POINTS.index("switch-ends-noted") :]


def built(
    broker: EmbeddedBroker, *tables: str, checkpoints: Path | None = None, new_partitions: int = 3
) -> TwoVersions:
    """Tables whose versions differ in an upsert, a new key and one that is gone."""
    two = TwoVersions(broker, list(tables or ("totals",)), checkpoints, new_partitions=new_partitions)
    for table in two.tables:
        put_rows(broker.bootstrap, table, {"a": "0", "gone": "before"})
        put_rows(broker.bootstrap, table, {**OLD, "gone": None})
        put_rows(broker.bootstrap, f"{table}.v2", NEW)
    return two


def switch(two: TwoVersions) -> Switching:
    switching = Switching(two.registry, two.name, "me")
    switching.perform()
    return switching


def test_the_switch_writes_differences_only_and_the_way_back_too(broker: EmbeddedBroker) -> None:
    two = built(broker, "totals", "counts")
    ids = [topic_id(broker.bootstrap, table) for table in two.tables]
    before = ends_of(broker.bootstrap, two.tables[0])
    switching = switch(two)
    assert switching.written == dict.fromkeys(two.tables, 3), "an upsert, a new key and a tombstone"
    state = two.state
    assert (state.active, state.rebuild and state.rebuild.phase) == (2, "switched")
    for table in two.tables:
        assert table_of(broker.bootstrap, table) == NEW == two.named(table)
        assert table_of(broker.bootstrap, f"{table}.v1") == OLD, "the old version is kept"
    after = ends_of(broker.bootstrap, two.tables[0])
    assert all(after[each] >= before[each] for each in before), "what was there before has the offsets it had"

    put_rows(broker.bootstrap, two.tables[0], {"e": "5"})
    put_rows(broker.bootstrap, f"{two.tables[0]}.v1", {"a": "100"})
    two.become(Phase.RETURNING)
    two.become(Phase.SWITCHING_BACK)
    switch(two)
    assert table_of(broker.bootstrap, two.tables[0]) == {**OLD, "a": "100"} == two.named(two.tables[0])
    assert table_of(broker.bootstrap, f"{two.tables[0]}.v2") == {**NEW, "e": "5"}
    assert (two.state.active, two.state.rebuild and two.state.rebuild.phase) == (1, "dropping")
    assert ids == [topic_id(broker.bootstrap, table) for table in two.tables]


@pytest.mark.slow
def test_a_switch_that_removes_more_than_a_tenth_waits_for_a_yes(broker: EmbeddedBroker) -> None:
    """It says so before it writes anything; the way back, too."""
    two = TwoVersions(broker, ["totals", "counts"])
    totals, counts = two.tables
    rows = {f"c{each}": "x" for each in range(20)}
    for table, removed in ((totals, 3), (counts, 2)):
        put_rows(broker.bootstrap, table, rows)
        put_rows(broker.bootstrap, f"{table}.v2", dict(list(rows.items())[removed:]))
    before = two.state
    with pytest.raises(RemovesMuch) as refused:
        switch(two)
    assert refused.value.removals == [Removal(totals, 20, 3)], "two of twenty rows are a tenth, and no more"
    assert two.state == before, "nothing was noted"
    assert table_of(broker.bootstrap, totals) == rows
    Switching(two.registry, two.name, "me", may_remove=True).perform()
    assert len(table_of(broker.bootstrap, totals)) == 17
    put_rows(broker.bootstrap, totals, {f"d{each}": "x" for each in range(4)})
    two.become(Phase.RETURNING)
    two.become(Phase.SWITCHING_BACK)
    with pytest.raises(RemovesMuch, match=f"4 of the 21 rows of {totals}"):
        switch(two)


def test_a_switch_that_is_taken_up_after_its_yes_does_not_ask_again(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = TwoVersions(broker, ["totals"])
    put_rows(broker.bootstrap, two.tables[0], {"a": "1", "b": "2"})
    put_rows(broker.bootstrap, f"{two.tables[0]}.v2", {"a": "1"})
    monkeypatch.setenv(fault_points.VARIABLE, f"switch-ends-noted:fail:{tmp_path / 'fault'}")
    with pytest.raises(PlantedFault):
        Switching(two.registry, two.name, "me", may_remove=True).perform()
    switch(two)
    assert table_of(broker.bootstrap, two.tables[0]) == {"a": "1"}


def slow_but(always: Sequence[str], points: list[str]) -> list[Any]:
    """Mark each point as slow but those that are always tried. A test takes some seconds at each point."""
    return [each if each in always else pytest.param(each, marks=pytest.mark.slow) for each in points]


@pytest.mark.parametrize("point", slow_but(["switch-differences-written"], INNER_POINTS))
def test_a_switch_that_failed_anywhere_is_completed(
    point: str, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = built(broker)
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / 'fault'}")
    with pytest.raises(PlantedFault):
        switch(two)
    is_made = point == "switch-made"
    for table in two.tables:
        assert two.named(table) == (NEW if is_made else OLD), "by its name a table is old or new, and never mixed"
    if not is_made:
        switch(two)
    for table in two.tables:
        assert table_of(broker.bootstrap, table) == NEW == two.named(table)
        assert table_of(broker.bootstrap, f"{table}.v1") == OLD


@pytest.mark.parametrize("point", slow_but(["switch-differences-written", "switch-committed"], INNER_POINTS[:-1]))
def test_a_switch_that_failed_is_given_up_before_its_decision_and_never_after(
    point: str, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = built(broker)
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / 'fault'}")
    with pytest.raises(PlantedFault):
        switch(two)
    is_decided = INNER_POINTS.index(point) >= INNER_POINTS.index("switch-committed")
    for _ in range(2):
        # The second time as by one who does not know what became of the first.
        assert give_up(two.registry, two.state) is not is_decided
    if is_decided:
        return
    late = two.state
    two.registry.change(two.name, lambda told: phases.turned_back(phases.check_owned(told, "me")))
    for table in two.tables:
        assert table_of(broker.bootstrap, table) == OLD == two.named(table)
    assert late.rebuild is not None
    if late.rebuild.sink_id:
        # A process that slept all the while wakes up and wants to commit.
        with MultiTopicCommit(broker.bootstrap, late.rebuild.sink_id) as commit:
            assert not commit.write(1, [], point="switch-differences-written")
        assert table_of(broker.bootstrap, two.tables[0]) == OLD


def fail_on_the_way_back(two: TwoVersions, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch was made, and the one back fails at this point."""
    two.become(Phase.RETURNING)
    two.become(Phase.SWITCHING_BACK)
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / 'fault'}")
    with pytest.raises(PlantedFault):
        switch(two)


@pytest.mark.parametrize("point", slow_but(["switch-differences-written"], INNER_POINTS[:-1]))
def test_a_way_back_that_failed_is_completed_and_never_given_up(
    point: str, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who says --rollback again wants the rest of the way: its batch must not be decided with nothing in it."""
    two = built(broker)
    switch(two)
    fail_on_the_way_back(two, point, tmp_path, monkeypatch)
    assert two.named(two.tables[0]) == NEW
    command(two, tmp_path, Wish.ROLL_BACK)
    assert table_of(broker.bootstrap, two.tables[0]) == OLD == two.named(two.tables[0])
    assert (two.state.active, sorted(two.state.versions), two.state.rebuild) == (1, [1], None)


@pytest.mark.parametrize("new_partitions", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_on_the_way_back_a_version_with_other_partitions_is_read_whole(
    new_partitions: int, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own topic has as many as its input had when it was made, the public one as many as that of the first."""
    two = built(broker, new_partitions=new_partitions)
    switch(two)
    changed = {key: "y" for key in NEW if key.startswith("same")}
    put_rows(broker.bootstrap, two.tables[0], changed)
    fail_on_the_way_back(two, "switch-copy-named", tmp_path, monkeypatch)
    assert sorted(rows_of(broker.bootstrap, f"{two.tables[0]}.v2")) == sorted(({**NEW, **changed}).items())
    switch(two)
    assert table_of(broker.bootstrap, two.tables[0]) == OLD == two.named(two.tables[0])


def rows_of(bootstrap: str, topic: str) -> list[tuple[str, str]]:
    """As a reader by name folds it: each partition for itself."""
    client = ClusterClient(ClientSettings(bootstrap))
    try:
        rows = newest_records(client, topic)
    finally:
        client.close()
    return [
        (key.decode(), value.decode())
        for key, value in zip(*(rows[name].to_pylist() for name in ("key", "value")), strict=True)
    ]


@pytest.mark.parametrize("point", slow_but(["switch-copy-written", "switch-committed"], INNER_POINTS[:-1]))
def test_a_way_back_is_given_up_by_a_finish_until_it_is_decided(
    point: str, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a version that cannot run any more would leave a pipeline that nobody may run."""
    two = built(broker)
    switch(two)
    fail_on_the_way_back(two, point, tmp_path, monkeypatch)
    if INNER_POINTS.index(point) >= INNER_POINTS.index("switch-committed"):
        with pytest.raises(RebuildRefused, match="on its way back to version 1, which is decided"):
            command(two, tmp_path, Wish.FINISH)
        return
    command(two, tmp_path, Wish.FINISH)
    assert table_of(broker.bootstrap, two.tables[0]) == NEW == two.named(two.tables[0])
    assert (two.state.active, sorted(two.state.versions), two.state.rebuild) == (2, [2], None)


def test_who_is_on_the_way_back_may_stay(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """As when the old version does not catch up, or cannot run any more."""
    two = built(broker)
    switch(two)
    two.become(Phase.RETURNING)
    command(two, tmp_path, Wish.FINISH)
    assert table_of(broker.bootstrap, two.tables[0]) == NEW == two.named(two.tables[0])
    assert (two.state.active, sorted(two.state.versions), two.state.rebuild) == (2, [2], None)


@pytest.mark.parametrize("then", [pytest.param(Wish.ROLL_BACK, marks=pytest.mark.slow), Wish.REBUILD])
def test_a_rollback_that_was_killed_when_it_had_given_the_switch_up_is_completed(
    then: Wish, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever comes next must not take the batch with nothing in it for the differences."""
    two = built(broker)
    for point, act in (
        ("switch-differences-written", lambda: switch(two)),
        ("turn-decided", lambda: command(two, tmp_path, Wish.ROLL_BACK)),
    ):
        monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / point}")
        with pytest.raises(PlantedFault):
            act()
    command(two, tmp_path, then)
    assert table_of(broker.bootstrap, two.tables[0]) == OLD == two.named(two.tables[0])
    assert (two.state.active, sorted(two.state.versions), two.state.rebuild) == (1, [1], None)


def command(two: TwoVersions, home: Path, wish: Wish) -> None:
    two.registry.change(two.name, _without_owner)
    Rebuilding(two.registry, two.name, without_spark(home)).carry_out(wish)


def _without_owner(told: PipelineState | None) -> PipelineState:
    assert told is not None
    assert told.rebuild is not None
    return replace(told, rebuild=replace(told.rebuild, owner=""))


def without_spark(home: Path) -> Means:
    """For steps in which no version runs."""
    return Means(
        load=lambda path: pytest.fail("no file is read"),
        spark=lambda: pytest.fail("nothing here needs Spark"),
        checkpoints=lambda: str(home / "checkpoints"),
        display=lambda _: Display(),
        tell=print,
        stop=threading.Event(),
        may_switch=lambda _: True,
        may_remove=lambda _: pytest.fail("little is removed"),
        home=home,
    )


def test_a_rebuild_that_ends_while_another_process_wants_it_is_over(broker: EmbeddedBroker) -> None:
    two = built(broker)
    two.registry.change(two.name, lambda told: told and replace(told, rebuild=None))
    Ownership(two.registry, two.name).take()
    assert two.state.rebuild is None


@pytest.mark.parametrize(
    "points",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(["switch-copy-written"], marks=pytest.mark.slow),
        ["switch-copy-written", "switch-copied"],
    ],
)
def test_positions_in_a_table_move_to_what_was_not_read_whatever_lies_before_it(
    points: list[str], broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt that was killed has left records in the copy that nobody can read; they are no part of it."""
    two = built(broker, checkpoints=tmp_path)
    table, copy = two.tables[0], f"{two.tables[0]}.v1"
    read_up_to = {"0": 6, "1": 3, "2": 0}
    offsets = Path(checkpoint_of(str(tmp_path), two.name, 1, table)) / "offsets" / "0"
    offsets.parent.mkdir(parents=True)
    offsets.write_text("v1\n{}\n" + json.dumps({table: read_up_to}))
    newest = {each.key(): (str(each.partition()), each.offset()) for each in consume(broker.bootstrap, table)}
    unread = {key for key, (partition, offset) in newest.items() if offset >= read_up_to[partition]} - {b"gone"}
    for point in points:
        monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / point}")
        with pytest.raises(PlantedFault):
            switch(two)
    switch(two)
    moved = json.loads(offsets.read_text().split("\n")[2])[copy]
    behind = [each.key() for each in consume(broker.bootstrap, copy) if each.offset() >= moved[str(each.partition())]]
    assert 0 < len(unread) < len(OLD)
    assert sorted(behind) == sorted(unread)


def test_a_process_that_lost_the_rebuild_changes_nothing(broker: EmbeddedBroker) -> None:
    two = built(broker)
    with pytest.raises(RebuildRefused, match="taken this rebuild over"):
        Switching(two.registry, two.name, "other").perform()
    assert table_of(broker.bootstrap, two.tables[0]) == OLD
    assert two.state.rebuild is not None
    assert not two.state.rebuild.sink_id


def test_a_transaction_that_a_killed_task_left_open_does_not_hide_the_switch(broker: EmbeddedBroker) -> None:
    import pyarrow as pa

    from strandline.pipelines.run.multi_topic_commit import silence

    two = built(broker)
    table = two.tables[0]
    with MultiTopicCommit(broker.bootstrap, f"query-of-{two.name}") as task, pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "_decide", lambda *_: True)
        rows = pa.table({"key": pa.array([b"a"]), "value": pa.array([b"never"])})
        task.write(0, [(table, rows)], point="switch-copy-written")
    put_rows(broker.bootstrap, table, {"behind": "it"}, can_be_read=False)
    assert "behind" not in table_of(broker.bootstrap, table)
    silence(broker.bootstrap, [f"query-of-{two.name}"])
    until_decided(broker.bootstrap, table)
    assert table_of(broker.bootstrap, table) == {**OLD, "behind": "it"}
