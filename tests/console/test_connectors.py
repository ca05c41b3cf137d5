"""Connectors in the console, against a real worker, and one that answers as Kafka's own does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.connect.running_worker import running_worker
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic

from strandline.cli.connect.worker_api import ConnectApi
from strandline.console.reading.connect_reading import shown_config
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.free_ports import free_port

EVIL = "<script>alert(1)</script>"
API = "/api/v1/clusters/dev/connectors"
ONE = "/c/dev/connectors/connector?name="


@pytest.fixture(scope="module")
def worker(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectApi]:
    directory = tmp_path_factory.mktemp("files")
    (directory / "in.txt").write_text("one\ntwo\n")
    make_topic(broker.client_config, "lines")
    with running_worker(broker.bootstrap) as url:
        api = ConnectApi(url, 60)
        source = {"connector.class": "FileSource", "file": str(directory / "in.txt"), "topic": "lines"}
        sink = {"connector.class": "FileSink", "file": str(directory / "out.txt"), "topics": "lines"}
        api.ask("PUT", "connectors", "lines in/out", "config", body=source)
        api.ask("PUT", "connectors", "lines-out", "config", body=sink)
        yield api


@pytest.fixture
def connectors(broker: EmbeddedBroker, worker: ConnectApi, make_console: MakeConsole) -> AsgiBrowser:
    return AsgiBrowser(make_console({"dev": broker.bootstrap}, {"cluster.dev.connect": worker.url}).app)


async def until_state(browser: AsgiBrowser, name: str, state: str) -> None:
    path = f"{API}/connector?{urlencode({'name': name})}"
    await browser.until(path, lambda answer: answer.status == 200 and answer.json["state"] == state)


async def test_connectors_have_state_tasks_and_lag(connectors: AsgiBrowser) -> None:
    await until_state(connectors, "lines-out", "running")
    await until_state(connectors, "lines in/out", "running")

    def is_at_rest(found: Any) -> bool:
        # The list may be older than a page, and lacks what has no state yet. A rebalance stops tasks for a moment.
        rows = found.json["table"]["rows"]
        return [each["running"] for each in rows] == [1, 1] and rows[1]["lag"] == 0

    answer = await connectors.until(API, is_at_rest)
    source, sink = answer.json["table"]["rows"]
    assert (source["connector"], source["kind"], source["state"], source["lag"]) == (
        "lines in/out",
        "source",
        "running",
        None,
    )
    assert (sink["connector"], sink["running"], sink["tasks"]) == ("lines-out", 1, 1)
    assert "All 2 connectors run." in (await connectors.get("/c/dev/connectors")).words


async def test_a_connector_shows_its_positions(connectors: AsgiBrowser, monkeypatch: pytest.MonkeyPatch) -> None:
    # Positions are asked for again at once.
    monkeypatch.setattr("strandline.console.reading.connect_reading.LAG_S", 0.05)
    link = next(each for each in (await connectors.get("/c/dev/connectors")).html.links if "lines+in" in each)

    def has_read(answer: Any) -> bool:
        return "position=" in answer.words

    page = await connectors.until(link, has_read)
    assert "It runs" in page.words
    path = f"{API}/connector?name=lines-out"
    sink = (await connectors.until(path, lambda answer: bool(answer.json["positions"]["rows"]))).json
    assert sink["group"] == "connect-lines-out"
    assert sink["positions"]["rows"][0]["partition"] == "lines-0"
    assert sink["config"]["topics"] == "lines"


async def test_a_connector_is_paused_resumed_and_restarted(connectors: AsgiBrowser, worker: ConnectApi) -> None:
    await until_state(connectors, "lines-out", "running")
    for verb, state in (("pause", "paused"), ("resume", "running"), ("stop", "stopped"), ("resume", "running")):
        path = f"/c/dev/do/connector-{verb}"
        page = await connectors.get(f"{path}?connector=lines-out")
        assert f"strandline connect {verb} lines-out --url {worker.url}" in page.words
        done = await connectors.post(path, {"csrf": page.value("csrf"), "connector": "lines-out"})
        assert f"lines-out is {state.upper()}." in (await connectors.follow(done)).words
    review = "/c/dev/do/connector-restart?review=1&connector=lines-out&scope=everything"
    page = await connectors.get(review)
    assert "connect restart lines-out --tasks" in page.words
    form = {"csrf": page.value("csrf"), "connector": "lines-out", "scope": "everything"}
    done = await connectors.post("/c/dev/do/connector-restart", form)
    assert "lines-out restarts: connector, task 0." in (await connectors.follow(done)).words
    await until_state(connectors, "lines-out", "running")
    assert (await connectors.get("/c/dev/do/connector-pause?connector=nothing")).status == 404


async def test_connectors_are_searched_and_listed_with_their_state(connectors: AsgiBrowser) -> None:
    await until_state(connectors, "lines-out", "running")

    def is_listed_as(answer: Any, wanted: str) -> bool:
        return [each["state"] for each in answer.json["table"]["rows"]] == [wanted]

    found = await connectors.until(f"{API}?q=lines-out", lambda answer: is_listed_as(answer, "running"))
    (row,) = found.json["table"]["rows"]
    assert (row["connector"], row["kind"]) == ("lines-out", "sink")
    for verb, state in (("stop", "stopped"), ("resume", "running"), ("pause", "paused"), ("resume", "running")):
        page = await connectors.get(f"/c/dev/do/connector-{verb}?connector=lines-out")
        await connectors.post(f"/c/dev/do/connector-{verb}", {"csrf": page.value("csrf"), "connector": "lines-out"})
        await connectors.until(f"{API}?q=lines-out", lambda answer, state=state: is_listed_as(answer, state))


async def test_a_connector_is_created_by_a_form(connectors: AsgiBrowser, worker: ConnectApi, tmp_path: Path) -> None:
    page = await connectors.get("/c/dev/connectors/create?q=file")
    link = next(each for each in page.html.links if "class=FileSink" in each)
    empty = await connectors.get(link)
    assert "Give it a name" in empty.words
    assert "Missing required" not in empty.words
    given = {"class": "FileSink", "connector": "made", "s.topics": "lines"}
    wrong = await connectors.get(f"/c/dev/connectors/create?{urlencode(given)}")
    assert "The worker finds 1 setting wrong." in wrong.words
    assert 'Missing required configuration "file"' in wrong.words
    given["s.file"] = str(tmp_path / "made.txt")
    page = await connectors.get(f"/c/dev/connectors/create?{urlencode(given)}")
    assert "The worker accepts these settings." in page.words
    review = await connectors.get(next(each for each in page.html.links if "do/connector-create" in each))
    assert "made is created, and its tasks start at once" in review.words
    names = ("csrf", "connector", "class", "secret")
    config = f"file={tmp_path / 'made.txt'}\ntopics=lines"
    form = {name: review.value(name) for name in names} | {"config": config}
    done = await connectors.post("/c/dev/do/connector-create", form)
    assert "Connector made was created." in (await connectors.follow(done)).words
    again = await connectors.post("/c/dev/do/connector-create", form)
    assert again.status == 409
    assert "there is a connector made already" in again.words.lower()
    worker.ask("DELETE", "connectors", "made")


async def test_a_console_that_only_reads_has_no_form(
    broker: EmbeddedBroker, worker: ConnectApi, make_console: MakeConsole
) -> None:
    given = {"cluster.dev.connect": worker.url, "console.read.only": "true"}
    browser = AsgiBrowser(make_console({"dev": broker.bootstrap}, given).app)
    assert (await browser.get("/c/dev/connectors")).status == 200
    assert (await browser.get("/c/dev/connectors/create")).status == 403
    answer = await browser.post_json("/api/v1/clusters/dev/do/connector-pause", {"connector": "lines-out"})
    assert answer.status == 403


async def test_a_worker_that_is_gone_or_none_is_said_in_a_sentence(
    broker: EmbeddedBroker, make_console: MakeConsole
) -> None:
    browser = AsgiBrowser(make_console({"dev": broker.bootstrap}).app)
    page = await browser.get("/c/dev/connectors")
    assert page.status == 200
    assert "tart it with --connect URL" in page.words
    gone = {"cluster.dev.connect": f"http://127.0.0.1:{free_port()}"}
    page = await AsgiBrowser(make_console({"dev": broker.bootstrap}, gone).app).get("/c/dev/connectors")
    assert page.status == 503


# A worker as Kafka has it: no masks, no inspection


CONFIG = {
    "connector.class": f"io.example.{EVIL}",
    "database.password": "hunter2",
    "connection.url": "jdbc:postgresql://me:hunter2@db/x?password=hunter2",
    "key.converter": "plain",
}
TRACE = f"org.apache.kafka.connect.errors.ConnectException: {EVIL} at http://me:hunter2@db\n\tat java"


class _Kafka(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        unit = {"state": "RUNNING", "worker_id": "a:8083"}
        task = {"id": 0, "state": "FAILED", "worker_id": "a:8083", "trace": TRACE}
        slot = {"name": f"slot{EVIL}", "is_active": False, "wal_status": "reserved", "held_bytes": 5 << 20}
        inspected = {"database": "db/x", "behind_bytes": 2048, "behind_s": 3.0, "slot": slot, "problems": [f"p{EVIL}"]}
        found = {
            "status": {"name": EVIL, "connector": unit, "tasks": [task], "type": "source"},
            "info": {"name": EVIL, "config": CONFIG, "tasks": [], "type": "source"},
        }
        path = self.path.partition("?")[0]
        answers: dict[str, Any] = {
            "/connectors": {EVIL: found},
            "offsets": {"offsets": [{"partition": {"p": EVIL}, "offset": None}]},
            "inspect": inspected,
            "/connector-plugins": [{"class": EVIL, "type": "source"}],
        }
        answer = answers.get(path) or answers.get(path.rpartition("/")[2])
        body = json.dumps(answer if answer is not None else {"message": "none"}).encode()
        self.send_response(200 if answer is not None else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def foreign(broker: EmbeddedBroker, make_console: MakeConsole) -> Iterator[AsgiBrowser]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Kafka)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    given = {"cluster.dev.connect": f"http://127.0.0.1:{server.server_port}"}
    yield AsgiBrowser(make_console({"dev": broker.bootstrap}, given).app)
    server.shutdown()
    thread.join()
    server.server_close()


async def test_markup_and_passwords_of_connectors_do_not_get_through(foreign: AsgiBrowser) -> None:
    for path in ("/connectors", f"/connectors/connector?{urlencode({'name': EVIL})}", "/connectors/create"):
        page = await foreign.get(f"/c/dev{path}")
        assert page.status == 200, page.words
        assert not page.html.suspects
        assert all("src" in each for each in page.html.scripts)
        assert "hunter2" not in page.text
        assert "hunter2" not in (await foreign.get(f"/api/v1/clusters/dev{path}")).text


async def test_a_failed_task_and_a_slot_are_said_in_a_sentence(foreign: AsgiBrowser) -> None:
    page = await foreign.get("/c/dev/connectors")
    assert "1 of 1 connector failed." in page.words
    page = await foreign.get(f"{ONE}{urlencode({'': EVIL})[1:]}")
    assert "It has failed: org.apache.kafka.connect.errors.ConnectException" in page.words
    assert "5 MiB" in page.words
    assert "unread" in page.words


def test_what_is_secret_is_hidden_and_what_refers_to_it_is_not() -> None:
    shown = shown_config({**CONFIG, "ssl.key.password": "${env:X}", "api.key": "k", "tasks.max": "1"})
    assert shown["database.password"] == shown["api.key"] == "[hidden]"
    assert shown["ssl.key.password"] == "${env:X}"
    assert shown["connection.url"] == "jdbc:postgresql://[hidden]@db/x?password=[hidden]"
    assert (shown["key.converter"], shown["tasks.max"]) == ("plain", "1")
