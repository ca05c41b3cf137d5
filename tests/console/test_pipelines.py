"""Pipelines in the console, by the records that their processes write."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from tests.console.asgi_browser import AsgiBrowser
from tests.console.made_topics import make_topic

from strandline.console.pages.dataset_graph import DatasetNode, picture
from strandline.console.reading.pipeline_reading import known_of
from strandline.local.embedded_broker import EmbeddedBroker

pytest.importorskip("pyarrow")

from strandline.pipelines.language.model import Kind
from strandline.pipelines.versions.state import (
    DatasetState,
    PipelineState,
    QueryProgress,
    RebuildState,
    RunState,
    VersionState,
    text_of,
)

EVIL = "<script>alert(1)</script>"
TOPIC = "__strandline_pipelines"
API = "/api/v1/clusters/dev/pipelines"


def dataset(name: str, *reads: str) -> DatasetState:
    return DatasetState(name, Kind.STREAM, name, name, reads=reads, stateful=("aggregate",))


@pytest.fixture(scope="module")
def pipelines(broker: EmbeddedBroker) -> None:
    """One that runs and is rebuilt, one that has failed, one whose process fell silent, and records of no meaning."""
    now_ms = time.time_ns() // 1_000_000
    shop = VersionState(2, "shop.py", datasets={each.name: each for each in (dataset("b", "a"), dataset("a", "raw"))})
    broken = VersionState(1, EVIL, datasets={EVIL: dataset(EVIL, "b")})
    # Far ahead, so that it is not taken for dead while the tests run.
    progress = {"a": QueryProgress("running", 7, 100, 3, 5.0, 40, batch_ms=1500), "b": QueryProgress("running", lag=2)}
    records = {
        "pipeline/shop": text_of(PipelineState("shop", 2, {2: shop}, RebuildState("building", 2, 3, "x", now_ms))),
        "run/shop/2": text_of(RunState("shop", 2, "x", "running", 1, "box", 0, now_ms + 10**9, queries=progress)),
        f"pipeline/{EVIL}": text_of(PipelineState(EVIL, 1, {1: broken})),
        f"run/{EVIL}/1": text_of(RunState(EVIL, 1, "x", "failed", failure=f"the query failed: {EVIL}")),
        "pipeline/silent": text_of(PipelineState("silent", 1, {1: broken})),
        "run/silent/1": text_of(RunState("silent", 1, "x", "running", 77, "box", 0, now_ms - 60_000)),
        "pipeline/gone": text_of(PipelineState("gone")),
        "pipeline/nonsense": "[1]",
        "run/x": "{",
        "other": "x",
    }
    make_topic(broker.client_config, TOPIC, cleanup_policy="compact")
    producer = Producer(broker.client_config)
    for key, value in records.items():
        producer.produce(TOPIC, key=key, value=value)
    producer.produce(TOPIC, key="pipeline/gone", value=None)
    producer.flush()


async def test_pipelines_say_whether_they_keep_up(browser: AsgiBrowser, pipelines: None) -> None:
    found = (await browser.get(API)).json
    rows = {each["pipeline"]: each for each in found["table"]["rows"]}
    assert set(rows) == {"shop", EVIL, "silent"}
    shop = rows["shop"]
    assert (shop["state"], shop["lag"], shop["late_rows"], shop["rows_per_s"]) == ("running", 42, 3, 5.0)
    assert shop["rebuild"] == "version 3: building"
    assert rows["silent"]["state"] == "lost"
    assert found["verdict"]["text"].startswith("2 of 3 pipelines failed.")


async def test_a_pipeline_shows_its_queries_and_its_rebuild(browser: AsgiBrowser, pipelines: None) -> None:
    found = (await browser.get(f"{API}/pipeline?name=shop")).json
    (first, second) = found["queries"]["rows"]
    assert (first["dataset"], first["batch"], first["batch_s"], first["keeps_state"]) == ("a", 7, 1.5, ["aggregate"])
    assert second["lag"] == 2
    assert found["verdict"]["text"] == "It runs; a has 40 unread records."
    page = await browser.get("/c/dev/pipelines/pipeline?name=shop")
    assert "Version 3 is to take the place of version 2: building." in page.words
    assert "b reads a" in page.words
    silent = await browser.get("/c/dev/pipelines/pipeline?name=silent")
    assert "Its process 77 on box said nothing for" in silent.words
    assert (await browser.get("/c/dev/pipelines/pipeline?name=nothing")).status == 404
    assert (await browser.get("/c/dev/pipelines/pipeline?name=shop&version=9")).status == 404


async def test_markup_in_pipelines_is_text(browser: AsgiBrowser, pipelines: None) -> None:
    for path in ("/pipelines", "/pipelines/pipeline?name=%3Cscript%3Ealert(1)%3C/script%3E"):
        page = await browser.get(f"/c/dev{path}")
        assert page.status == 200
        assert EVIL in page.words
        assert not page.html.suspects
        assert all("src" in each for each in page.html.scripts)


def test_what_comes_of_what_stands_to_its_right() -> None:
    nodes = [DatasetNode("c", "c", "stream", reads=("a", "b")), DatasetNode("b", "b", "stream", reads=("a",))]
    found = picture([*nodes, DatasetNode("a", "a", "topic")])
    assert found is not None
    x = {each["name"]: each["x"] for each in found["boxes"]}
    assert x["a"] < x["b"] < x["c"]
    assert all(each["x1"] <= each["x2"] for each in found["lines"])
    assert {(each["from"], each["to"]) for each in found["lines"]} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert picture([]) is None


def test_a_source_stands_beside_its_first_reader() -> None:
    nodes = [DatasetNode("b", "b", "stream", reads=("a",)), DatasetNode("c", "c", "stream", reads=("b", "late"))]
    found = picture([DatasetNode("a", "a", "topic"), DatasetNode("late", "late", "topic"), *nodes])
    assert found is not None
    x = {each["name"]: each["x"] for each in found["boxes"]}
    assert x["late"] == x["b"] > x["a"]


def test_a_circle_of_datasets_is_drawn() -> None:
    found = picture([DatasetNode("a", "a", "stream", reads=("b",)), DatasetNode("b", "b", "stream", reads=("a",))])
    assert found is not None
    assert len(found["boxes"]) == 2
    assert found["width"] < 1000


def test_records_that_mean_nothing_are_passed_over() -> None:
    assert not known_of({"pipeline/x": b"\xff", "run/x/1": b"[]", "run/x/y": b"{}", "": b""}).pipelines
