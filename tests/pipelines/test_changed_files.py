"""A file that changes between two runs: what is told before anything is written, what stops, and what is registered."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipelines.running_ground import Ground

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.versions.state import PipelineState, VersionState

SHOP = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.name("@@")
pipeline.source("orders", topic="@@.orders", schema="customer STRING, amount BIGINT")
pipeline.source("bills", topic="@@.bills", schema="due BIGINT")

@pipeline.table(topic="@@.totals", key="customer")
def totals(orders):
    return orders.groupBy("customer").agg(F.sum("amount").alias("total"))

@pipeline.stream(topic="@@.due")
def due(bills):
    return bills.where("due > 0")
"""

LARGE = """
@pipeline.stream(topic="@@.large")
def large(orders):
    return orders.where("amount >= 10")
"""


@pytest.fixture
def ground(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    # Copies of texts that the registry has kept are written below the working directory.
    monkeypatch.chdir(tmp_path)
    made = Ground(spark, broker, tmp_path, f"p{uuid.uuid4().hex[:8]}")
    for each in ("orders", "bills"):
        broker.create_topic(made.topic(each))
    made.feed("orders", orders(10, 100))
    return made


def orders(*amounts: int) -> list[dict[str, object]]:
    return [{"customer": "ann", "amount": amount} for amount in amounts]


def version_of(ground: Ground) -> VersionState:
    state = ground.registry().pipeline(ground.word)
    assert state is not None
    assert state.current is not None
    return state.current


def totals(ground: Ground) -> list[object]:
    return [value["total"] for _, value in ground.records("totals")]


@pytest.mark.slow
def test_a_dataset_that_is_added_is_known_before_its_first_batch(ground: Ground) -> None:
    """Also while another query has nothing to read: `due` never has a batch here."""
    ground.once(ground.write(SHOP))
    file = ground.write(SHOP + LARGE)
    runner = ground.runner(file, once=True)
    runner.claim()
    runner.plan(ground.spark)
    assert version_of(ground).datasets["large"].topic == ground.topic("large")
    assert "  large: new (it begins with its inputs)" in ground.said
    runner.give_up(None)

    runner = ground.once(file)
    assert version_of(ground).datasets["large"].query_id == str(runner.running["large"].id)
    assert f"{ground.word}.large" in ground.registry().known_datasets()
    ground.said.clear()
    ground.once(file)
    assert ground.said == [], "the change was told once"

    Path(runner.checkpoint("large")).rename(ground.home / "aside")
    with pytest.raises(PipelineRefused, match=r"the checkpoint of large is gone .* --recover"):
        ground.once(file)
    assert [value["amount"] for _, value in ground.records("large")] == [10, 100]


@pytest.mark.slow
def test_another_aggregate_does_not_go_on_over_the_old_state(ground: Ground) -> None:
    file = ground.write(SHOP)
    ground.once(file)
    before = version_of(ground)
    assert totals(ground) == [110]

    ground.write(SHOP.replace("F.sum", "F.max"))
    ground.feed("orders", orders(5))
    words = (
        r"^totals needs a rebuild: functions: sum\(\S+amount\) before, max\(\S+amount\) now\. `strandline pipeline re"
    )
    with pytest.raises(PipelineRefused, match=words) as refused:
        ground.once(file)
    assert "--accept" in str(refused.value)
    assert ground.said[-2].startswith("  totals: needs rebuild (functions: ")
    assert ground.said[-1] == "  due: same"
    assert (totals(ground), version_of(ground)) == ([110], before), "nothing was written, and the old file can go on"

    ground.write(SHOP)
    ground.once(file)
    assert totals(ground) == [110, 115]


@pytest.mark.slow
def test_what_is_accepted_goes_on_and_is_not_asked_again(ground: Ground) -> None:
    file = ground.write(SHOP)
    ground.once(file)
    ground.write(SHOP.replace("F.sum", "F.max"))
    ground.once(file, accepts=True)
    with pytest.raises(PipelineRefused, match="totals needs a rebuild"):
        ground.once(file)  # No batch of it was written yet.
    ground.feed("orders", orders(5))
    ground.once(file, accepts=True)
    assert totals(ground) == [110, 110]
    ground.said.clear()
    ground.feed("orders", orders(500))
    ground.once(file)
    assert (totals(ground), ground.said) == ([110, 110, 500], [])


@pytest.mark.slow
def test_a_changed_filter_and_a_comment_run_on(ground: Ground) -> None:
    ground.once(ground.write(SHOP + LARGE))
    ground.said.clear()
    ground.feed("orders", orders(20, 200))
    ground.once(ground.write("# Of the shop.\n" + SHOP + LARGE.replace(">= 10", ">= 50")))
    assert ground.said == [
        "the file has changed since the last run:",
        "  totals: same",
        "  due: same",
        "  large: continues with old state (it keeps no state; it goes on at its position, and what was written stays)",
    ]
    assert [value["amount"] for _, value in ground.records("large")] == [10, 100, 200]
    assert totals(ground) == [110, 330]


@pytest.mark.slow
def test_a_dataset_that_comes_back_is_not_begun_anew(ground: Ground) -> None:
    file = ground.write(SHOP + LARGE)
    runner = ground.once(file)
    ground.once(ground.write(SHOP))
    assert ground.said[-1] == f"  large: gone (what it wrote stays in {ground.topic('large')})"
    assert "large" not in version_of(ground).datasets
    ground.once(ground.write(SHOP + LARGE))
    assert [value["amount"] for _, value in ground.records("large")] == [10, 100]
    ground.once(ground.write(SHOP))
    Path(runner.checkpoint("large")).rename(ground.home / "aside")
    with pytest.raises(PipelineRefused, match=r"the checkpoint of large is gone"):
        ground.once(ground.write(SHOP + LARGE))


def without_forms(state: PipelineState | None) -> PipelineState:
    """As a program wrote it that kept no forms."""
    assert state is not None
    assert state.current is not None
    datasets = {
        name: replace(each, streams=(), form=(), plan="", form_made_with="")
        for name, each in state.current.datasets.items()
    }
    return replace(state, versions={1: replace(state.current, datasets=datasets)})


@pytest.mark.slow
def test_a_registry_without_forms_is_taken_on(ground: Ground) -> None:
    file = ground.write(SHOP)
    ground.once(file)
    ground.registry().change(ground.word, without_forms)
    ground.said.clear()
    ground.once(file)
    assert ground.said[1] == "  totals: same (what its state means was not kept; it is kept from now on)"
    ground.said.clear()
    ground.once(file)
    assert ground.said == []
    assert version_of(ground).datasets["totals"].form != ()


@pytest.mark.slow
def test_without_forms_the_text_that_was_kept_tells_them(ground: Ground) -> None:
    file = ground.write(SHOP)
    ground.once(file)
    ground.registry().change(ground.word, without_forms)
    ground.write(SHOP.replace("F.sum", "F.max"))
    with pytest.raises(PipelineRefused, match=r"totals needs a rebuild: functions: sum\("):
        ground.once(file)
    ground.write(f"# Of the shop.\n{SHOP}")
    ground.once(file)
    assert ground.said[-2:] == ["  totals: same", "  due: same"]
