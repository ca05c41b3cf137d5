"""Every page and action on three nodes with Spark, queues, connectors, schemas and ACLs, as people see them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.cli.conftest import COMMAND
from tests.clients.positions import commit
from tests.connect.running_worker import running_worker
from tests.console.browser.conftest import PICTURES, OpenScreen, Screen, listening
from tests.console.made_topics import make_topics
from tests.pipelines.running_ground import read_all
from tests.queues.conftest import QUICK
from tests.registry.running_registry import running_registry

import strandline
from strandline.cli.common.client import Cluster
from strandline.cli.connect.worker_api import ConnectApi
from strandline.cli.user.credentials import write_credential
from strandline.client.group_settings import set_group_settings
from strandline.client.shares.share_consumer import ShareConsumer
from strandline.console.pages.index import page_modules
from strandline.services.console.console_service import ConsoleService

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SPARK_S = 400
"""Spark's first query on a busy machine takes minutes."""
SHOP = """
from pyspark.sql import functions as F
from strandline import pipeline

orders = pipeline.source("orders", schema="customer STRING, amount BIGINT", dead_letters="orders.dead")

@pipeline.stream
def large(orders):
    "Orders of more than a hundred."
    return orders.where("amount > 100")

@pipeline.table(key="customer")
def totals(large):
    return large.groupBy("customer").agg(F.sum("amount").alias("total"))
"""
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
SECURITY = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "strandline.audit.enable": "true",
}
VALUES = {"topic": "orders", "partition": "0", "offset": "3", "node": "1"}
PLACES = {
    "group": "/groups/billing",
    "queue": "/queues/mailers",
    "dead-letters": "/dead-letters/dlq.mails",
    "subject": "/schemas/subject?name=orders-value",
    "connector": "/connectors/connector?name=lines-out",
    "pipeline": "/pipelines/pipeline?name=shop",
    "connector_create": "/connectors/create?class=FileSink",
}
"""Addresses of pages whose parameters are not those of `VALUES`."""
DOCUMENTED = ("overview", "groups", "record", "pipeline")
"""Pages whose pictures the documentation shows."""
FORMS = {
    "topic": "orders",
    "topics": "orders",
    "group": "billing",
    "subject": "orders-value",
    "connector": "lines-out",
    "node": "1",
}


def address_of(name: str, path: str) -> str:
    if name in PLACES:
        return PLACES[name]
    found = path
    for parameter, text in VALUES.items():
        found = found.replace(f"{{{parameter}}}", text)
    assert "{" not in found, f"the page {name} has a parameter without a value: add it to PLACES"
    return "" if found == "/" else found


def fill(cluster: Any) -> Producer:
    """Write what pages show: records, groups, an open transaction, dead letters, users, ACLs."""
    client = cluster.client_config
    names = ("orders", "orders.dead", "payments", "mails", "dlq.mails", "lines")
    make_topics(client, *(NewTopic(name, 3 if name == "orders" else 1, 3) for name in names))
    producer = Producer(client)
    for number in range(300):
        value = {"customer": f"c{number % 7}", "amount": number}
        producer.produce("orders", json.dumps(value), f"c{number % 7}", partition=number % 3)
        producer.produce("mails", b"%d" % number)
    given = {"topic": "mails", "partition": "0", "offset": "7", "group": "mailers", "message": "rejected"}
    headers = [(f"__dlq.errors.{name}", text.encode()) for name, text in given.items()]
    producer.produce("dlq.mails", b"mail", headers=headers)
    assert producer.flush(60) == 0
    commit(cluster.bootstrap_servers, "billing", "orders", 40)
    write_credential(Cluster(cluster.bootstrap_servers, {}), "alice", "SCRAM-SHA-512", 4096, "alice's secret")
    place = (ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*")
    rule = AclBinding(*place, AclOperation.READ, AclPermissionType.ALLOW)
    # Kept until the end, because a client that is gone answers nothing.
    admin = AdminClient(client)
    for done in admin.create_acls([rule]).values():
        done.result()
    writer = Producer({**client, "transactional.id": "payments-writer", "transaction.timeout.ms": 900_000})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce("payments", b"x")
    writer.flush(60)
    return writer


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    home = tmp_path_factory.mktemp("whole")
    with ExitStack() as stack:
        cluster = stack.enter_context(strandline.embedded(nodes=3, properties=QUICK | SECURITY))
        writer = fill(cluster)
        registry = stack.enter_context(running_registry(cluster.bootstrap_servers))
        wider = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "total", "type": "double", "default": 0}]}
        for schema in (SCHEMA, wider):
            assert registry.register("orders-value", schema)[0] == 200
        url = stack.enter_context(running_worker(cluster.bootstrap_servers))
        (home / "in.txt").write_text("one\ntwo\n")
        workers = ConnectApi(url, 60)
        source = {"connector.class": "FileSource", "file": str(home / "in.txt"), "topic": "lines"}
        sink = {"connector.class": "FileSink", "file": str(home / "out.txt"), "topics": "lines"}
        workers.ask("PUT", "connectors", "lines-in", "config", body=source)
        workers.ask("PUT", "connectors", "lines-out", "config", body=sink)
        settings = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.mails"}
        set_group_settings(cluster.bootstrap_servers, "mailers", settings)
        worker = ShareConsumer(cluster.bootstrap_servers, "mailers", ["mails"], client_id="mailer")
        stack.callback(worker.close)
        taken: list[Any] = []
        while len(taken) < 2:
            taken += worker.poll(records_max=2 - len(taken), wait_s=0.2)
        stack.callback(_end, run_pipeline(home, cluster.bootstrap_servers))
        given = {"cluster.dev.bootstrap.servers": cluster.bootstrap_servers, "cluster.dev.registry": registry.url}
        service = stack.enter_context(listening({"clusters": "dev", "cluster.dev.connect": url, **given}))
        yield service
        writer.purge()


