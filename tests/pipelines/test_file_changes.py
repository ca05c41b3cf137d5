"""What a change of the file means for each dataset, from what is known of both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.pipelines.changes.file_changes import (
    Change,
    Verdict,
    changes_of,
    lines_of,
    needing_rebuild,
    noted,
    refusal_of,
)
from strandline.pipelines.language.model import Kind
from strandline.pipelines.versions.state import DatasetState, PipelineState, VersionState, text_of

TOTALS = DatasetState(
    "totals",
    Kind.TABLE,
    "totals",
    "totals",
    schema="{}",
    key=("customer",),
    mode="update",
    reads=("orders",),
    stateful=("aggregate",),
    query_id="an id",
    streams=("orders",),
    form=("grouping: orders.customer", "functions: sum(orders.amount)"),
    plan="p1",
    form_made_with="1, Spark 4, Python 3",
)
LARGE = replace(
    TOTALS,
    name="large",
    kind=Kind.STREAM,
    topic="large",
    public_topic="large",
    key=(),
    mode="append",
    stateful=(),
    form=(),
)


def only(was: DatasetState, now: DatasetState, *, is_same_text: bool = False) -> Change:
    version = VersionState(1, datasets={was.name: was})
    (found,) = changes_of(version, {now.name: replace(now, query_id=None)}, is_same_text=is_same_text)
    return found


@pytest.mark.parametrize(
    ("was", "more", "verdict", "reason"),
    [
        (TOTALS, {}, Verdict.SAME, ""),
        (LARGE, {"plan": "p2"}, Verdict.CONTINUES, "it keeps no state"),
        (TOTALS, {"plan": "p2"}, Verdict.CONTINUES, "its state means the same"),
        (TOTALS, {"schema": "{x}"}, Verdict.CONTINUES, "other columns"),
        (LARGE, {"topic": "big", "public_topic": "big"}, Verdict.CONTINUES, "it wrote large, and writes big"),
        (TOTALS, {"topic": "sums", "public_topic": "sums"}, Verdict.NEEDS_REBUILD, "its rows are in totals"),
        (TOTALS, {"key": ("id",)}, Verdict.NEEDS_REBUILD, "its key was customer and is id"),
        (TOTALS, {"kind": Kind.STREAM}, Verdict.NEEDS_REBUILD, "it was a table and is a stream"),
        (TOTALS, {"kind": Kind.VIEW}, Verdict.SAME, ""),
        (LARGE, {"streams": ("orders", "bills")}, Verdict.NEEDS_REBUILD, "and reads bills, orders"),
        (LARGE, {"streams": ("orders.v2",)}, Verdict.SAME, ""),
        (TOTALS, {"mode": "complete"}, Verdict.NEEDS_REBUILD, "its mode was update and is complete"),
        (TOTALS, {"form": ()}, Verdict.NEEDS_REBUILD, "no such state"),
        (
            TOTALS,
            {"form": ("grouping: orders.customer", "functions: max(orders.amount)")},
            Verdict.NEEDS_REBUILD,
            "functions: sum(orders.amount) before, max(orders.amount) now",
        ),
    ],
)
def test_a_dataset_that_has_run(was: DatasetState, more: dict[str, object], verdict: Verdict, reason: str) -> None:
    found = only(was, replace(was, **more))  # type: ignore[arg-type]
    assert (found.verdict, reason in found.reason) == (verdict, True), found


def test_an_older_registry_is_taken_on_once_and_never_guessed() -> None:
    """Known of before there were forms: the same text means the same state, and of another text nothing is known."""
    old = replace(TOTALS, form=(), plan="", form_made_with="", streams=())
    found = only(old, TOTALS, is_same_text=True)
    assert found.verdict is Verdict.SAME
    assert "it is kept from now on" in found.reason
    assert only(TOTALS, TOTALS, is_same_text=True) == Change("totals", Verdict.SAME)
    assert only(old, TOTALS).verdict is Verdict.NEEDS_REBUILD
    stateless = replace(LARGE, plan="", form_made_with="", streams=())
    assert only(stateless, LARGE).verdict is Verdict.CONTINUES
    assert only(stateless, LARGE, is_same_text=True) == Change("large", Verdict.SAME)


def test_forms_of_another_spark_are_not_compared() -> None:
    now = replace(TOTALS, form=("grouping: customer",), plan="p2", form_made_with="1, Spark 5, Python 3")
    assert only(TOTALS, now, is_same_text=True).verdict is Verdict.SAME
    assert only(TOTALS, now).verdict is Verdict.NEEDS_REBUILD
    assert only(TOTALS, replace(TOTALS, form_made_with=now.form_made_with), is_same_text=True).reason == ""


def test_what_is_new_what_is_gone_and_what_only_has_another_name() -> None:
    version = VersionState(1, datasets={"totals": TOTALS, "never": replace(LARGE, name="never", query_id=None)})
    found = changes_of(version, {"large": replace(LARGE, query_id=None)}, is_same_text=False)
    assert [(each.dataset, each.verdict) for each in found] == [("large", Verdict.NEW), ("totals", Verdict.GONE)]
    renamed = replace(TOTALS, name="sums", query_id=None)
    found = changes_of(version, {"sums": renamed}, is_same_text=False)
    assert found[0].verdict is Verdict.NEEDS_REBUILD
    assert "a second time" in found[0].reason


def test_one_that_is_gone_comes_back_where_it_was() -> None:
    version = noted(VersionState(1, datasets={"totals": TOTALS, "large": LARGE}), {"large": LARGE})
    assert (list(version.datasets), version.gone) == (["large"], {"totals": TOTALS})
    told = PipelineState.from_json(PipelineState("shop", 1, {1: version}).to_json())
    assert told.current == version
    assert '"gone"' in text_of(told)
    back = replace(TOTALS, query_id=None, form=("grouping: orders.region",))
    found = changes_of(version, {"large": LARGE, "totals": back}, is_same_text=False)
    assert [each.verdict for each in found] == [Verdict.SAME, Verdict.NEEDS_REBUILD]
    again = noted(version, {"large": LARGE, "totals": replace(TOTALS, query_id=None)})
    assert (again.datasets["totals"], again.gone) == (TOTALS, {})


def test_what_is_accepted_is_noted_when_it_has_run() -> None:
    now = {"totals": replace(TOTALS, form=("x",), query_id=None), "large": replace(LARGE, plan="p2", query_id=None)}
    version = VersionState(1, datasets={"totals": TOTALS, "large": LARGE})
    first = noted(version, now, waiting=frozenset({"totals"}))
    assert first.datasets == {"totals": TOTALS, "large": replace(LARGE, plan="p2")}
    assert noted(first, now).datasets["totals"] == replace(TOTALS, form=("x",))


def test_what_a_run_says_of_it() -> None:
    assert lines_of([Change("a", Verdict.NEW, "x")], is_same_text=True) == []
    assert lines_of([Change("a", Verdict.SAME)], is_same_text=True) == []
    told = [Change("a", Verdict.SAME), Change("b", Verdict.NEEDS_REBUILD, "y"), Change("c", Verdict.NEEDS_REBUILD, "z")]
    assert lines_of(told, is_same_text=False) == [
        "the file has changed since the last run:",
        "  a: same",
        "  b: needs rebuild (y)",
        "  c: needs rebuild (z)",
    ]
    assert refusal_of(needing_rebuild(told), "shop").startswith(
        "b needs a rebuild: y (so does c). `strandline pipeline rebuild shop` runs"
    )
