"""The pages of share groups and of dead letters, and the action that redrives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic
from tests.queues.conftest import QUICK

import strandline
from strandline.client.group_settings import set_group_settings
from strandline.client.shares.share_consumer import ShareConsumer
from strandline.local.embedded_broker import EmbeddedBroker

API = "/api/v1/clusters/dev"
EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties=QUICK) as node:
        yield node


def write(broker: EmbeddedBroker, topic: str, *values: bytes, headers: list[tuple[str, bytes]] | None = None) -> None:
    producer = Producer(broker.client_config)
    for value in values:
        producer.produce(topic, value, headers=headers or [])
    assert producer.flush(30) == 0


@pytest.fixture
def worker(broker: EmbeddedBroker) -> Iterator[ShareConsumer]:
    """A member that holds two of five records of a queue."""
    make_topic(broker.client_config, "mails")
    write(broker, "mails", *(b"%d" % number for number in range(5)))
    settings = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": "dlq.mails"}
    set_group_settings(broker.bootstrap, "mailers", settings)
    made = ShareConsumer(broker.bootstrap, "mailers", ["mails"], client_id="mailer")
    taken: list[Any] = []
    while len(taken) < 2:
        taken += made.poll(records_max=2 - len(taken), wait_s=0.2)
    yield made
    made.close()


async def test_queues_say_what_waits_and_who_holds_it(browser: AsgiBrowser, worker: ShareConsumer) -> None:
    found = (await browser.until(f"{API}/queues", lambda each: each.json["table"]["rows"][0]["acquired"] == 2)).json
    (row,) = found["table"]["rows"]
    assert (row["group"], row["members"], row["topics"]) == ("mailers", 1, ["mails"])
    assert row["dead_letters"] == "dlq.mails"
    page = await browser.get("/c/dev/queues")
    assert "/c/dev/queues/mailers" in page.html.links
    assert "/c/dev/dead-letters/dlq.mails" in page.html.links
    one = await browser.get("/c/dev/queues/mailers")
    assert "mailer@127.0.0.1" in one.words
    held = (await browser.get(f"{API}/queues/mailers")).json["held"]["rows"]
    assert sum(each["number"] for each in held if each["state"] == "in flight") == 2
    assert all(each["lock_s"] > 0 and each["delivery"] == 1 for each in held)


async def test_a_queue_that_is_not_there_is_one_sentence(browser: AsgiBrowser) -> None:
    assert (await browser.get("/c/dev/queues/nothing")).status == 404
    assert (await browser.get("/c/dev/dead-letters/nothing")).status == 404


async def test_dead_letters_are_told_by_reason_and_redriven(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "jobs")
    make_topic(broker.client_config, "dlq.jobs")
    begun = [("__dlq.errors.topic", b"jobs"), ("__dlq.errors.partition", b"0"), ("__dlq.errors.group", b"workers")]
    for offset, reason in enumerate(("too old", "too old", EVIL)):
        headers = [*begun, ("__dlq.errors.offset", b"%d" % offset), ("__dlq.errors.message", reason.encode())]
        write(broker, "dlq.jobs", b"job", headers=headers)
    found = (await browser.get(f"{API}/dead-letters/dlq.jobs")).json
    assert {each["reason"]: each["number"] for each in found["reasons"]["rows"]} == {"too old": 2, EVIL: 1}
    page = await browser.get("/c/dev/dead-letters/dlq.jobs")
    assert "3 dead letters for 2 reasons." in page.words
    assert EVIL in page.words
    assert page.html.suspects == []
    query = "topic=dlq.jobs&reason=old&limit=10"
    form = await browser.get(f"/c/dev/do/dead-letters-redrive?review=1&{query}")
    assert "redrive 2 dead letters of dlq.jobs to jobs" in form.words
    assert "strandline queue dead redrive dlq.jobs --reason old --limit 10 --yes" in form.words
    values = {"topic": "dlq.jobs", "reason": "old", "limit": "10", "by": "", "from_topic": "", "to": ""}
    done = await browser.post("/c/dev/do/dead-letters-redrive", {**values, "csrf": form.value("csrf")})
    page = await browser.follow(done)
    assert "2 dead letters redriven." in page.words
    # The marks are in a transaction, whose end readers see a moment later.
    await browser.until("/c/dev/dead-letters/dlq.jobs", lambda answer: "1 dead letter for 1 reason." in answer.words)
    again = await browser.get(f"/c/dev/do/dead-letters-redrive?review=1&{query}")
    assert again.status == 409
    assert (await browser.get("/c/dev/do/dead-letters-redrive?review=1&topic=dlq.jobs&limit=99999")).status == 400


async def test_a_masked_reason_is_neither_shown_nor_guessed(make_console: MakeConsole, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "bills")
    make_topic(broker.client_config, "elsewhere")
    make_topic(broker.client_config, "dlq.bills")
    write(broker, "bills", b"bill")
    place = [("__dlq.errors.topic", b"bills"), ("__dlq.errors.partition", b"0"), ("__dlq.errors.offset", b"0")]
    write(broker, "dlq.bills", b"bill", headers=[*place, ("__dlq.errors.message", b"card 4111 has ended")])
    mask = {"console.mask.why": "dlq.* header __dlq.errors.message"}
    masked = AsgiBrowser(make_console({"dev": broker.bootstrap}, mask).app)
    (named,) = (await masked.get(f"{API}/topics/bills/0/0")).json["journey"]["named"]
    assert named["text"] == "dead letter of a share group: •••"
    redrive = "/c/dev/do/dead-letters-redrive?review=1&topic=dlq.bills"
    for guess in ("reason=4111", "reason=4112", "to=elsewhere"):
        refused = await masked.get(f"{redrive}&{guess}")
        assert refused.status == 403, guess
        assert "mask" in refused.words
    values = {"topic": "dlq.bills", "reason": "", "limit": "", "by": "", "from_topic": "", "to": "elsewhere"}
    form = await masked.get(redrive)
    assert "redrive 1 dead letter of dlq.bills to bills" in form.words
    assert (await masked.post(redrive.partition("?")[0], {**values, "csrf": form.value("csrf")})).status == 403
    assert (await masked.get(f"{API}/dead-letters/dlq.bills")).json["reasons"]["rows"][0]["reason"] == "•••"


async def test_masked_headers_of_dead_letters_are_told_nowhere(
    make_console: MakeConsole, broker: EmbeddedBroker
) -> None:
    make_topic(broker.client_config, "dlq.calls")
    begin = "__connect.errors."
    headers = {"topic": "calls", "partition": "0", "offset": "7", "connector.name": "caller", "exception.message": "no"}
    write(broker, "dlq.calls", b"call", headers=[(begin + name, text.encode()) for name, text in headers.items()])
    masked = AsgiBrowser(make_console({"dev": broker.bootstrap}, {"console.mask.all": "dlq.* header *"}).app)
    found = (await masked.get(f"{API}/dead-letters/dlq.calls")).json
    (row,) = found["letters"]["rows"]
    assert (row["source"], row["by"], row["reason"]) == ("•••", "•••", "•••")
    assert found["reasons"]["rows"][0]["topics"] == ["•••"]
    page = await masked.get("/c/dev/dead-letters/dlq.calls")
    assert "caller" not in page.words
    redrive = "/c/dev/do/dead-letters-redrive?review=1&topic=dlq.calls"
    assert (await masked.get(redrive)).status == 403
    by_whom = AsgiBrowser(make_console({"dev": broker.bootstrap}, {"console.mask.by": f"dlq.* header {begin}con*"}).app)
    assert (await by_whom.get(f"{redrive}&by=caller")).status == 403
    assert (await by_whom.get(f"{API}/dead-letters/dlq.calls")).json["letters"]["rows"][0]["source"] == "calls-0@7"
