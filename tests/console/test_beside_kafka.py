"""The console in front of Apache Kafka: every page opens, and says in a sentence what only Strandline's nodes tell."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.brokers import Broker
from confluent_kafka import Producer
from tests.clients.kafka_server import kafka
from tests.clients.positions import commit
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic

from strandline.client.group_settings import set_group_settings
from strandline.client.shares.share_consumer import ShareConsumer
from strandline.console.pages.index import page_modules

__all__ = ["kafka"]

HERE = Path(__file__).parent
SETS = ("test_acceptance", "test_topic_actions")
SUITE_TIMEOUT_S = 280
pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture(scope="module")
def filled(kafka: Broker) -> Broker:
    """Kafka with records, a group that is behind, and transactions that were aborted or are open."""
    client = {"bootstrap.servers": kafka.bootstrap}
    for name in ("orders", "payments", "dlq.mails"):
        make_topic(client, name)
    producer = Producer(client)
    for number in range(50):
        producer.produce("orders", b"%d" % number, key=b"k")
    given = {"topic": "mails", "partition": "0", "offset": "7", "group": "mailers", "message": "rejected"}
    headers = [(f"__dlq.errors.{name}", text.encode()) for name, text in given.items()]
    producer.produce("dlq.mails", b"mail", headers=headers)
    producer.flush(30)
    commit(kafka.bootstrap, "billing", "orders", 10)
    writer = Producer({**client, "transactional.id": "payments-writer"})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce("payments", b"x")
    writer.flush(30)
    writer.abort_transaction(30)
    set_group_settings(kafka.bootstrap, "mailers", {"share.auto.offset.reset": "earliest"})
    with contextlib.closing(ShareConsumer(kafka.bootstrap, "mailers", ["orders"])) as worker:
        taken: list[object] = []
        while not taken:
            taken += worker.poll(records_max=2, wait_s=0.2)
    return kafka


VALUES = {"topic": "orders", "partition": "0", "offset": "3", "group": "billing", "node": "1"}
NAMED_IN_THE_QUERY = {"subject": 400, "connector": 400, "connector_create": 501, "pipeline": 404}
"""Pages of things that this cluster does not have, with the status that says so."""
OURS_ALONE = {
    "charts": "Only Strandline's nodes measure themselves",
    "topic-storage": "Only Strandline's brokers tell",
    "group": "This cluster does not remember why its groups rebalanced: only Strandline does",
    "audit": "Strandline's nodes write it",
}


def filled_in(path: str) -> str:
    for name, text in VALUES.items():
        path = path.replace(f"{{{name}}}", text).replace(f"{{{name}:path}}", text)
    assert "{" not in path, f"{path} has a parameter without a value: add it to VALUES"
    return "" if path == "/" else path


async def test_every_page_opens(filled: Broker, make_console: MakeConsole) -> None:
    browser = AsgiBrowser(make_console({"dev": filled.bootstrap}).app)
    told = set()
    for page in (page for module in page_modules() for page in module.pages):
        path = filled_in(page.path.replace("{group:path}", "mailers") if page.name == "queue" else page.path)
        wanted = NAMED_IN_THE_QUERY.get(page.name, 200)
        shown, twin = await browser.get(f"/c/dev{path}"), await browser.get(f"/api/v1/clusters/dev{path}")
        assert (shown.status, twin.status) == (wanted, wanted), (page.name, shown.words)
        assert "The console failed" not in shown.words, page.name
        assert shown.html.suspects == []
        if page.name in OURS_ALONE:
            assert OURS_ALONE[page.name] in shown.words, page.name
            told.add(page.name)
    assert told == OURS_ALONE.keys()


async def test_every_form_opens(filled: Broker, make_console: MakeConsole) -> None:
    browser = AsgiBrowser(make_console({"dev": filled.bootstrap}).app)
    query = "topic=orders&topics=orders&group=billing&node=1&subject=x&connector=x&name=x"
    for action in (action for module in page_modules() for action in module.actions):
        answer = await browser.get(f"/c/dev/do/{action.name}?{query}")
        # What this cluster has not is refused in a sentence: no registry, no worker, no open transaction.
        assert answer.status in (200, 400, 404, 409, 501), (action.name, answer.words)
        assert "The console failed" not in answer.words, action.name


async def test_settings_are_explained_by_the_cluster(filled: Broker, make_console: MakeConsole) -> None:
    browser = AsgiBrowser(make_console({"dev": filled.bootstrap}).app)
    found = (await browser.get("/api/v1/clusters/dev/topics/orders/settings?all=true&size=1000")).json
    rows = {each["setting"]: each for each in found["table"]["rows"]}
    assert "segment" in rows["segment.bytes"]["explained"]
    assert {each["survives"] for each in rows.values()} == {None}


def test_what_people_do_works(kafka: Broker) -> None:
    environ = os.environ | {"STRANDLINE_TEST_BOOTSTRAP": kafka.bootstrap}
    files = [str(HERE / f"{name}.py") for name in SETS]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
    ended = subprocess.run(
        command, env=environ, cwd=HERE.parents[1], capture_output=True, text=True, timeout=SUITE_TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