def run_pipeline(home: Path, bootstrap: str) -> subprocess.Popen[bytes]:
    """Run a pipeline of Spark, and wait until its table has rows."""
    (home / "shop.py").write_text(SHOP)
    log = (home / "run.log").open("wb")
    command = [*COMMAND, "pipeline", "run", "shop.py", "-b", bootstrap, "--master", "local[2]"]
    process = subprocess.Popen(command, cwd=home, stdout=log, stderr=subprocess.STDOUT)
    log.close()
    ends_at = time.monotonic() + SPARK_S
    admin = AdminClient({"bootstrap.servers": bootstrap})
    while "totals" not in admin.list_topics(timeout=30).topics or not read_all(bootstrap, "totals"):
        assert process.poll() is None, (home / "run.log").read_text()[-3000:]
        assert time.monotonic() < ends_at, (home / "run.log").read_text()[-3000:]
        time.sleep(0.5)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def look(screen: Screen, name: str) -> list[str]:
    """Take a picture, and return what is wrong."""
    screen.page.wait_for_selector("h1")
    # Parts that are still being read come with the next look.
    if "still being read" in screen.page.inner_text("main"):
        screen.page.wait_for_timeout(1000)
        screen.page.reload()
        screen.page.wait_for_selector("h1")
    screen.picture(name)
    found = [f"{name}: {fault}" for fault in screen.faults_of_access()]
    found += [f"{name}: it scrolls sideways"] if screen.is_too_wide() else []
    found += [f"{name}: {wrong}" for wrong in screen.wrong]
    screen.wrong.clear()
    return found


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "dark")])
def test_every_page_is_for_everyone(console: ConsoleService, open_screen: OpenScreen, width: int, scheme: str) -> None:
    screen = open_screen(console, width=width, scheme=scheme)
    faults = []
    for page in (page for module in page_modules() for page in module.pages):
        screen.open(f"/c/dev{address_of(page.name, page.path)}")
        assert "That did not work" not in screen.page.inner_text("main"), page.name
        faults += look(screen, f"whole-{page.name}-{width}-{scheme}")
        if page.name in DOCUMENTED and (width, scheme) == (1280, "light"):
            # For docs/pictures: what is seen without scrolling.
            screen.page.screenshot(path=PICTURES / f"console-{page.name}.png")
    assert faults == []


def test_every_form_is_for_everyone(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    faults = []
    seen = 0
    for action in (action for module in page_modules() for action in module.actions):
        query = "&".join(f"{name}={text}" for name, text in FORMS.items())
        screen.open(f"/c/dev/do/{action.name}?{query}")
        seen += screen.page.query_selector("form.form") is not None
        # A sentence instead of a form has its status, which a browser counts as an error.
        screen.wrong = [wrong for wrong in screen.wrong if "Failed to load resource" not in wrong]
        faults += look(screen, f"whole-do-{action.name}")
    assert faults == []
    assert seen > 15


def test_what_runs_is_seen_together(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    page = screen.page
    screen.open("/c/dev/topics/orders/0/3")
    page.wait_for_selector("h2:has-text('Where it went')")
    words = page.inner_text(".journey")
    assert "billing" in words
    assert "of query shop.v1.large" in words, "the batch of Spark that read it"
    screen.picture("whole-journey")
    screen.open("/c/dev/pipelines")
    page.wait_for_selector("th.name a:text-is('shop')")
    screen.open("/c/dev/cluster")
    page.wait_for_selector(".answer.ok:has-text('3 of 3 brokers up')")
    assert ":0" not in [cell.inner_text() for cell in page.query_selector_all("td")]
    assert screen.wrong == []
