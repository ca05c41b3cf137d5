"""What names mean: by the registry that pipelines write, at every step of a rebuild's switch, and by hand."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from tests.pipelines.rebuild_ground import TwoVersions, put_rows

from strandline.ids import TopicPartition
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.language.model import Kind
from strandline.pipelines.rebuild.phases import Phase
from strandline.pipelines.rebuild.switching import Switching
from strandline.pipelines.versions import version_store as pipelines_registry
from strandline.pipelines.versions.state import DatasetState, PipelineState, RebuildState, VersionState
from strandline.pipelines.versions.version_store import Registry
from strandline.runtime import fault_points
from strandline.views import AtTime, Desk, ViewFailed
from strandline.views.catalog import REGISTRY_TOPIC
from strandline.views.failures import ViewUnknown

TOTALS = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "customer", "type": "string", "nullable": True, "metadata": {}},
            {"name": "total", "type": "double", "nullable": True, "metadata": {}},
        ],
    }
)


def table(name: str, topic: str, *, kind: Kind = Kind.VIEW) -> DatasetState:
    key = ("customer",) if kind.has_keys else ()
    return DatasetState(name, kind, topic, topic, schema=TOTALS, key=key)


def test_the_topic_is_that_of_pipelines() -> None:
    assert REGISTRY_TOPIC == pipelines_registry.TOPIC


def test_datasets_of_pipelines(broker: EmbeddedBroker, registry: Registry, desk: Desk, shop: str) -> None:
    broker.create_topic(shop, 2, cleanup_policy="compact")
    put_rows(broker.bootstrap, shop, {"ada": '{"total":1.5}', "bob": '{"total":2.5}'})
    name = f"totals_{shop}"
    version = VersionState(
        1, datasets={name: table(name, shop), f"all_{shop}": table(f"all_{shop}", f"{shop}-all", kind=Kind.STREAM)}
    )
    registry.change(shop, lambda _: PipelineState(shop, versions={1: version}))
    assert desk.query(f"select * from {name} order by customer").rows == [("ada", 1.5), ("bob", 2.5)]
    # By the pipeline's name, too; and capitals are not told from small letters, as in all SQL.
    assert desk.query(f"select sum(t.total) from {shop}.{name} t").rows == [(4.0,)]
    assert desk.query(f"select count(*) from {name.upper()}").rows == [(2,)]
    assert desk.query(
        f"with w as (select * from {name}) select a.customer from w a join {shop}.{name} b using (customer) order by 1"
    ).rows == [("ada",), ("bob",)]
    assert desk.views()[name].pipeline == shop
    with pytest.raises(ViewUnknown, match=rf"there is no view {name}s \(did you mean .*{name}\?\)"):
        desk.query(f"select * from {name}s")
    with pytest.raises(ViewUnknown, match=rf"all_{shop} is a stream, which has no keys"):
        desk.query(f"select * from all_{shop}")
    registry.change(shop, lambda _: None)
    with pytest.raises(ViewUnknown):
        desk.query(f"select * from {name}")


def test_files_beside_views(
    broker: EmbeddedBroker, registry: Registry, desk: Desk, shop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(shop, 1, cleanup_policy="compact")
    put_rows(broker.bootstrap, shop, {"7": '{"name":"seven"}'})
    for name in (shop, f"{shop}_too"):
        registry.put(f"view/{name}", json.dumps({"topic": shop, "schema": "id INT, name STRING", "key": ["id"]}))
    # A file of the view's name is none of its business; one that is read by DuckDB has an ending.
    (tmp_path / shop).mkdir()
    (tmp_path / "words.csv").write_text("id,word\n7,sieben\n")
    monkeypatch.chdir(tmp_path)
    query = f"select name, word from {shop} join 'words.csv' using (id)"
    assert desk.query(query).rows == [("seven", "sieben")]
    with pytest.raises(ViewFailed, match="offsets are those of one topic, and the query reads"):
        desk.query(f"select * from {shop} join {shop}_too using (id)", as_of={0: 1})
    assert desk.query(f"select count(*) from {shop}, {shop}_too", as_of="2000-01-01T00:00:00Z").rows == [(0,)]


def test_a_view_whose_topic_is_not_there(registry: Registry, desk: Desk, shop: str) -> None:
    registry.change(
        shop, lambda _: PipelineState(shop, versions={1: VersionState(1, datasets={shop: table(shop, shop)})})
    )
    with pytest.raises(ViewFailed, match=f"the topic {shop} of the view {shop} does not exist: run its pipeline"):
        desk.query(f"select * from {shop}")


def test_by_hand(broker: EmbeddedBroker, registry: Registry, desk: Desk, shop: str) -> None:
    broker.create_topic(shop, 1, cleanup_policy="compact")
    put_rows(broker.bootstrap, shop, {"7": '{"name":"seven"}', '{"id":8}': '{"name":"eight"}'})
    registry.put(f"view/{shop}", json.dumps({"topic": shop, "schema": "id INT, name STRING", "key": ["id"]}))
    assert desk.query(f"select * from {shop} order by id").rows == [(7, "seven"), (8, "eight")]
    for key in (7, "7", {"id": 7}, "id=7", '{"id":7}'):
        assert desk.row(shop, key) == {"id": 7, "name": "seven"}
    assert desk.row(shop, 8) == {"id": 8, "name": "eight"}
    assert desk.row(shop, 9) is None
    # Strange records take away nothing but themselves.
    registry.put(f"view/{shop}_strange", json.dumps({"topic": 1, "schema": "???"}))
    registry.put(f"pipeline/{shop}_strange", json.dumps({"name": "strange", "versions": {}}))
    assert shop in desk.views()
    assert f"{shop}_strange" not in desk.views()


def test_nothing_of_a_switch_is_shown_before_it_is_done(
    broker: EmbeddedBroker, registry: Registry, desk: Desk, shop: str
) -> None:
    broker.create_topic(shop, 2, cleanup_policy="compact")
    old = {f"c{each}": '{"total":1.0}' for each in range(10)}
    put_rows(broker.bootstrap, shop, old)
    name = f"totals_{shop}"
    both = {number: VersionState(number, datasets={name: table(name, shop)}) for number in (1, 2)}
    registry.change(shop, lambda _: PipelineState(shop, versions=both))
    query = f"select distinct total from {name}"
    assert desk.query(query).rows == [(1.0,)]
    ends = {str(partition): offset for partition, offset in desk.ends(name).items()}
    switching = RebuildState(Phase.SWITCHING.value, 1, 2, public_ends={shop: ends})
    registry.change(shop, lambda _: PipelineState(shop, versions=both, rebuild=switching))
    put_rows(broker.bootstrap, shop, {"c3": '{"total":2.0}'})
    answer = desk.query(query)
    assert answer.rows == [(1.0,)]
    assert answer.freshness.records_behind == 0
    assert "a rebuild is about to switch" in answer.freshness.words
    with Desk(broker.bootstrap, directory=desk.directory / "none") as other:
        assert other.query(query).rows == [(1.0,)]
    put_rows(broker.bootstrap, shop, dict.fromkeys(old, '{"total":2.0}'))
    assert desk.query(query).rows == [(1.0,)]
    switched = RebuildState(Phase.SWITCHED.value, 1, 2)
    registry.change(shop, lambda _: PipelineState(shop, active=2, versions=both, rebuild=switched))
    answer = desk.query(query)
    assert answer.rows == [(2.0,)]
    assert "a rebuild" not in answer.freshness.words
    assert desk.views()[name].version == 2


def test_a_switch_that_begins_between_two_questions(
    broker: EmbeddedBroker, registry: Registry, desk: Desk, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name was looked up before, the offsets are told after half of the difference was committed."""
    broker.create_topic(shop, 2, cleanup_policy="compact")
    put_rows(broker.bootstrap, shop, {f"c{each}": '{"total":1.0}' for each in range(10)})
    name = f"totals_{shop}"
    both = {number: VersionState(number, datasets={name: table(name, shop)}) for number in (1, 2)}
    registry.change(shop, lambda _: PipelineState(shop, versions=both))
    ends = {str(partition): offset for partition, offset in desk.ends(name).items()}
    list_offsets = desk.client.list_offsets
    begun: list[bool] = []

    def begin_first(wanted: dict[TopicPartition, int], **more: int) -> dict[TopicPartition, int]:
        if not begun and any(place.topic == shop for place in wanted):
            begun.append(True)
            switching = RebuildState(Phase.SWITCHING.value, 1, 2, public_ends={shop: ends})
            registry.change(shop, lambda _: PipelineState(shop, versions=both, rebuild=switching))
            put_rows(broker.bootstrap, shop, {"c3": '{"total":2.0}'})
        return list_offsets(wanted, **more)

    monkeypatch.setattr(desk.client, "list_offsets", begin_first)
    assert desk.query(f"select distinct total from {name}").rows == [(1.0,)]
    assert begun


