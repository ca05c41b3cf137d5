"""What reads what: the order of datasets, and files that do not hold together."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.declaring import Declarations
from strandline.pipelines.language.graph import arranged, check_inputs, dead_letters_behind, outside_inputs
from strandline.pipelines.language.model import Dataset, Kind, Pipeline, Place, SourceTopic


def dataset(name: str, *inputs: str, kind: Kind = Kind.STREAM, **more: Any) -> Dataset:
    topic = more.pop("topic", "" if kind is Kind.TEMPORARY else name)
    return Dataset(name, kind, lambda: None, inputs, topic=topic, at=Place("shop.py", 7), **more)


def source(name: str, **more: Any) -> SourceTopic:
    return SourceTopic(name, more.pop("topic", name), at=Place("shop.py", 3), **more)


def pipeline(*things: SourceTopic | Dataset, known: Collection[str] | None = ()) -> Pipeline:
    declared = Declarations("shop.py")
    declared.sources.update({each.name: each for each in things if isinstance(each, SourceTopic)})
    declared.datasets.update({each.name: each for each in things if isinstance(each, Dataset)})
    return arranged(declared, "shop", known=known)


def refusal(*things: SourceTopic | Dataset, known: Iterable[str] = ()) -> str:
    with pytest.raises(PipelineRefused) as refused:
        pipeline(*things, known=list(known))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_dead_letters_are_those_of_the_first_source_that_has_them() -> None:
    shop = pipeline(
        source("plain"),
        source("orders", schema="id INT", dead_letters="orders.dead"),
        source("people", schema="id INT", key=("id",), is_table=True, dead_letters="people.dead"),
        dataset("paid", "plain", "orders", "people", kind=Kind.TEMPORARY),
        dataset("large", "paid"),
        dataset("totals", "large", "people", kind=Kind.TABLE, key=("id",)),
        dataset("copies", "plain", "elsewhere"),
        known=["elsewhere"],
    )
    assert dead_letters_behind(shop, shop.datasets["totals"]) == "orders.dead"
    assert dead_letters_behind(shop, shop.datasets["copies"]) is None


def test_each_dataset_comes_after_what_it_reads() -> None:
    found = pipeline(
        dataset("report", "joined", "orders"),
        dataset("joined", "orders", "people", kind=Kind.TEMPORARY),
        dataset("people", "orders", kind=Kind.TABLE, key=("id",)),
        source("orders"),
        dataset("first", "orders"),
    )
    assert list(found.datasets) == ["people", "joined", "report", "first"]
    assert [each.name for each in found.written] == ["people", "report", "first"]


def test_a_cycle_is_named() -> None:
    words = refusal(source("orders"), dataset("a", "orders", "c"), dataset("b", "a"), dataset("c", "b"))
    assert words.startswith("shop.py:7: a -> b -> c -> a is a cycle")
    assert "take one of these inputs away" in words
    assert "a -> a is a cycle" in refusal(dataset("a", "a"))


def test_a_cycle_through_temporary_views_is_one_too() -> None:
    assert "a -> b -> a is a cycle" in refusal(dataset("a", "b"), dataset("b", "a", kind=Kind.TEMPORARY))


def test_an_unknown_input_is_told_with_a_guess() -> None:
    words = refusal(source("orders"), dataset("large", "odrers"))
    assert words.startswith("shop.py:7: large reads odrers, which is neither declared in this file nor a dataset")
    assert "(did you mean orders?)" in words
    assert "did you mean" not in refusal(source("orders"), dataset("large", "weather"))
    assert words.endswith("correct the name, or declare pipeline.source('odrers', ...)")


def test_datasets_of_other_pipelines_may_be_read() -> None:
    things = (source("orders"), dataset("large", "orders", "customers"))
    assert outside_inputs(pipeline(*things, known=["customers"])) == ["customers"]
    later = pipeline(*things, known=None)
    check_inputs(later, ["customers"])
    with pytest.raises(PipelineRefused, match=r"did you mean customers\?|did you mean customer\?"):
        check_inputs(later, ["customer"])


def test_two_writers_of_one_topic_are_refused() -> None:
    words = refusal(source("orders"), dataset("a", "orders", topic="out"), dataset("b", "orders", topic="out"))
    assert "b and a (at shop.py:7) both write the topic out" in words
    letters = source("orders", schema="x INT", dead_letters="bad")
    assert "the dead letters of orders (at shop.py:3) both write the topic bad" in refusal(
        letters, dataset("bad", "orders")
    )


def test_sources_may_share_their_dead_letters() -> None:
    first, second = (source(name, schema="x INT", dead_letters="bad") for name in ("a", "b"))
    assert pipeline(first, second, dataset("both", "a", "b")).sources["b"].dead_letters == "bad"


def test_a_pipeline_does_not_read_what_it_writes_as_a_source() -> None:
    words = refusal(source("orders"), source("again", topic="large"), dataset("large", "orders"), dataset("b", "again"))
    assert "the source again reads the topic large, which large (at shop.py:7) writes" in words


def test_changes_are_of_tables_and_of_inputs() -> None:
    table = dataset("totals", "orders", kind=Kind.TABLE, key=("id",))
    orders, people = source("orders"), source("people", schema="id INT", key=("id",), is_table=True)
    rich = dataset("rich", "totals", "people", changes=frozenset({"totals", "people"}))
    assert pipeline(orders, people, table, rich).datasets["rich"].changes == {"totals", "people"}
    words = refusal(orders, dataset("rich", "orders", changes=frozenset({"orders"})))
    assert "rich reads the changes of orders, which is no table" in words
    words = refusal(orders, table, dataset("rich", "orders", changes=frozenset({"total"})))
    assert "changes='total', which is none of its inputs" in words


def test_a_file_without_anything_to_run_is_refused() -> None:
    assert "declares no stream, table or view" in refusal(source("orders"))
    assert "declares no stream, table or view" in refusal(source("orders"), dataset("a", "orders", kind=Kind.TEMPORARY))
