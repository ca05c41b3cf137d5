"""A pipeline is rebuilt by Spark on a broker: who reads sees the old version, then the new one, and may go back."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelines.plain_shop import PlainShop
from tests.pipelines.rebuild_chains import check_by_name, check_new, large, made_ready, no_spark, topics_of
from tests.pipelines.rebuild_ground import table_of, topic_id
from tests.pipelines.shop_ground import Shop, stock_totals

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.rebuild.comparing import Comparison, words_of
from strandline.pipelines.rebuild.phases import Phase, RebuildRefused, Wish
from strandline.pipelines.rebuild.switching import Removal
from strandline.pipelines.run.running import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = [("ana", 50), ("bo", 150), ("ana", 300), ("cy", 5), *((f"c{each}", each) for each in range(1, 40))]


class Reader:
    """Asks a view again and again, and keeps what it was told."""

    def __init__(self, shop: Shop) -> None:
        self.seen: list[dict[str, int]] = []
        self.failures: list[BaseException] = []
        self._shop = shop
        self._ended = threading.Event()

    def read(self) -> None:
        try:
            with self._shop.desk() as desk:
                while not self._ended.is_set():
                    self.seen.append(self._shop.totals(desk))
        except BaseException as error:
            self.failures.append(error)

    @contextmanager
    def reading(self) -> Iterator[None]:
        thread = threading.Thread(target=self.read)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()


def test_readers_see_the_old_version_and_then_the_new_one(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    shop = Shop(broker, tmp_path, with_stream=True)
    shop.edit()
    shop.order(*ORDERS)
    shop.run_once(spark)
    old, new = shop.expected(), shop.expected(large)
    public = f"{shop.name}-totals"
    was_id, was_stream = topic_id(broker.bootstrap, public), shop.stream()
    shop.edit(which="amount > 10", large=10)
    reader = Reader(shop)
    compared: list[Comparison] = []

    def look(comparisons: list[Comparison]) -> bool:
        compared.extend(comparisons)
        assert stock_totals(table_of(broker.bootstrap, public)) == old, "nothing is public before the switch"
        return True

    with reader.reading():
        ended = shop.rebuild(lambda: spark, compares=True, may_switch=look)
    assert not reader.failures
    changes = [each for at, each in enumerate(reader.seen) if at == 0 or each != reader.seen[at - 1]]
    assert changes in ([old, new], [old]), "old until the switch, new after it, never anything else"
    with shop.desk() as desk:
        assert shop.totals(desk) == new
    assert stock_totals(table_of(broker.bootstrap, public)) == new, "and so does a stock consumer"
    assert topic_id(broker.bootstrap, public) == was_id
    assert ended.written == {public: 11}, "ten customers had only small orders, and ana none"
    assert shop.stream(1) == was_stream
    assert shop.stream(2) == sorted(each for each in ORDERS if each[1] >= 10)
    totals = next(each for each in compared if each.dataset == "totals")
    assert (totals.old_rows, totals.new_rows, totals.only_old) == (len(old), len(new), len(old) - len(new))
    assert len(totals.sample) == 5
    assert any("the same" in line for each in compared for line in words_of(each))

    # The new version goes on in the public topic, the old one comes back with what came since.
    shop.order(("cy", 7), ("zoe", 500))
    shop.run_once(spark)
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected(large)
    assert shop.rebuild(lambda: spark).words.startswith("version 2 is what")
    shop.rebuild(lambda: spark, Wish.ROLL_BACK)
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected()
    assert stock_totals(table_of(broker.bootstrap, public)) == shop.expected()
    assert shop.stream(1) == sorted(each for each in shop.orders if each[1] >= 100)
    state = shop.registry.refresh().pipeline(shop.name)
    assert state is not None
    assert (state.active, sorted(state.versions), state.rebuild) == (1, [1], None)
    assert topics_of(shop) == {"-orders", "-large", "-totals"}, "nothing of version 2 is left"
    assert not (tmp_path / "checkpoints" / shop.name / "v2").exists()


@pytest.mark.slow
def test_a_switch_that_removes_much_is_refused_and_the_old_version_goes_on(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A yes to the switch is none to the rows that it removes."""
    shop = PlainShop(broker, tmp_path, monkeypatch)
    made_ready(shop, shop.run_active)
    asked: list[list[Removal]] = []

    def refuse(removals: list[Removal]) -> bool:
        state = shop.registry.refresh().pipeline(shop.name)
        assert state is not None
        assert state.rebuild is not None
        assert state.rebuild.phase == "building", "the old version may go on while the user thinks"
        asked.append(removals)
        return False

    public = f"{shop.name}-totals"
    with pytest.raises(RebuildRefused, match=rf"would remove 2 of the 4 rows of {public}.* --remove-rows"):
        shop.rebuild(no_spark, compares=True, may_remove=refuse)
    assert asked == [[Removal(public, 4, 2)]]
    assert not check_by_name(shop)
    shop.order(("ana", 20))
    new = shop.file.read_text()
    shop.edit()
    shop.run_active()
    shop.edit(text=new)
    compared: list[Comparison] = []

    def look(comparisons: list[Comparison]) -> bool:
        compared.extend(comparisons)
        return True

    shop.rebuild(no_spark, compares=True, may_switch=look, may_remove=lambda _: True)
    check_new(shop)
    assert sorted(each.dataset for each in compared) == ["large", "totals"], "the user has seen this once"


