"""The pages of the console and their JSON twins, against a real node, without a browser."""

from __future__ import annotations

import csv
import gzip
import io
import json
import socket
import threading
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic, make_topics

from strandline.console.pages.index import page_modules
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.free_ports import free_port
from strandline.services.console.console_service import ConsoleService
from strandline.services.console.console_settings import ConsoleServiceSettings

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker) -> list[str]:
    """Sixty-two topics: one with records and an owner that is markup, one internal."""
    names = ["orders", "orders.dead", *(f"readings-{number:02}" for number in range(60))]
    made = [NewTopic(each, 3, 1, config={"strandline.owner": EVIL} if each == "orders" else {}) for each in names]
    make_topics(broker.client_config, *made)
    producer = Producer(broker.client_config)
    for number in range(100):
        producer.produce("orders", str(number).encode(), b"x" * 50)
    producer.flush()
    return names


async def test_the_first_visit_leads_to_the_overview(browser: AsgiBrowser) -> None:
    page = await browser.follow(await browser.get("/"))
    assert page.status == 200
    assert "All is well." in page.words
    assert "leads the quorum" in page.words


async def test_the_overview_tells_what_changed(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    await browser.get("/c/dev")
    make_topic(broker.client_config, "fresh", 2)
    found = (await browser.until("/api/v1/clusters/dev", lambda answer: bool(answer.json["changes"]))).json
    assert any("1 topic created: fresh" in each["text"] for each in found["changes"])


async def test_the_verdict_is_that_of_cluster_health(browser: AsgiBrowser, topics: list[str]) -> None:
    found = (await browser.get("/api/v1/clusters/dev")).json
    assert found["verdict"]["level"] == "ok"
    assert {each["check"] for each in found["findings"]} == {"quorum", "replicas", "transactions", "storage"}


async def test_topics_have_size_offsets_and_owner(browser: AsgiBrowser, topics: list[str]) -> None:
    path = "/api/v1/clusters/dev/topics?q=orders"
    found = (await browser.until(path, lambda answer: answer.json["table"]["rows"][0]["owner"] is not None)).json
    assert [each["topic"] for each in found["table"]["rows"]] == ["orders", "orders.dead"]
    orders = found["table"]["rows"][0]
    assert orders["offsets"] == 100
    assert orders["size_bytes"] > 1000
    assert orders["health"] == "ok"
    assert orders["owner"] == EVIL


async def test_a_table_is_paged_sorted_and_searched_in_the_url(browser: AsgiBrowser, topics: list[str]) -> None:
    page = await browser.get("/c/dev/topics?q=readings&sort=-topic&size=20&page=2")
    assert "21–40 of 60 found among" in page.words
    assert page.text.index("readings-39") < page.text.index("readings-20")
    assert "readings-40" not in page.text
    regex = await browser.get("/api/v1/clusters/dev/topics?q=/^readings-0[0-4]$/")
    assert regex.json["table"]["found"] == 5
    wrong = await browser.get("/c/dev/topics?q=/(/")
    assert wrong.status == 400
    assert "is no regular expression" in wrong.words


@pytest.mark.parametrize(
    "query", ["page=99999999999", "page=-1", "size=x", "sort=nothing", "sort=-", "page=9&size=1000"]
)
async def test_nonsense_in_the_url_of_a_table_is_no_failure(
    browser: AsgiBrowser, topics: list[str], query: str
) -> None:
    assert (await browser.get(f"/c/dev/topics?{query}")).status == 200


async def test_every_row_is_exported(browser: AsgiBrowser, topics: list[str]) -> None:
    found = await browser.get("/c/dev/topics?export=csv&q=readings&size=5")
    assert found.headers["content-disposition"] == 'attachment; filename="topics.csv"'
    rows = list(csv.DictReader(io.StringIO(found.text)))
    assert len(rows) == 60
    whole = await browser.get("/c/dev/topics?export=json")
    assert len(whole.json["table"]["rows"]) >= 62


async def test_every_page_has_its_twin_and_its_question(browser: AsgiBrowser, topics: list[str]) -> None:
    for module in page_modules():
        for page in module.pages:
            # The last ones name a thing in the query, or need a worker of connectors; they have tests of their own.
            if "{" in page.path or page.name in ("subject", "connector", "connector_create", "pipeline"):
                continue
            path = "" if page.path == "/" else page.path
            shown, twin = await browser.get(f"/c/dev{path}"), await browser.get(f"/api/v1/clusters/dev{path}")
            assert shown.status == twin.status == 200, page.name
            assert page.question in shown.words
            assert twin.json["question"] == page.question


async def test_a_topic_is_created_by_one_post(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    wanted = {"topic": "clicks", "partitions": "4", "replicas": "1", "settings": "retention.ms=60000"}
    form = await browser.get("/c/dev/do/topic-create?review=1&topic=clicks&partitions=4&settings=retention.ms%3D60000")
    assert "strandline topic create clicks --partitions 4 --config retention.ms=60000" in form.words
    assert "4 partitions" in form.words
    done = await browser.post("/c/dev/do/topic-create", {**wanted, "csrf": form.value("csrf")})
    page = await browser.follow(done)
    assert "Topic clicks was created." in page.words
    # The page after a change shows it, whatever was read before.
    assert "clicks" in (await browser.get("/c/dev/topics?q=clicks")).html.words
    assert len(AdminClient(broker.client_config).list_topics("clicks", timeout=60).topics["clicks"].partitions) == 4


async def test_what_the_cluster_refuses_is_said_before_the_confirmation(
    browser: AsgiBrowser, topics: list[str]
) -> None:
    form = await browser.get("/c/dev/do/topic-create?review=1&topic=orders&partitions=1")
    assert form.status == 409
    assert "already exists" in form.words
    assert form.value("topic") == "orders"
    missing = await browser.get("/c/dev/do/topic-create?review=1&partitions=1")
    assert "Name: it is missing" in missing.words


async def test_changes_are_audited(broker: EmbeddedBroker, make_console: MakeConsole, tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    service = make_console({"dev": broker.bootstrap}, {"console.audit.file": str(file)})
    browser = AsgiBrowser(service.app, address="10.9.8.7")
    form = await browser.get("/c/dev/do/topic-create?review=1&topic=audited")
    values = {"topic": "audited", "partitions": "", "replicas": "", "settings": ""}
    await browser.post("/c/dev/do/topic-create", {**values, "csrf": "forged"})
    await browser.post("/c/dev/do/topic-create", {**values, "csrf": form.value("csrf")})
    await browser.post("/c/dev/do/topic-create", {**values, "csrf": form.value("csrf")})
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert [each["outcome"] for each in entries] == ["refused", "begun", "done", "begun", "failed"]
    assert entries[2]["command"] == "topic create audited"
    assert {each["address"] for each in entries} == {"10.9.8.7"}
    assert list(service.console.visits.audit.entries)[-1].outcome == "failed"


async def test_events_flow_and_say_what_changes(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    async with browser.events("/c/dev/live/overview") as events:
        first = await anext(events)
        assert first["retry"]
        shown = await anext(events)
        assert shown["event"] == "overview"
        assert "All is well." in shown["data"]
        make_topic(broker.client_config, "while-open")
        while "while-open" not in shown["data"]:
            shown = await anext(events)


async def test_a_stream_ends_when_the_console_stops(broker: EmbeddedBroker, make_console: MakeConsole) -> None:
    service = make_console({"dev": broker.bootstrap})
    async with AsgiBrowser(service.app).events("/c/dev/live/overview") as events:
        await anext(events)
        service.console.stop()
        assert [each async for each in events if each.get("event") != "overview"] == []
    assert service.console.visits.streams == 0


async def test_a_cluster_that_is_gone_is_one_sentence(make_console: MakeConsole) -> None:
    service = make_console({"gone": f"127.0.0.1:{free_port()}"})
    browser = AsgiBrowser(service.app)
    page = await browser.get("/c/gone/topics")
    assert page.status == 503
    assert "cannot be reached" in page.words
    assert "This page comes again by itself." in page.words
    assert "Traceback" not in page.text
    twin = await browser.get("/api/v1/clusters/gone/topics")
    assert twin.status == 503
    assert "cannot be reached" in twin.json["error"]


async def test_pages_go_on_with_what_is_known_when_the_node_dies(make_console: MakeConsole) -> None:
    import strandline

    with strandline.embedded() as node:
        service = make_console({"dev": node.bootstrap})
        browser = AsgiBrowser(service.app)
        make_topic(node.client_config, "kept")
        assert "kept" in (await browser.get("/c/dev/topics")).words
        node.kill()
        found = (await browser.until("/api/v1/clusters/dev/topics", lambda answer: bool(answer.json["notes"]))).json
        assert [each["topic"] for each in found["table"]["rows"]] == ["kept"]
        assert "does not answer" in found["notes"][0]
        node.start()
        await browser.until("/api/v1/clusters/dev/topics", lambda answer: not answer.json["notes"])


async def test_several_clusters_are_apart(broker: EmbeddedBroker, make_console: MakeConsole, topics: list[str]) -> None:
    service = make_console({"one": broker.bootstrap, "two": f"127.0.0.1:{free_port()}"})
    browser = AsgiBrowser(service.app)
    assert (await browser.get("/c/one/topics")).status == 200
    assert (await browser.get("/c/two/topics")).status == 503
    assert "/c/two" in (await browser.get("/c/one/topics")).html.links
    assert (await browser.get("/c/three")).status == 404
    assert (await browser.get("/api/v1")).json == {"clusters": ["one", "two"]}


async def test_the_first_page_is_small(browser: AsgiBrowser, topics: list[str]) -> None:
    page = await browser.get("/c/dev")
    files = [each["src"] for each in page.html.scripts]
    files += [part.split('"')[0] for part in page.text.split('<link rel="stylesheet" href="')[1:]]
    sizes = [len(page.body)]
    for file in files:
        answer = await browser.get(file, accept_encoding="gzip, deflate")
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]
        assert gzip.decompress(answer.body) == (await browser.get(file)).body
        sizes.append(len(answer.body))
    assert sum(sizes) < 100_000


def test_a_console_that_says_ready_takes_connections() -> None:
    given = {"listeners": "http://127.0.0.1:0", "clusters": "dev", "cluster.dev.bootstrap.servers": "127.0.0.1:1"}
    refused: list[OSError] = []

    def knock() -> None:
        # In the loop of the service itself, so that nothing can happen in between.
        try:
            socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])), timeout=10).close()
        except OSError as error:
            refused.append(error)
        service.stop()

    service = ConsoleService(ConsoleServiceSettings.of(given), knock)
    running = threading.Thread(target=service.run)
    running.start()
    running.join(60)
    assert not running.is_alive()
    assert refused == []
