"""The parts of a rebuild that need neither Spark nor a broker."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipelines.test_rebuild_phases import pipeline

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.loading import load, modules_of
from strandline.pipelines.language.model import Kind, KnownDataset
from strandline.pipelines.rebuild import phases
from strandline.pipelines.rebuild.checkpoint_moves import Moves, drop_moves, stage_moves, take_moves
from strandline.pipelines.rebuild.comparing import compare_tables, words_of
from strandline.pipelines.rebuild.phases import Phase
from strandline.pipelines.rebuild.removing import doomed
from strandline.pipelines.rebuild.table_snapshot import difference
from strandline.pipelines.versions.state import DatasetState, PipelineState, VersionState, checkpoint_of, pinned
from strandline.pipelines.versions.version_files import file_of, forget_file, with_file

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def table(rows: dict[str, str], *, partitions: int = 2, first_offset: int = 0) -> pa.Table:
    """Rows as they are folded from a topic, in any order."""
    items = list(rows.items())
    return pa.table(
        {
            "key": pa.array([key.encode() for key, _ in items], pa.binary()),
            "value": pa.array([value.encode() for _, value in items], pa.binary()),
            "headers": pa.nulls(len(items), HEADERS),
            "partition": pa.array([at % partitions for at in range(len(items))], pa.int32()),
            "offset": pa.array([first_offset + at for at in range(len(items))], pa.int64()),
        }
    )


def applied(rows: dict[str, str], changes: pa.Table) -> dict[str, str]:
    found = dict(rows)
    for key, value in zip(changes["key"].to_pylist(), changes["value"].to_pylist(), strict=True):
        if value is None:
            del found[key.decode()]
        else:
            assert found.get(key.decode()) != value.decode(), "what is the same is not written"
            found[key.decode()] = value.decode()
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_difference_makes_one_table_the_other(seed: int) -> None:
    rng = random.Random(seed)
    old = {f"k{rng.randrange(60)}": str(rng.randrange(4)) for _ in range(rng.randrange(80))}
    new = {f"k{rng.randrange(60)}": str(rng.randrange(4)) for _ in range(rng.randrange(80))}
    changes = difference(table(old), table(new))
    assert applied(old, changes) == new, f"seed {seed}"
    places = list(zip(changes["partition"].to_pylist(), changes["offset"].to_pylist(), strict=True))
    assert places == sorted(places), "in the order of the log, so that positions can follow"


def test_headers_are_a_part_of_a_row() -> None:
    old = table({"a": "1"})
    with_header = pa.array([[{"key": "h", "value": b"x"}]], HEADERS)
    new = old.set_column(2, "headers", with_header)
    assert difference(old, new)["headers"].to_pylist() == [[{"key": "h", "value": b"x"}]]
    assert difference(new, new).num_rows == 0


def test_two_tables_are_compared_with_a_sample() -> None:
    old = {"same": "1", "changed": "1", "gone": "1"}
    compared = compare_tables("totals", "view", table(old), table({"same": "1", "changed": "2", "new": "3"}))
    assert (compared.same, compared.changed, compared.only_old, compared.only_new) == (1, 1, 1, 1)
    assert sorted(compared.sample) == [("changed", "1", "2"), ("gone", "1", None), ("new", None, "3")]
    lines = words_of(compared)
    assert lines[0] == "totals: 3 rows, now 3: 1 the same, 1 changed, 1 new, 1 gone"
    assert '  "gone": 1 -> (none)' in lines
    assert words_of(compare_tables("totals", "view", table(old), table(old))) == ["totals: 3 rows, all the same"]
    long = compare_tables("totals", "view", table({}), table({"a": "x" * 1000}))
    assert len(long.sample[0][2] or "") < 300


class TestMoves:
    """Positions in the topic of a table that moves."""

    def state(self, home: Path) -> PipelineState:
        table = DatasetState("totals", Kind.TABLE, "totals", "totals", key=("id",))
        reader = DatasetState("ranks", Kind.TABLE, "ranks", "ranks", key=("id",))
        version = VersionState(1, checkpoints=str(home), datasets={"totals": table, "ranks": reader})
        return PipelineState("shop", versions={1: version})

    def checkpoint(self, home: Path, text: str) -> Path:
        offsets = Path(checkpoint_of(str(home), "shop", 1, "ranks")) / "offsets"
        offsets.mkdir(parents=True)
        (offsets / "3").write_text(text)
        (offsets / ".3.crc").write_bytes(b"sum")
        return offsets / "3"

    def test_a_position_goes_to_the_first_row_that_was_not_read(self, tmp_path: Path) -> None:
        other = '{"other":{"0":7},"#topic-ids":{"other":"x"}}'
        text = f'v1\n{{"batchTimestampMs":1}}\n{other}\n{{"totals":{{"0":12,"1":0}},"#topic-ids":{{"totals":"y"}}}}'
        path = self.checkpoint(tmp_path, text)
        state = self.state(tmp_path)
        # Rows of partition 0 were at 4, 11 and 12; the copy of it begins at 100.
        rows = pa.table({"partition": [0, 0, 0, 1], "offset": [4, 11, 12, 5]})
        moves = Moves.along("totals.v1", rows, {0: 100, 1: 200})
        stage_moves(state, 1, lambda: [("totals", moves)])
        assert path.read_text() == text, "until it is taken nothing has changed"
        take_moves(state, 1)
        moved = '{"totals.v1":{"0":102,"1":200},"#topic-ids":{}}'
        assert path.read_text() == f'v1\n{{"batchTimestampMs":1}}\n{other}\n{moved}', "the copy has another id"
        assert not path.with_name(".3.crc").exists(), "Spark would take the file for damaged"
        stage_moves(state, 1, lambda: [("totals", moves)])
        take_moves(state, 1)
        assert '"0":102' in path.read_text(), "what has moved stays there"

    def test_what_is_dropped_is_as_it_was(self, tmp_path: Path) -> None:
        path = self.checkpoint(tmp_path, 'v1\n{}\n{"totals":{"0":12}}')
        state = self.state(tmp_path)
        stage_moves(state, 1, lambda: [("totals", Moves.to_end("totals.v1", {0: 5}))])
        drop_moves(state, 1)
        take_moves(state, 1)
        assert path.read_text() == 'v1\n{}\n{"totals":{"0":12}}'

    def test_without_a_position_in_a_table_nothing_is_worked_out(self, tmp_path: Path) -> None:
        self.checkpoint(tmp_path, 'v1\n{}\n{"orders":{"0":12}}')
        stage_moves(self.state(tmp_path), 1, lambda: pytest.fail("the tables are not read for this"))


class TestRemoval:
    def test_a_finish_removes_what_only_the_old_version_has(self) -> None:
        state = phases.switched(phases.letting_go(pipeline(Phase.BUILDING)))
        state = phases.with_phase(state, Phase.FINISHING, sink_id="switch-1")
        what = doomed(state, {})
        assert what.version == 1
        assert set(what.topics) == {"totals.v1", "gone.v1", "totals.v2", "more.v2"}
        assert what.kept == ("all", "gone"), "a public name stays"
        assert what.sinks == ("switch-1",)
        assert what.groups == ("pipeline.shop.totals", "pipeline.shop.gone", "pipeline.shop.all")

    def test_a_rollback_removes_the_new_version_and_no_topic_that_another_pipeline_reads(self) -> None:
        state = phases.turned_back(phases.letting_go(pipeline(Phase.BUILDING)))
        assert set(doomed(state, {}).topics) == {"totals.v2", "more.v2", "all.v2", "totals.v1", "gone.v1"}
        reader = DatasetState("copy", Kind.STREAM, "copy", "copy", reads=("all.v2",))
        other = PipelineState("other", versions={1: VersionState(1, datasets={"copy": reader})})
        what = doomed(state, {"other": other})
        assert "all.v2" not in what.topics
        assert what.kept == ("all.v2",)

    def test_a_version_that_never_ran_leaves_nothing(self) -> None:
        state = phases.begun(pipeline(), 2, now_ms=1)
        state = phases.turned_back(replace(state, versions={**state.versions, 2: VersionState(2)}))
        assert (doomed(state, {}).sinks, doomed(state, {}).groups, doomed(state, {}).checkpoints) == ((), (), "")


def test_a_stream_is_read_on_where_it_was_begun() -> None:
    """A name that means another topic since a rebuild: a checkpoint has positions in the old one."""
    known = {
        "all": KnownDataset("all.v3", "", (), Kind.STREAM),
        "fresh": KnownDataset("fresh.v2", "", (), Kind.STREAM),
        "totals": KnownDataset("totals", "", ("id",), Kind.TABLE),
    }
    reader = DatasetState("copy", Kind.STREAM, "copy", "copy", reads=("all.v2", "totals.v1"))
    found = pinned(known, VersionState(1, datasets={"copy": reader}))
    assert {name: each.topic for name, each in found.items()} == {
        "all": "all.v2",
        "fresh": "fresh.v2",
        "totals": "totals",
    }
    assert pinned(known, None) == known


def test_a_file_that_was_edited_finds_what_it_imports_from_beside_it(tmp_path: Path) -> None:
    (tmp_path / "shop_rules.py").write_text("TOPIC = 'rules-of-the-shop'")
    file = tmp_path / "shop.py"
    file.write_text(
        "import shop_rules\nfrom strandline import pipeline\n"
        "orders = pipeline.source('orders', topic=shop_rules.TOPIC, schema='id INT')\n"
        "@pipeline.stream\ndef all(orders):\n    return orders\n"
    )
    version = with_file(VersionState(1), str(file))
    file.write_text("edited")
    loaded = load(file_of(version, "shop", home=tmp_path / "home"))
    assert loaded.sources["orders"].topic == "rules-of-the-shop"
    assert [each.__name__ for each in modules_of(loaded)] == ["strandline_pipeline_shop", "shop_rules"], "for workers"


def test_the_file_of_a_version_is_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text("one")
    version = with_file(VersionState(1), str(file))
    assert file_of(version, "shop", home=tmp_path) == str(file)
    file.write_text("two")
    copy = Path(file_of(version, "shop", home=tmp_path))
    assert (copy.name, copy.read_text()) == ("shop.py", "one")
    file.unlink()
    assert Path(file_of(version, "shop", home=tmp_path)).read_text() == "one"
    forget_file("shop", 1, home=tmp_path)
    assert not copy.exists()
    with pytest.raises(PipelineRefused, match="is gone, and no copy of it was kept"):
        file_of(replace(version, text=""), "shop", home=tmp_path)