@pytest.mark.slow
def test_a_rebuild_that_only_compared_says_how_it_goes_on(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the way back, too, where other options complete it and give it up."""
    shop = PlainShop(broker, tmp_path, monkeypatch)
    made_ready(shop, shop.run_active)
    ended = shop.rebuild(no_spark, compares=True, may_switch=lambda _: False)
    assert ended.phase is Phase.BUILDING
    assert ended.words == "nothing was switched: say it again with --yes to switch, or give it up with --rollback"
    shop.rebuild(no_spark)
    ended = shop.rebuild(no_spark, Wish.ROLL_BACK, compares=True, may_switch=lambda _: False)
    assert ended.phase is Phase.RETURNING
    assert ended.words == (
        "nothing was switched: say it again with --rollback --yes to switch, or give it up with --finish"
    )


NEXT_RECORD = ["latest", pytest.param('{"@": {"0": -1, "1": -1}}', marks=pytest.mark.slow)]


@pytest.mark.slow
@pytest.mark.parametrize("starting", NEXT_RECORD, ids=["latest", "-1"])
def test_a_rebuild_begins_where_the_version_before_began(
    starting: str, spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """A source that starts with the next record: the next after version 1 had begun, and not after version 2 has."""
    shop = Shop(broker, tmp_path, starting=starting)
    shop.order(("early", 1000))
    shop.orders.clear()
    shop.edit()
    shop.run_once(spark)
    shop.order(*ORDERS)
    shop.run_once(spark)
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected()
    shop.edit(text=shop.file.read_text() + "\n# Nothing of what it does has changed.\n")
    ended = shop.rebuild(lambda: spark, may_remove=lambda _: pytest.fail("no row is removed"))
    assert (ended.active, ended.written) == (2, {f"{shop.name}-totals": 0})
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected()
    shop.rebuild(no_spark, Wish.FINISH)
    shop.order(("zoe", 500))
    shop.run_once(spark)
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected()


def test_what_has_not_run_cannot_be_rebuilt(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with pytest.raises(RebuildRefused, match="There is no pipeline"):
        Shop(broker, tmp_path).rebuild(lambda: pytest.fail("nothing here needs Spark"))


@pytest.mark.slow
def test_a_version_that_fails_leaves_the_old_one_as_it_is(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    shop = Shop(broker, tmp_path, with_stream=True)
    shop.edit()
    shop.order(*ORDERS)
    shop.run_once(spark)
    good = shop.file.read_text()
    shop.edit(text="this is no Python")
    with pytest.raises(PipelineRefused, match=r"shop\.py:1"):
        shop.rebuild(lambda: spark)
    shop.edit(text=good.replace(shop.name, "another"))
    with pytest.raises(PipelineRefused, match="declares the pipeline another"):
        shop.rebuild(lambda: spark)
    shop.edit(text=good.replace('view(key="customer", ', "stream("))
    with pytest.raises(PipelineRefused, match="was a view and is a stream now"):
        shop.rebuild(lambda: spark)
    state = shop.registry.refresh().pipeline(shop.name)
    assert state is not None
    assert state.rebuild is None, "what can be seen in the file is refused before anything begins"
    shop.edit(text=good.replace('"amount >= 100"', '"raise_error(customer) IS NULL"'))
    with pytest.raises(PipelineRefused, match="large failed"):
        shop.rebuild(lambda: spark)
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected()
    shop.order(("zoe", 500))
    shop.edit(text=good)
    shop.run_once(spark)
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected(), "the old version runs on"
    shop.rebuild(lambda: pytest.fail("nothing here needs Spark"), Wish.ROLL_BACK)
    assert topics_of(shop) == {"-orders", "-large", "-totals"}


@pytest.mark.slow
def test_a_rebuild_takes_over_from_a_run_and_only_one_is_done_at_a_time(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    shop = Shop(broker, tmp_path)
    shop.edit()
    shop.order(*ORDERS)
    outcomes: list[Outcome] = []
    runner = shop.runner(spark, once=False)
    running = threading.Thread(target=lambda: outcomes.append(runner.run(threading.Event())))
    running.start()
    shop.edit(which="amount > 10")
    others: list[str] = []

    def look(comparisons: list[Comparison]) -> bool:
        shop.order(("late", 77))
        with pytest.raises(RebuildRefused, match=rf"being rebuilt by process {os.getpid()} on .*building") as refused:
            shop.rebuild(lambda: spark)
        others.append(str(refused.value))
        return True

    shop.rebuild(lambda: spark, compares=True, may_switch=look)
    running.join()
    assert outcomes == [Outcome.HANDED_OVER]
    assert len(others) == 1
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected(large), "what came before the switch is in it"
    shop.rebuild(lambda: pytest.fail("nothing here needs Spark"), Wish.FINISH)
    with shop.desk() as desk:
        assert shop.totals(desk) == shop.expected(large)
    assert topics_of(shop) == {"-orders", "-totals"}
    assert not (tmp_path / "checkpoints" / shop.name / "v1").exists()
    with pytest.raises(RebuildRefused, match="has no rebuild to finish"):
        shop.rebuild(lambda: spark, Wish.FINISH)


@pytest.mark.slow
def test_changes_of_a_table_are_read_once_through_switch_and_return(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    """The query that reads them has its position in a topic that the table leaves, and comes back to."""
    shop = Shop(broker, tmp_path, with_changes=True)
    shop.edit(high=200)
    shop.order(*ORDERS)
    shop.run_once(spark)
    # Not everything was read when the switch comes: totals are written, ranks are not.
    shop.order(("zoe", 900))
    runner = shop.runner(spark, once=True)
    runner.compiled = [each for each in runner.compiled if each.name == "totals"]
    assert runner.run(threading.Event()) is Outcome.DONE
    ranks = f"{shop.name}-ranks"
    assert "zoe" not in table_of(broker.bootstrap, ranks)
    shop.edit(high=300)
    shop.rebuild(lambda: spark)
    assert '"high"' in table_of(broker.bootstrap, ranks)["zoe"]
    shop.order(("bo", 160))
    shop.run_once(spark)
    assert '"high"' in table_of(broker.bootstrap, ranks)["bo"]
    shop.rebuild(lambda: spark, Wish.ROLL_BACK)
    shop.order(("cy", 1000))
    shop.edit(high=200)
    shop.run_once(spark)
    expected = {name: "high" if total >= 200 else "low" for name, total in shop.expected().items()}
    told = {key: "high" if '"high"' in value else "low" for key, value in table_of(broker.bootstrap, ranks).items()}
    assert told == expected
