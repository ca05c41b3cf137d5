"""SQL over views in the console: it reads views, and nothing else of the machine, under limits."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic

from strandline.local.embedded_broker import EmbeddedBroker

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

from strandline.pipelines.language.model import Kind
from strandline.pipelines.versions.state import DatasetState, PipelineState, VersionState, text_of

EVIL = "<script>alert(1)</script>"
API = "/api/v1/clusters/dev/views"


@pytest.fixture(scope="module", autouse=True)
def totals(broker: EmbeddedBroker) -> None:
    """Two views of 1,200 rows and of one, the second with a value that is masked."""
    states = {
        name: DatasetState(name, Kind.VIEW, name, name, schema=f"name string, {value}", key=("name",))
        for name, value in (("totals", "total bigint"), ("cards", "number string"))
    }
    state = text_of(PipelineState("shop", 1, {1: VersionState(1, "shop.py", datasets=states)}))
    for topic in ("__strandline_pipelines", "totals", "cards"):
        make_topic(broker.client_config, topic, cleanup_policy="compact")
    producer = Producer(broker.client_config)
    producer.produce("__strandline_pipelines", key="pipeline/shop", value=state)
    for number in range(1200):
        name = EVIL if not number else f"n{number:04}"
        producer.produce("totals", key=name, value=json.dumps({"name": name, "total": number}))
    producer.produce("cards", key="me", value=json.dumps({"name": "me", "number": "4111"}))
    producer.flush()


async def asked(browser: AsgiBrowser, sql: str) -> dict[str, object]:
    answer = await browser.get(f"{API}?sql={quote(sql)}")
    assert answer.status == 200, answer.text
    found: dict[str, object] = answer.json
    return found


async def test_views_are_asked_in_sql(browser: AsgiBrowser) -> None:
    found = (
        await browser.get(f"{API}?sql={quote('select name, total from totals order by total desc limit 2;')}")
    ).json
    assert found["failure"] == ""
    assert found["result"]["rows"] == [{"name": "n1199", "total": 1199}, {"name": "n1198", "total": 1198}]
    assert [each["view"] for each in found["views"]["rows"]] == ["cards", "totals"]
    page = await browser.get(f"/c/dev/views?sql={quote('select * from totals order by total')}")
    assert "The first 1,000 rows" in page.words
    assert EVIL in page.words
    assert not page.html.suspects
    assert all("src" in each for each in page.html.scripts)
    assert "strandline view query" in page.words
    assert "Clear" in page.words
    assert "Clear" not in (await browser.get("/c/dev/views")).words


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('/etc/hostname')",
        "select * from '/etc/passwd.csv'",
        "select * from glob('/*')",
        "select * from query('select * from glob(''/*'')')",
        "copy (select 1) to '/tmp/x.csv'",
        "select 1) limit 1; attach '/tmp/x.db'; select * from (select 1",
        "set threads = 8",
        "select * from broker",
        "drop table totals",
        "select (",
    ],
)
async def test_sql_reads_views_and_nothing_else(browser: AsgiBrowser, sql: str) -> None:
    found = await asked(browser, sql)
    assert found["failure"], found
    assert found["result"] is None


async def test_a_view_of_masked_values_is_not_asked(broker: EmbeddedBroker, make_console: MakeConsole) -> None:
    given = {"console.mask.cards": "cards value $.number"}
    browser = AsgiBrowser(make_console({"dev": broker.bootstrap}, given).app)
    for sql in ("select * from cards", "select * from totals, shop.cards", "with x as (from cards) from x"):
        answer = await browser.get(f"{API}?sql={quote(sql)}")
        assert "are masked" in answer.json["failure"]
        assert "4111" not in answer.text
    assert (
        "4111" not in (await browser.get(f"{API}?sql={quote(chr(102) + 'rom query(' + repr('from cards') + ')')}")).text
    )
    assert (await asked(browser, "select count(*) as n from totals"))["failure"] == ""


async def test_a_query_without_end_is_ended(browser: AsgiBrowser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.console.pages.views.QUERY_S", 1.0)
    found = await asked(browser, "select count(*) from range(1000000) a, range(1000000) b")
    assert found["failure"] == "The query took longer than 1 s"
    monkeypatch.setattr("strandline.console.pages.views.QUERY_S", 10.0)
    monkeypatch.setattr("strandline.console.pages.views.RECORDS_MAX", 100)
    assert "more than 100 records" in str((await asked(browser, "from totals"))["failure"])