@pytest.mark.parametrize(
    "point",
    [
        "switch-ends-noted",
        pytest.param("switch-copy-named", marks=pytest.mark.slow),
        pytest.param("switch-committed", marks=pytest.mark.slow),
        "switch-moved",
    ],
)
def test_the_past_while_a_switch_is_not_finished(
    broker: EmbeddedBroker, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """The rebuild was killed: the name means a copy, whose records are all from the switch."""
    two = TwoVersions(broker, ["totals"])
    (table,) = two.tables
    put_rows(broker.bootstrap, table, {"a": "1", "b": "1"})
    old_ms = at_once_over()
    put_rows(broker.bootstrap, table, {"a": "2", "b": None})
    offsets = dict(desk.ends(table))
    then_ms = at_once_over()
    put_rows(broker.bootstrap, f"{table}.v2", {"a": "3"})
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:fail:{tmp_path / 'fault'}")
    with pytest.raises(fault_points.PlantedFault):
        Switching(two.registry, two.name, "me").perform()
    query = f'select * from "{two.name}"."{table}" order by key'

    def check_past() -> None:
        assert desk.query(query, as_of=AtTime(old_ms)).rows == [("a", "1"), ("b", "1")]
        assert desk.query(query, as_of=AtTime(then_ms)).rows == [("a", "2")]
        assert desk.query(query, as_of=offsets).rows == [("a", "2")]
        assert desk.row(table, "a", as_of=AtTime(old_ms)) == {"key": "a", "value": "1"}

    assert desk.query(query).rows == [("a", "2")]
    check_past()
    with pytest.raises(ViewFailed, match="is not there yet: what is committed ends at"):
        desk.query(query, as_of={each: offset + 1 for each, offset in offsets.items()})
    assert desk.reach([table]).is_log_start or desk.reach([table]).offsets is None
    Switching(two.registry, two.name, "me").perform()
    assert desk.query(query).rows == [("a", "3")]
    check_past()


def at_once_over() -> int:
    """A millisecond that is over: what is written from now on is later."""
    began_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= began_ms:
        pass
    return began_ms


def test_readers_during_a_switch_see_the_old_or_the_new(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Two tables are switched together; a query over both sees the same version of each, all of it."""
    two = TwoVersions(broker, ["totals", "counts"])
    for each in two.tables:
        put_rows(broker.bootstrap, each, {f"k{number}": "old" for number in range(300)})
        put_rows(broker.bootstrap, f"{each}.v2", {f"k{number}": "new" for number in range(100, 400)})
    first, second = (f'"{two.name}"."{each}"' for each in two.tables)
    query = (
        f"select a.value, b.value, count(*), min(a.key), max(a.key) from {first} a full join {second} b using (key) "
        "group by all"
    )
    seen: list[list[tuple[object, ...]]] = []
    is_over = threading.Event()

    def read() -> None:
        with Desk(broker.bootstrap, directory=tmp_path) as desk:
            while not is_over.is_set():
                seen.append(desk.query(query).rows)
            seen.append(desk.query(query).rows)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        Switching(two.registry, two.name, "me", may_remove=True).perform()
    finally:
        is_over.set()
        reader.join()
    old, new = [("old", "old", 300, "k0", "k99")], [("new", "new", 300, "k100", "k399")]
    assert all(rows in (old, new) for rows in seen), [each for each in seen if each not in (old, new)][:1]
    assert seen[-1] == new
    changes = [index for index in range(1, len(seen)) if seen[index] != seen[index - 1]]
    assert len(changes) <= 1, "there is no way back"
