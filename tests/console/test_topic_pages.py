"""The pages of one topic, against a real node: records of every kind, and what becomes of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.console.asgi_browser import TIMEOUT_S, Answer, AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic

from strandline.local.embedded_broker import EmbeddedBroker

API = "/api/v1/clusters/dev"
EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


def produced(broker: EmbeddedBroker, topic: str, *records: dict[str, Any], **settings: Any) -> None:
    producer = Producer(broker.client_config | settings)
    for each in records:
        producer.produce(topic, **each)
    producer.flush()


@pytest.fixture(scope="module")
def orders(broker: EmbeddedBroker) -> str:
    """Two partitions, a hundred records in each, in turns, a second apart."""
    make_topic(broker.client_config, "orders", 2)
    produced(
        broker,
        "orders",
        *(
            {
                "value": json.dumps({"n": number, "card": {"number": f"4111-{number}"}}),
                "key": f"k{number % 5}",
                "partition": number % 2,
                "timestamp": 1_700_000_000_000 + 1000 * number,
                "headers": [("source", b"web" if number % 2 else b"shop")],
            }
            for number in range(200)
        ),
    )
    return "orders"


def numbers(found: Any) -> list[int]:
    return [json.loads(each["value"]["text"])["n"] for each in found["records"]]


def states(answer: Answer) -> str:
    return " ".join(each["state"] for each in answer.json["records"])


async def read(browser: AsgiBrowser, query: str, topic: str = "orders") -> Any:
    answer = await browser.get(f"{API}/topics/{topic}{query}")
    assert answer.status == 200, answer.text
    return answer.json


async def test_the_newest_records_come_first_and_older_ones_follow(browser: AsgiBrowser, orders: str) -> None:
    found = await read(browser, "")
    assert numbers(found) == list(range(199, 149, -1))
    older = await read(browser, found["next"])
    assert numbers(older) == list(range(149, 99, -1))
    last = await read(browser, (await read(browser, older["next"]))["next"])
    assert numbers(last) == list(range(49, -1, -1))
    assert last["next"] == ""


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?from=oldest", list(range(50))),
        ("?from=90&partition=1", list(range(181, 200, 2))),
        ("?from=-3", [194, 195, 196, 197, 198, 199]),
        ("?from=@1700000190000", list(range(190, 200))),
        ("?where=value.n>=195", [199, 198, 197, 196, 195]),
        ("?where=value.n>=190%0Aheaders.source=web", [199, 197, 195, 193, 191]),
        ("?where=key~=^k[34]$%0Aoffset>=98", [199, 198]),
        ("?grep=4111-7[01]", [71, 70]),
        ("?where=value.n<2", [1, 0]),
    ],
)
async def test_records_are_found_where_the_url_says(
    browser: AsgiBrowser, orders: str, query: str, expected: list[int]
) -> None:
    assert numbers(await read(browser, query)) == expected


async def test_reading_goes_forward_from_page_to_page(browser: AsgiBrowser, orders: str) -> None:
    seen: list[int] = []
    query = "?from=oldest&where=value.n>=20"
    while query:
        found = await read(browser, query)
        seen += numbers(found)
        query = found["next"]
    assert seen == list(range(20, 200))


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("?from=yesterday", "is no position"),
        ("?partition=x", "expected numbers such as"),
        ("?partition=7", "has no partition 7"),
        ("?where=nonsense", "is no condition"),
        ("?where=value~=(", "is no regular expression"),
        ("?at=x", "expected PARTITION:OFFSET"),
        ("?decode=xml", "is unknown"),
    ],
)
async def test_what_cannot_be_read_so_is_said(browser: AsgiBrowser, orders: str, query: str, sentence: str) -> None:
    answer = await browser.get(f"/c/dev/topics/orders{query}")
    assert answer.status in (400, 404)
    assert sentence in answer.words


async def test_an_expression_that_explodes_takes_no_time(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "long")
    produced(broker, "long", {"value": "a" * 5000 + "!"})
    assert (await read(browser, "?where=value~=^(a%2B)%2B$", "long"))["records"] == []


async def test_a_record_of_every_kind_is_shown(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "kinds")
    values: list[bytes | None] = [
        None,
        b"",
        b"plain",
        b'{"a": "\\ud800"}',
        b"\x00\xff\xfe",
        b"[" * 50_000,
        b"\x00\x00\x00\x00\x07broken",
        b'{"n": ' + b"9" * 5000 + b"}",
        b"\x82\xa6amount\x07\xa3raw\xc4\x01\xff",
    ]
    produced(broker, "kinds", *({"value": each} for each in values))
    found = await read(browser, "?from=oldest", "kinds")
    kinds = [each["value"]["kind"] for each in found["records"]]
    assert kinds == ["null", "empty", "text", "json", "binary", "text", "binary", "text", "binary"]
    for offset in range(len(values)):
        assert (await browser.get(f"/c/dev/topics/kinds/0/{offset}")).status == 200
    hexed = await read(browser, "/0/2?decode=hex", "kinds")
    assert "70 6c 61 69 6e" in hexed["record"]["value"]["text"]
    packed = await read(browser, "/0/2?decode=messagepack", "kinds")
    assert "it is no MessagePack" in packed["record"]["value"]["note"]
    unpacked = await read(browser, "/0/8?decode=messagepack", "kinds")
    assert json.loads(unpacked["record"]["value"]["text"]) == {"amount": 7, "raw": "ff"}
    schema = await read(browser, "/0/6?decode=schema", "kinds")
    assert "no registry" in schema["record"]["value"]["note"]


async def test_ten_megabytes_are_cut_and_can_be_downloaded(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "large", max_message_bytes="12000000")
    value = b'{"text": "' + b"x" * 10_000_000 + b'"}'
    produced(broker, "large", {"value": value}, **{"message.max.bytes": 12_000_000})
    page = await browser.get("/c/dev/topics/large")
    assert "9.54 MiB" in page.words
    assert len(page.body) < 100_000
    one = await browser.get("/c/dev/topics/large/0/0")
    assert "It is too long to be shown" in one.words
    assert len(one.body) < 200_000
    file = await browser.get("/c/dev/topics/large/0/0/download")
    assert file.body == value
    assert file.headers["content-type"] == "application/octet-stream"
    assert file.headers["content-disposition"].startswith("attachment")


async def test_a_transaction_is_open_then_committed_or_aborted(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "paid")
    producers = []
    for number in range(3):
        producer = Producer(broker.client_config | {"transactional.id": f"console-{number}"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("paid", str(number).encode())
        producer.flush()
        producers.append(producer)
    assert {each["state"] for each in (await read(browser, "", "paid"))["records"]} == {"open"}
    # What is decided behind an open one is known by its marker.
    producers[1].commit_transaction()
    producers[2].abort_transaction()
    # Markers are written behind the answer to the producer.
    await browser.until(f"{API}/topics/paid?from=oldest", lambda answer: states(answer) == "open committed aborted")
    assert (await read(browser, "?see=committed", "paid"))["records"][0]["value"]["text"] == "1"
    producers[0].abort_transaction()
    await browser.until(f"{API}/topics/paid?from=oldest", lambda answer: states(answer) == "aborted committed aborted")
    assert "was aborted" in (await browser.get("/c/dev/topics/paid/0/0")).words
    # The marker of an earlier transaction says nothing of the next one.
    producers[0].begin_transaction()
    producers[0].produce("paid", b"again")
    producers[0].flush()
    found = await read(browser, "", "paid")
    assert [each["state"] for each in found["records"]] == ["open", "aborted", "committed", "aborted"]
    producers[0].abort_transaction()


@pytest.mark.parametrize("begin", ["", "?from=oldest"])
async def test_transactions_of_partitions_that_are_read_together(
    browser: AsgiBrowser, broker: EmbeddedBroker, begin: str
) -> None:
    topic = f"many-{begin[-6:]}".rstrip("-")
    make_topic(broker.client_config, topic, 8)
    producer = Producer(broker.client_config | {"transactional.id": topic})
    producer.init_transactions()
    for state in ("aborted", "committed", "aborted", "open"):
        producer.begin_transaction()
        for partition in range(8):
            for number in range(3):
                producer.produce(topic, f"{state} {number}".encode(), partition=partition)
        producer.flush()
        if state == "committed":
            producer.commit_transaction()
        elif state == "aborted":
            producer.abort_transaction()

    def is_told(answer: Answer) -> bool:
        found = [(each["value"]["text"].split()[0], each["state"]) for each in answer.json["records"]]
        # Markers are written behind the answer to the producer, so that the last ones may be missing for a moment.
        return len(found) == 96 and all(said == state for said, state in found)

    count = f"{begin}&count=100" if begin else "?count=100"
    await browser.until(f"{API}/topics/{topic}{count}", is_told)
    producer.abort_transaction()


async def test_live_records_go_on_behind_the_last_id(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "flow", 2)
    produced(broker, "flow", {"value": "before", "partition": 0})
    page = await browser.get("/c/dev/topics/flow?live=1")
    assert 'sse-connect="/c/dev/live/topics/flow?after=0:1,1:0"' in page.text
    async with browser.events("/c/dev/live/topics/flow?after=0:1,1:0") as events:
        produced(broker, "flow", {"value": "one", "partition": 1})
        first = await anext(each async for each in events if each.get("event") == "records")
    assert "one" in first["data"]
    assert "before" not in first["data"]
    assert first["id"] == "0:1,1:1"
    produced(broker, "flow", {"value": "two", "partition": 0}, {"value": EVIL, "partition": 1})
    text = ""
    async with (
        browser.events("/c/dev/live/topics/flow", last_event_id=first["id"]) as events,
        asyncio.timeout(TIMEOUT_S),
    ):
        async for each in events:
            text += each.get("data", "")
            if "two" in text and "script" in text:
                break
    assert ">one<" not in text
    assert "<script" not in text


async def test_an_id_of_many_partitions_is_read_to_its_end(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "broad")
    produced(broker, "broad", {"value": "first"})
    marks = ",".join([*(f"{partition}:{10**9}" for partition in range(1, 200)), "0:0"])
    async with browser.events(f"/c/dev/live/topics/broad?after={marks}") as events:
        first = await anext(each async for each in events if "data" in each or each.get("comment") == "heartbeat")
    assert "first" in first.get("data", "")


async def test_live_records_say_that_the_topic_is_gone(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "passing")
    async with browser.events("/c/dev/live/topics/passing") as events:
        admin = AdminClient(broker.client_config)
        admin.delete_topics(["passing"])["passing"].result()
        failure = await anext(each async for each in events if each.get("event") == "failure" and each["data"])
    assert "does not exist" in failure["data"]
    assert (await browser.get("/c/dev/topics/passing")).status == 404


async def test_masks_hold_in_every_view_filter_and_file(
    make_console: MakeConsole, broker: EmbeddedBroker, orders: str
) -> None:
    masks = {
        "console.mask.card": "orders value $.card.number",
        "console.mask.key": "orders key $",
        "console.mask.header": "orders header source",
    }
    browser = AsgiBrowser(make_console({"dev": broker.bootstrap}, masks).app)
    for path in (
        "/c/dev/topics/orders",
        "/c/dev/topics/orders?decode=hex",
        "/c/dev/topics/orders?decode=text",
        "/c/dev/topics/orders?decode=messagepack",
        "/c/dev/topics/orders/0/3",
        "/c/dev/topics/orders/0/3/download",
        "/c/dev/topics/orders/export",
        "/c/dev/topics/orders/export?format=csv",
        "/c/dev/topics/orders/keys",
        f"{API}/topics/orders",
    ):
        answer = await browser.get(path)
        assert answer.status == 200, path
        for secret in (b"4111-", b"34 31 31 31", b"shop", b"'k1'", b'"k1"'):
            assert secret not in answer.body, (path, secret)
    # A filter on what is masked tells nothing.
    for query in ("?where=value.card.number~=4111", "?where=key=k1", "?grep=4111", "?where=headers.source=web"):
        assert (await read(browser, query))["records"] == []
    assert (await browser.get("/c/dev/topics/orders/0/3/download?part=key")).text == "•••"


async def test_markup_in_records_is_text(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "marked-records")
    produced(broker, "marked-records", {"value": EVIL, "key": EVIL, "headers": [(EVIL, EVIL.encode())]})
    produced(broker, "marked-records", {"value": json.dumps({EVIL: EVIL}), "key": b"\xff" + EVIL.encode()})
    tabs = (
        "",
        "?live=1",
        "/0/0",
        "/0/1",
        "/0/1?decode=text",
        "/keys",
        "/contract",
        f"?where={EVIL}".replace(" ", "%20"),
    )
    for tab in tabs:
        page = await browser.get(f"/c/dev/topics/marked-records{tab}")
        assert page.html.suspects == [], tab
        assert "img" not in page.html.elements
        assert "<script>alert" not in page.text
    for file in ("/export", "/export?format=csv", "/0/0/download"):
        answer = await browser.get(f"/c/dev/topics/marked-records{file}")
        assert answer.headers["content-disposition"].startswith("attachment")
        assert not answer.headers["content-type"].startswith("text/html")


async def test_a_file_of_records_can_be_produced_again(browser: AsgiBrowser, orders: str, tmp_path: Path) -> None:
    lines = (await browser.get("/c/dev/topics/orders/export?from=oldest")).text.splitlines()
    assert [json.loads(json.loads(each)["value"])["n"] for each in lines] == list(range(200))
    assert json.loads(lines[0])["headers"] == [{"key": "source", "value": "shop"}]


async def test_the_journey_names_groups_and_dead_letters(
    browser: AsgiBrowser, broker: EmbeddedBroker, orders: str
) -> None:
    consumer = Consumer(broker.client_config | {"group.id": "billing", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, 50)], asynchronous=False)
    consumer.close()
    make_topic(broker.client_config, "orders.dlq")
    place = [("source.topic", b"orders"), ("source.partition", b"0"), ("source.offset", b"7"), ("reason", b"no price")]
    produced(broker, "orders.dlq", {"value": b"copy", "headers": place})
    found = await read(browser, "/0/7")
    (group,) = found["journey"]["groups"]
    assert (group["group"], group["has_read"], group["position"]) == ("billing", True, 50)
    (named,) = found["journey"]["named"]
    assert named["topic"] == "orders.dlq"
    assert "no price" in named["text"]
    later = await read(browser, "/0/60")
    assert later["journey"]["groups"][0]["behind"] == 10
    assert later["journey"]["named"] == []
    consumers = await read(browser, "/consumers")
    assert [each["group"] for each in consumers["table"]["rows"]] == ["billing"]
    assert consumers["table"]["rows"][0]["lag"] == 50


async def test_offsets_without_a_record_say_why(browser: AsgiBrowser, orders: str) -> None:
    assert "no such record yet" in (await read(browser, "/0/100"))["answer"]
    assert (await browser.get("/c/dev/topics/orders/0/x")).status == 404
    assert (await browser.get("/c/dev/topics/orders/9/0")).status == 404


async def test_every_tab_answers(browser: AsgiBrowser, orders: str) -> None:
    assert "2 partitions: each has a leader" in (await browser.get("/c/dev/topics/orders/partitions")).words
    assert "no settings of its own" in (await browser.get("/c/dev/topics/orders/settings")).words
    all_settings = await read(browser, "/settings?all=true&q=retention.ms")
    (retention,) = [each for each in all_settings["table"]["rows"] if each["setting"] == "retention.ms"]
    assert retention["origin"] == "default"
    assert retention["explained"]
    storage = await read(browser, "/storage")
    assert "is rolled and deleted" in storage["table"]["rows"][0]["deletion"]
    keys = await read(browser, "/keys")
    assert keys["keys"]["found"] == 5
    assert "knows no registry" in (await browser.get("/c/dev/topics/orders/schema")).words
    assert "partitions: 2" in (await browser.get("/c/dev/topics/orders/contract")).words
    for tab in ("", "/partitions", "/settings", "/storage", "/keys", "/consumers", "/schema", "/contract", "/0/0"):
        assert (await browser.get(f"/c/dev/topics/no-such-topic{tab}")).status == 404
