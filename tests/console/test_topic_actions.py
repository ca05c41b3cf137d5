"""What changes a topic by the console: the plan first, then the deed, and what is refused."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.console.asgi_browser import Answer, AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic
from tests.console.test_topic_pages import EVIL, produced
from tests.registry.running_registry import running_registry

from strandline.local.embedded_broker import EmbeddedBroker

ACTIONS = ("topic-settings", "topic-partitions", "topic-trim", "topic-delete", "topic-produce")


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.nodeid))}"
    make_topic(broker.client_config, name, 2)
    produced(broker, name, *({"value": str(number), "partition": number % 2} for number in range(20)))
    return name


async def review(browser: AsgiBrowser, action: str, **fields: str) -> Answer:
    query = "&".join(f"{name}={text}" for name, text in fields.items())
    return await browser.get(f"/c/dev/do/{action}?review=1&{query}")


async def do(browser: AsgiBrowser, action: str, **fields: str) -> Answer:
    token = (await browser.get("/c/dev/topics")).value("csrf")
    return await browser.post(f"/c/dev/do/{action}", {**fields, "csrf": token})


async def test_settings_are_planned_with_their_cost(browser: AsgiBrowser, broker: EmbeddedBroker, topic: str) -> None:
    page = await review(browser, "topic-settings", topic=topic, settings="retention.ms=1000")
    assert "records older than 1 second will be deleted" in page.words
    assert f"strandline topic alter {topic} --config retention.ms=1000" in page.words
    done = await browser.follow(await do(browser, "topic-settings", topic=topic, settings="retention.ms=90000000"))
    assert "retention.ms" in done.words
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(broker.client_config)
    assert admin.describe_configs([resource])[resource].result()["retention.ms"].value == "90000000"
    back = await browser.follow(await do(browser, "topic-settings", topic=topic, settings="", unset="retention.ms"))
    assert "no settings of its own" in back.words


@pytest.mark.parametrize(
    ("action", "fields", "sentence"),
    [
        ("topic-settings", {"settings": "retention.msx=1"}, "There is no setting retention.msx"),
        ("topic-settings", {"settings": "retention.ms"}, "is no setting"),
        ("topic-settings", {"settings": "retention.ms=soon"}, "retention.ms"),
        ("topic-settings", {"settings": ""}, "Nothing is to be changed"),
        ("topic-partitions", {"partitions": "2"}, "partitions can only be added"),
        ("topic-partitions", {"partitions": "many"}, "is no number"),
        ("topic-partitions", {"partitions": "99999999999"}, "is too large"),
        ("topic-recreate", {"partitions": "many"}, "is no number"),
        ("topic-trim", {"before": "someday"}, "is no position"),
        ("topic-trim", {"before": "all", "partitions": "0,x"}, "x is no partition"),
        ("topic-produce", {"value": "{", "kind": "JSON"}, "The value is no JSON"),
        ("topic-produce", {"value": "!", "kind": "base64"}, "is not base64"),
        ("topic-produce", {"value": "x", "partition": "9"}, "has no partition 9"),
        ("topic-produce", {"value": "x", "headers": "=1"}, "is no header"),
    ],
)
async def test_a_form_says_what_is_wrong(
    browser: AsgiBrowser, topic: str, action: str, fields: dict[str, str], sentence: str
) -> None:
    page = await review(browser, action, topic=topic, **{"kind": "text"} | fields)
    assert page.status >= 400
    assert sentence in page.words


async def test_partitions_are_added(browser: AsgiBrowser, topic: str) -> None:
    assert "2 partitions become 5" in (await review(browser, "topic-partitions", topic=topic, partitions="5")).words
    page = await browser.follow(await do(browser, "topic-partitions", topic=topic, partitions="5"))
    assert "5 partitions" in page.words


async def test_old_records_go_as_planned(browser: AsgiBrowser, topic: str) -> None:
    page = await review(browser, "topic-trim", topic=topic, before="4", partitions="1")
    assert f"trim {topic}-1: up to 4 records, offsets 0 to 3, for good" in page.words
    assert f"{topic}-0" not in page.words
    wrong = await do(browser, "topic-trim", topic=topic, before="4", partitions="1", typed="other")
    assert wrong.status == 400
    await browser.follow(await do(browser, "topic-trim", topic=topic, before="4", partitions="1", typed=topic))
    rows = (await browser.get(f"/api/v1/clusters/dev/topics/{topic}/partitions")).json["table"]["rows"]
    assert [each["start"] for each in rows] == [0, 4]
    assert "any more: partition 1 begins at offset 4" in (await browser.get(f"/c/dev/topics/{topic}/1/0")).words


async def test_a_topic_is_deleted_when_its_name_was_typed(browser: AsgiBrowser, topic: str) -> None:
    page = await review(browser, "topic-delete", topic=topic)
    assert "2 partitions, up to 20 records, for good" in page.words
    assert (await do(browser, "topic-delete", topic=topic)).status == 400
    await browser.follow(await do(browser, "topic-delete", topic=topic, typed=topic))
    await browser.until(f"/c/dev/topics/{topic}", lambda answer: answer.status == 404)


async def test_a_record_is_written_and_shown(browser: AsgiBrowser, topic: str) -> None:
    fields = {"key": "k", "value": '{"a": 1}', "kind": "JSON", "headers": f"from=console\nx={EVIL}", "partition": "1"}
    page = await browser.follow(await do(browser, "topic-produce", topic=topic, **fields))
    assert f"Written to {topic}, partition 1, offset 10" in page.words
    assert "console" in page.words
    assert page.html.suspects == []
    null = await browser.follow(await do(browser, "topic-produce", topic=topic, key="k", kind="null"))
    assert "this deletes the key" in null.words


async def test_the_name_of_a_schema_is_no_name_of_a_file(
    make_console: MakeConsole, broker: EmbeddedBroker, topic: str
) -> None:
    properties = {"cluster.dev.registry": "http://127.0.0.1:1"}
    browser = AsgiBrowser(make_console({"dev": broker.bootstrap}, properties).app)
    answer = await do(browser, "topic-produce", topic=topic, value="{}", kind="JSON", schema="/etc/hostname")
    assert "cannot reach the registry" in answer.words.lower()


async def test_a_registry_that_is_gone_hides_no_record(
    make_console: MakeConsole, broker: EmbeddedBroker, topic: str
) -> None:
    produced(broker, topic, {"value": b"\x00\x00\x00\x00\x07broken", "partition": 0})
    properties = {"cluster.dev.registry": "http://127.0.0.1:1"}
    browser = AsgiBrowser(make_console({"dev": broker.bootstrap}, properties).app)
    page = await browser.get(f"/c/dev/topics/{topic}")
    assert page.status == 200
    assert "the registry did not answer" in page.words


@pytest.mark.parametrize("action", ACTIONS)
async def test_nothing_changes_without_token_or_on_a_console_that_is_read_only(
    make_console: MakeConsole, broker: EmbeddedBroker, browser: AsgiBrowser, topic: str, action: str
) -> None:
    fields = {"topic": topic, "typed": topic, "partitions": "3", "before": "all", "settings": "retention.ms=1"}
    fields |= {"kind": "text", "value": "x"}
    assert (await browser.post(f"/c/dev/do/{action}", fields)).status == 403
    closed = AsgiBrowser(make_console({"dev": broker.bootstrap}, {"console.read.only": "true"}).app)
    assert (await do(closed, action, **fields)).status == 403
    assert f"/do/{action}" not in (await closed.get(f"/c/dev/topics/{topic}")).text
    found = (await browser.get(f"/api/v1/clusters/dev/topics/{topic}?count=100")).json
    assert (len(found["records"]), found["partitions"]) == (20, 2)


async def test_a_record_is_encoded_and_decoded_by_its_schema(
    make_console: MakeConsole, broker: EmbeddedBroker, topic: str
) -> None:
    pytest.importorskip("jsonschema_rs")
    row = {"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "long"}]}
    with running_registry(broker.bootstrap) as registry:
        status, registered = registry.register(f"{topic}-value", row)
        assert status == 200
        schema_id = registered["id"]
        properties = {"cluster.dev.registry": registry.url}
        browser = AsgiBrowser(make_console({"dev": broker.bootstrap}, properties).app)
        fields = {"value": '{"amount": 7}', "kind": "JSON", "schema": f"{topic}-value", "partition": "0"}
        page = await browser.follow(await do(browser, "topic-produce", topic=topic, **fields))
        assert f"schema {schema_id}" in page.words
        found = (await browser.get(f"/api/v1/clusters/dev/topics/{topic}?where=value.amount=7")).json
        assert [each["value"]["kind"] for each in found["records"]] == ["schema"]
        wrong = await do(browser, "topic-produce", topic=topic, **{**fields, "value": '{"amount": "x"}'})
        assert "does not fit the schema" in wrong.words
        produced(broker, topic, {"value": b"\0" + schema_id.to_bytes(4, "big") + b"\xff\xff\xff", "partition": 0})
        broken = await browser.get(f"/c/dev/topics/{topic}/0/11")
        assert f"not decoded by schema {schema_id}" in broken.words.lower()
        assert "Payment" in (await browser.get(f"/c/dev/topics/{topic}/schema")).words
