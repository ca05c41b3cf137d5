"""The pages Groups and Group, and what can be done to a group, against a real node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.console.asgi_browser import TIMEOUT_S, AsgiBrowser
from tests.console.made_topics import make_topic

from strandline.local.embedded_broker import EmbeddedBroker

EVIL = "<script>alert(1)</script>/x"
PAGE = "/c/dev/groups/%3Cscript%3Ealert%281%29%3C%2Fscript%3E%2Fx"
API = "/api/v1/clusters/dev"


@pytest.fixture(scope="module")
def orders(broker: EmbeddedBroker) -> str:
    """A topic of two partitions with ten records in each."""
    make_topic(broker.client_config, "orders", 2)
    producer = Producer(broker.client_config)
    for number in range(20):
        producer.produce("orders", str(number).encode(), partition=number % 2)
    producer.flush()
    return "orders"


def commit(broker: EmbeddedBroker, group: str, *offsets: int) -> None:
    consumer = Consumer({**broker.client_config, "group.id": group})
    places = [TopicPartition("orders", index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def groups(broker: EmbeddedBroker, orders: str) -> list[str]:
    """Groups without members: one at the end, one in the middle, one whose name is markup and has a slash."""
    commit(broker, "done", 10, 10)
    commit(broker, "billing", 4, 10)
    commit(broker, EVIL, 0, 1)
    return ["billing", "done", EVIL]


@pytest.fixture
def member(broker: EmbeddedBroker, orders: str) -> Iterator[Consumer]:
    """A live member of a group."""
    consumer = Consumer({**broker.client_config, "group.id": "live", "client.id": "<b>reader"})
    consumer.subscribe([orders])
    yield consumer
    consumer.close()


async def test_groups_say_which_are_behind(browser: AsgiBrowser, groups: list[str]) -> None:
    page = await browser.get("/c/dev/groups")
    assert "Of 3 groups: 2 stopped." in page.words
    assert PAGE in page.html.links
    found = (await browser.get(f"{API}/groups?sort=group")).json
    rows = {each["group"]: each for each in found["table"]["rows"]}
    assert rows["billing"]["lag"] == 6
    assert rows["billing"]["verdict"] == "stopped"
    assert "no member reads the partition" in rows["billing"]["why"]
    assert (rows["done"]["lag"], rows["done"]["verdict"]) == (0, "ok")
    assert (await browser.get("/c/dev/groups?export=csv")).text.count("\r\n") == 4


async def test_a_group_says_where_it_is_in_each_partition(browser: AsgiBrowser, groups: list[str]) -> None:
    found = (await browser.get(f"{API}/groups/billing")).json
    positions = {each["partition"]: each for each in found["positions"]["rows"]}
    assert positions[0]["committed_offset"] == 4
    assert positions[0]["lag"] == 6
    assert positions[1]["lag"] == 0
    assert found["verdict"]["text"].startswith("Stopped: orders-0: 6 records unread")
    page = await browser.get("/c/dev/groups/billing")
    assert "strandline group lag billing" in page.words
    assert "/c/dev/do/group-reset?group=billing" in page.html.links


async def test_members_and_rebalances_are_shown(browser: AsgiBrowser, member: Consumer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            await asyncio.to_thread(member.poll, 0.1)
            answer = await browser.get(f"{API}/groups/live")
            rows = answer.json["members"]["rows"] if answer.status == 200 else []
            seen = answer.json["history"]["seen"] if rows else []
            if rows and rows[0]["owns"] == "orders-0..1" and any("rebalanced to" in each["headline"] for each in seen):
                break
    assert rows[0]["name"] == "<b>reader"
    page = await browser.get("/c/dev/groups/live")
    assert "b" not in page.html.elements
    assert "Rebalanced to" in page.words
    assert "gets orders-0..1" in page.words
    # A group with members is not moved, and not deleted.
    for action in ("group-reset?review=1&to=the+end&", "group-delete?"):
        refused = await browser.get(f"/c/dev/do/{action}group=live")
        assert refused.status == 409
        assert "1 live member" in refused.words


async def test_a_name_with_markup_and_a_slash_has_its_page(browser: AsgiBrowser, groups: list[str]) -> None:
    page = await browser.get(PAGE)
    assert page.status == 200
    assert EVIL in page.words
    assert "alert" not in " ".join(page.html.suspects)
    assert all(each.get("src", "").startswith("/static/") for each in page.html.scripts)


async def test_a_group_that_is_not_there_is_one_sentence(browser: AsgiBrowser, groups: list[str]) -> None:
    page = await browser.get("/c/dev/groups/bilding")
    assert page.status == 404
    assert "did you mean 'billing'" in page.words.lower()


async def test_a_group_is_reset_after_its_plan(browser: AsgiBrowser, broker: EmbeddedBroker, groups: list[str]) -> None:
    commit(broker, "moved", 4, 10)
    values = {"group": "moved", "topics": "orders:0", "to": "an offset", "value": "1"}
    form = await browser.get("/c/dev/do/group-reset?review=1&group=moved&topics=orders:0&to=an+offset&value=1")
    assert "orders-0: 4 -> 1, 3 records will be read again" in form.words
    assert "strandline group reset moved --topic orders:0 --to-offset 1 --yes" in form.words
    page = await browser.follow(await browser.post("/c/dev/do/group-reset", {**values, "csrf": form.value("csrf")}))
    assert "Group moved was moved in 1 partition." in page.words
    positions = {
        each["partition"]: each["committed_offset"]
        for each in (await browser.get(f"{API}/groups/moved")).json["positions"]["rows"]
    }
    assert positions == {0: 1, 1: 10}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("to=an+offset", "needs a value"),
        ("to=an+offset&value=x", "x is no number"),
        ("to=a+time&value=x", "is no time"),
        ("to=so+long+ago&value=x", "is no duration"),
        ("to=the+end&topics=nothing", "there is no topic"),
        ("to=the+end&topics=orders:7", "has no partition 7"),
        ("to=elsewhere", "elsewhere is unknown"),
    ],
)
async def test_a_wrong_reset_says_what_is_wrong(
    browser: AsgiBrowser, groups: list[str], query: str, words: str
) -> None:
    form = await browser.get(f"/c/dev/do/group-reset?review=1&group=billing&{query}")
    assert 400 <= form.status < 500
    assert words in form.words.replace("There", "there")
    assert form.value("group") == "billing"


async def test_offsets_and_groups_are_deleted(browser: AsgiBrowser, broker: EmbeddedBroker, orders: str) -> None:
    commit(broker, "old", 1, 1)
    form = await browser.get("/c/dev/do/group-delete-offsets?review=1&group=old&topics=orders:1")
    assert "delete 1 position of group old, for good: orders-1" in form.words
    values = {"group": "old", "topics": "orders:1", "csrf": form.value("csrf")}
    assert (await browser.post("/c/dev/do/group-delete-offsets", {**values, "typed": "odl"})).status == 400
    page = await browser.follow(await browser.post("/c/dev/do/group-delete-offsets", {**values, "typed": "old"}))
    assert "1 position of group old was deleted." in page.words
    confirmation = await browser.get("/c/dev/do/group-delete?group=old")
    assert "1 position in 1 topic" in confirmation.words
    done = await browser.post("/c/dev/do/group-delete", {"group": "old", "typed": "old", "csrf": values["csrf"]})
    assert "Group old was deleted." in (await browser.follow(done)).words
    assert (await browser.get("/c/dev/groups/old")).status == 404
