"""The page Transactions: an open one is told with what it holds back, and aborted."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer
from tests.console.asgi_browser import AsgiBrowser
from tests.console.made_topics import make_topic

from strandline.local.embedded_broker import EmbeddedBroker

API = "/api/v1/clusters/dev/transactions"
EVIL = "pay<script>alert(1)</script>"


@pytest.fixture
def opened(broker: EmbeddedBroker) -> Producer:
    """A producer with an open transaction of three records."""
    make_topic(broker.client_config, "payments")
    producer = Producer({**broker.client_config, "transactional.id": EVIL, "client.id": "<img src=x>"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce("payments", b"x")
    producer.flush(30)
    return producer


async def test_nothing_is_open(browser: AsgiBrowser) -> None:
    page = await browser.get("/c/dev/transactions")
    assert "No transaction is open, and none holds readers back." in page.words


async def test_an_open_one_is_told_and_aborted(browser: AsgiBrowser, opened: Producer) -> None:
    found = (await browser.get(API)).json
    (row,) = found["table"]["rows"]
    assert row["transactional_id"] == EVIL
    assert row["on"] == "payments-0"
    assert "times out in" in row["ends"]
    (hold,) = found["holds"]
    assert hold["held_back"] == 3
    assert hold["holders"][0]["action"]["fields"] == {"transactional_id": EVIL}
    page = await browser.get("/c/dev/transactions")
    assert "payments-0: 3 records held back" in page.words
    assert "will end by itself" in page.words
    assert page.html.suspects == []
    assert "img" not in page.html.elements
    assert "<script>alert" not in page.text
    # It does not hang: its coordinator knows it.
    wrong = await browser.get("/c/dev/do/txn-abort-hanging?partition=payments-0&start_offset=0")
    assert wrong.status == 409
    assert "does not hang" in wrong.words
    (abort,) = [each for each in page.html.links if "do/txn-abort?" in each]
    form = await browser.get(abort)
    assert "open for" in form.words
    assert "is fenced" in form.words
    values = {"transactional_id": EVIL, "csrf": form.value("csrf")}
    assert (await browser.post("/c/dev/do/txn-abort", {**values, "typed": "pay"})).status == 400
    done = await browser.follow(await browser.post("/c/dev/do/txn-abort", {**values, "typed": EVIL}))
    assert "was aborted." in done.words
    with pytest.raises(KafkaException):
        opened.commit_transaction(30)
    await browser.until(API, lambda answer: answer.json["holds"] == [])
    assert (await browser.get(abort)).status == 409


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("txn-abort?transactional_id=nothing", 404),
        ("txn-abort-hanging?partition=nothing-0&start_offset=1", 404),
        ("txn-abort-hanging?partition=nothing&start_offset=1", 400),
        ("txn-abort-hanging?partition=payments-0&start_offset=x", 400),
    ],
)
async def test_what_is_not_open_is_not_aborted(browser: AsgiBrowser, query: str, status: int) -> None:
    assert (await browser.get(f"/c/dev/do/{query}")).status == status
