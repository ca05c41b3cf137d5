"""The page Charts: what the nodes measured themselves, zoomed by the URL."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic

from strandline.client.metrics_history import ChartSeries, ClusterHistory
from strandline.console.pages.charts import POINTS_MAX, _drawn, folded, verdict
from strandline.local.embedded_broker import EmbeddedBroker


def test_steps_are_folded_by_the_mean_or_the_worst() -> None:
    values = [1.0, 3.0, None, None, 5.0]
    assert folded(values, 2, is_worst=False) == [2.0, None, 5.0]
    assert folded(values, 2, is_worst=True) == [3.0, None, 5.0]
    assert folded(values, 1, is_worst=True) == values


def history() -> ClusterHistory:
    """A day in steps of ten seconds, and of minutes for groups."""
    fine = ChartSeries(10_000, 0, {"bytes_in": [float(at) for at in range(8640)], "produce_p99_ms": [2.0] * 8640})
    groups = {f"group/g/{number}/lag": [float(number)] * 1440 for number in range(9)}
    return ClusterHistory([fine, ChartSeries(60_000, 0, dict(groups))])


def test_a_day_fits_into_a_page_and_a_zoom_shows_every_step() -> None:
    whole = {each["name"]: each for each in _drawn(history(), 0, 0)}
    assert len(whole["throughput"]["times"]) <= POINTS_MAX
    assert [each["label"] for each in whole["lag"]["series"]] == ["g/8", "g/7", "g/6", "g/5", "g/4"]
    zoomed = {each["name"]: each for each in _drawn(history(), 100, 200)}
    assert zoomed["throughput"]["times"] == list(range(100, 201, 10))
    assert zoomed["throughput"]["series"][0]["values"] == [float(at) for at in range(10, 21)]
    beyond = {each["name"]: each for each in _drawn(history(), 10**9, 10**9 + 1)}
    assert beyond["throughput"]["times"] == []


def test_the_answer_is_how_busy_and_quick_it_is_now() -> None:
    assert verdict(history())["text"] == "A Produce is answered within 2.0 ms (p99)."


@pytest.mark.slow
async def test_what_a_node_measured_is_drawn(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "busy")
    producer = Producer(broker.client_config)
    producer.produce("busy", b"x" * 1000)
    producer.flush(30)
    path = "/api/v1/clusters/dev/charts"
    found = await browser.until(path, lambda each: bool(each.json["charts"]))
    assert "throughput" in {each["name"] for each in found.json["charts"]}
    page = await browser.get("/c/dev/charts?range=6h")
    assert "data-brush" in page.text
    assert "Drag over a chart" in page.words


@pytest.mark.parametrize("query", ["range=1y", "from=5", "from=9&to=5", "from=x&to=y"])
async def test_another_range_is_refused(browser: AsgiBrowser, query: str) -> None:
    assert (await browser.get(f"/c/dev/charts?{query}")).status == 400


async def test_grafana_is_linked_where_there_is_one(broker: EmbeddedBroker, make_console: MakeConsole) -> None:
    service = make_console({"dev": broker.bootstrap}, {"console.grafana": "https://grafana.example/d/1"})
    assert "https://grafana.example/d/1" in (await AsgiBrowser(service.app).get("/c/dev/charts")).html.links
