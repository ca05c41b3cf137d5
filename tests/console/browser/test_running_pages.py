"""Groups, transactions, queues, nodes, doctor, rights, audit and charts, as people see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.console.browser.conftest import OpenScreen, listening
from tests.console.made_topics import make_topic

import strandline
from strandline.services.console.console_service import ConsoleService

PATHS = (
    "/groups",
    "/groups/billing",
    "/transactions",
    "/queues",
    "/dead-letters/dlq.mails",
    "/cluster",
    "/doctor",
    "/charts",
    "/security",
    "/audit",
)


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleService]:
    """A console of a node with a group that is behind, an open transaction, and a dead letter."""
    with strandline.embedded() as node:
        for name in ("orders", "payments", "dlq.mails"):
            make_topic(node.client_config, name)
        producer = Producer(node.client_config)
        for number in range(50):
            producer.produce("orders", b"%d" % number)
        given = {"topic": "mails", "partition": "0", "offset": "7", "group": "mailers", "message": "rejected"}
        headers = [(f"__dlq.errors.{name}", text.encode()) for name, text in given.items()]
        producer.produce("dlq.mails", b"mail", headers=headers)
        producer.flush(30)
        reader = Consumer({**node.client_config, "group.id": "billing"})
        reader.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
        reader.close()
        writer = Producer({**node.client_config, "transactional.id": "payments-writer"})
        writer.init_transactions(30)
        writer.begin_transaction()
        writer.produce("payments", b"x")
        writer.flush(30)
        with listening({"clusters": "dev", "cluster.dev.bootstrap.servers": node.bootstrap}) as service:
            yield service
        writer.purge()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_every_page_is_for_everyone(console: ConsoleService, open_screen: OpenScreen, width: int, scheme: str) -> None:
    screen = open_screen(console, width=width, scheme=scheme)
    for path in PATHS:
        screen.open(f"/c/dev{path}")
        screen.page.wait_for_selector(".answer")
        screen.picture(f"{path.strip('/').replace('/', '-')}-{width}")
        assert screen.faults_of_access() == [], path
        assert not screen.is_too_wide(), path
    assert screen.wrong == []


def test_a_group_is_reset_after_its_plan_was_seen(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    screen.open("/c/dev/groups")
    page = screen.page
    page.click("th.name a:text-is('billing')")
    page.click("text=Reset offsets")
    page.select_option("#field-to", "an offset")
    page.fill("#field-value", "5")
    screen.picture("group-reset-form")
    page.click("button:has-text('Continue')")
    assert "orders-0: 10 -> 5, 5 records will be read again" in page.inner_text(".plan")
    screen.picture("group-reset-plan")
    assert screen.faults_of_access() == []
    page.click("button:has-text('Move the group')")
    page.wait_for_selector(".notice.ok:has-text('was moved in 1 partition')")
    assert screen.wrong == []


def test_a_brush_over_a_chart_is_in_the_url(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    page = screen.page
    # A node has something to draw after its first step.
    while not page.query_selector("[data-chart] .u-over"):
        screen.open("/c/dev/charts")
        page.wait_for_selector(".answer")
        page.wait_for_timeout(500)
    box = page.locator("[data-chart] .u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20, steps=5)
    page.mouse.up()
    page.wait_for_url("**/charts?*from=*")
    assert "to=" in page.url
    assert screen.wrong == []
