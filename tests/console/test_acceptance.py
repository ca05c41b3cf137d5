"""What people do with a Kafka console: the stories of docs/console-stories.md, through the application."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.clients.positions import commit
from tests.console.asgi_browser import Answer, AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic
from tests.console.test_topic_actions import do, review
from tests.registry.running_registry import RunningRegistry, running_registry

from strandline.local.embedded_broker import EmbeddedBroker

ROOT = Path(__file__).parents[2]
STORIES = ROOT / "docs" / "console-stories.md"
STORIES_OF_KAFBAT = 32
PICTURE_BYTES_MAX = 150_000
API = "/api/v1/clusters/dev"
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
JSON_SCHEMA = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})
PROTOBUF = 'syntax = "proto3";\nmessage Order {\n  int64 id = 1;\n}\n'


@pytest.fixture(scope="module")
def registry(broker: EmbeddedBroker) -> Iterator[RunningRegistry]:
    with running_registry(broker.bootstrap) as running:
        yield running


@pytest.fixture
def schemas(broker: EmbeddedBroker, registry: RunningRegistry, make_console: MakeConsole) -> AsgiBrowser:
    return AsgiBrowser(make_console({"dev": broker.bootstrap}, {"cluster.dev.registry": registry.url}).app)


def settings_of(broker: EmbeddedBroker, topic: str) -> dict[str, str]:
    admin = AdminClient(broker.client_config)
    found = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    (future,) = found.values()
    return {name: each.value for name, each in future.result().items()}


async def records_of(browser: AsgiBrowser, topic: str) -> int:
    """Return how many records the page of a topic counts."""
    rows = (await browser.get(f"{API}/topics/{topic}/partitions")).json["table"]["rows"]
    return sum(each["end"] - each["start"] for each in rows)


async def until_topics(browser: AsgiBrowser, search: str, *wanted: str) -> None:
    """Wait until the search finds these topics: Kafka's brokers learn of a change a moment after it."""

    def is_so(answer: Answer) -> bool:
        return [each["topic"] for each in answer.json["table"]["rows"]] == list(wanted)

    await browser.until(f"{API}/topics?q={search}", is_so)


def test_every_story_has_its_test_and_is_told_once() -> None:
    rows = re.findall(r"^\| (\d+) \|[^|]+\|(.+)\|$", STORIES.read_text(), re.M)
    assert [int(number) for number, _ in rows] == list(range(1, STORIES_OF_KAFBAT + 1))
    for number, told in rows:
        named = re.findall(r"`(tests/console/[a-z_/]+\.py)::(test_\w+)`", told)
        assert named, f"story {number} names no test"
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), f"story {number}: {test}"


def test_pictures_of_the_documentation_are_there_and_small() -> None:
    folder = ROOT / "docs" / "pictures"
    shown = set()
    for page, start in ((ROOT / "README.md", ROOT), (ROOT / "docs" / "console.md", ROOT / "docs")):
        found = re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", page.read_text())
        assert found, page
        shown |= {(start / each).resolve() for each in found}
    assert {each for each in shown if not each.exists()} == set()
    assert shown == set(folder.glob("*.png")), "each picture is shown"
    assert max(each.stat().st_size for each in shown) < PICTURE_BYTES_MAX


# The navigation


@pytest.mark.parametrize(
    ("title", "path"),
    [
        ("Overview", ""),
        ("Nodes", "/cluster"),
        ("Topics", "/topics"),
        ("Groups", "/groups"),
        ("Schemas", "/schemas"),
        ("Connectors", "/connectors"),
        ("Views", "/views"),
    ],
)
async def test_the_navigation_leads_to_each_page(browser: AsgiBrowser, title: str, path: str) -> None:
    assert f"/c/dev{path}" in (await browser.get("/c/dev")).html.links
    page = await browser.get(f"/c/dev{path}")
    assert page.status == 200
    assert re.search(rf"<h1>{title}</h1>", page.text)
    assert re.search(rf'href="/c/dev{path}" aria-current="page">{title}<', page.text)


# Nodes


async def test_a_node_shows_its_directories_and_figures(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "placed", 3)
    nodes = await browser.get("/c/dev/cluster")
    assert "1 of 1 broker up" in nodes.words
    (row,) = (await browser.get(f"{API}/cluster")).json["nodes"]["rows"]
    assert f"/c/dev/cluster/{row['node']}" in nodes.html.links
    found = (await browser.get(f"{API}/cluster/{row['node']}")).json
    (directory,) = found["directories"]["rows"]
    assert directory["state"] == "ok"
    assert directory["replicas"] >= 3
    assert 0 < directory["usable_bytes"] < directory["total_bytes"]
    assert found["facts"]["leaders"] >= 3
    page = await browser.get(f"/c/dev/cluster/{row['node']}")
    assert "It is running, leads" in page.words
    assert directory["directory"] in page.words
    assert "/c/dev/charts" in page.html.links


async def test_settings_of_a_node_are_found_by_name_and_by_value(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    (row,) = (await browser.get(f"{API}/cluster")).json["nodes"]["rows"]
    path = f"{API}/cluster/{row['node']}"
    every = (await browser.get(f"{path}?all=true&settings.size=1000")).json["settings"]["rows"]
    assert {"setting", "value", "origin"} <= every[0].keys()
    by_name = (await browser.get(f"{path}?settings.q=process.roles")).json["settings"]["rows"]
    roles = next(each for each in by_name if each["setting"] == "process.roles")
    by_value = (await browser.get(f"{path}?settings.q={roles['value']}")).json["settings"]["rows"]
    assert "process.roles" in {each["setting"] for each in by_value}
    assert len(by_value) < len(every)
    for wrong in ("77", "x", "-1"):
        assert (await browser.get(f"/c/dev/cluster/{wrong}")).status == 404


async def test_an_embedded_quorum_has_no_address(browser: AsgiBrowser) -> None:
    found = (await browser.get(f"{API}/cluster")).json
    assert not [each for each in found["voters"]["rows"] if str(each["address"]).endswith(":0")]


# Topics


async def test_topics_are_chosen_and_changed_together(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    for name in ("batch-1", "batch-2", "batch-3"):
        make_topic(broker.client_config, name)
        await do(browser, "topic-produce", topic=name, value="x", kind="text")
    page = await browser.get("/c/dev/topics?q=batch")
    boxes = [each["value"] for each in page.html.fields if each.get("name") == "topics"]
    assert boxes == ["batch-1", "batch-2", "batch-3"]
    leads = {each["formaction"] for each in page.html.fields if "formaction" in each}
    assert leads == {f"/c/dev/do/{name}" for name in ("topic-copy", "topics-empty", "topics-delete")}
    none = await browser.get("/c/dev/do/topics-delete")
    assert none.status == 400
    assert "Topics: none was chosen" in none.words

    plan = await browser.get("/c/dev/do/topics-empty?topics=batch-1&topics=batch-2")
    assert "batch-1: up to 1 record, for good" in plan.words
    assert "strandline topic trim batch-2 --before all" in plan.words
    refused = await do(browser, "topics-empty", topics="batch-1 batch-2", typed="batch-1")
    assert refused.status == 400
    done = await browser.follow(await do(browser, "topics-empty", topics="batch-1 batch-2", typed="2 topics"))
    assert "2 topics were emptied." in done.words
    assert [await records_of(browser, each) for each in boxes] == [0, 0, 1]

    plan = await browser.get("/c/dev/do/topics-delete?topics=batch-1&topics=batch-3")
    assert "delete 2 topics with up to 1 record" in plan.words
    done = await browser.follow(await do(browser, "topics-delete", topics="batch-1 batch-3", typed="2 topics"))
    assert "2 topics were deleted." in done.words
    await until_topics(browser, "batch", "batch-2")


async def test_a_failure_among_several_topics_is_told(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "there")
    answer = await do(browser, "topics-delete", topics="there never-there", typed="2 topics")
    assert answer.status == 409
    assert "1 of 2 topics were deleted" in answer.words
    assert "never-there" in answer.words


async def test_a_topic_is_copied_without_its_records(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "pattern", 3, retention_ms="43200000")
    await do(browser, "topic-produce", topic="pattern", value="x", kind="text")
    form = await browser.get("/c/dev/do/topic-copy?topics=pattern")
    assert form.value("partitions") == "3"
    assert "retention.ms=43200000" in form.text
    fields = {"topic": "pattern", "name": "second", "partitions": "3", "replicas": "1"}
    query = urlencode({"review": "1", **fields, "settings": "retention.ms=43200000"})
    plan = await browser.get(f"/c/dev/do/topic-copy?{query}")
    assert "no record of pattern is copied" in plan.words
    assert "strandline topic create second --partitions 3" in plan.words
    await browser.follow(await do(browser, "topic-copy", **fields, settings="retention.ms=43200000"))
    assert settings_of(broker, "second")["retention.ms"] == "43200000"
    assert await records_of(browser, "second") == 0
    assert (await browser.get("/c/dev/do/topic-copy?topics=pattern&topics=second")).status == 404


async def test_topics_are_searched_and_internal_ones_shown(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "users")
    commit(broker.bootstrap, "makes-the-internal-topic", "users", 0)

    async def found(query: str) -> list[str]:
        return [each["topic"] for each in (await browser.get(f"{API}/topics?{query}")).json["table"]["rows"]]

    def is_there(answer: Answer) -> bool:
        return "__consumer_offsets" in answer.text

    await browser.until(f"{API}/topics?internal=true&q=__consumer", is_there)
    assert await found("q=__consumer_offsets") == []
    assert await found("q=users") == ["users"]
    page = await browser.get("/c/dev/topics?q=users")
    assert re.search(r"Show \d+ internal", page.words)
    boxes = [each["value"] for each in (await browser.get("/c/dev/topics?internal=true")).html.fields if "form" in each]
    assert "__consumer_offsets" not in boxes


# Creating


async def test_the_form_of_a_topic_has_its_fields(browser: AsgiBrowser) -> None:
    form = await browser.get("/c/dev/do/topic-create")
    names = {each.get("name") for each in form.html.fields}
    wanted = {"topic", "partitions", "replicas", "keep", "keep_bytes", "cleanup", "in_sync", "batch_bytes", "settings"}
    assert wanted <= names
    for offered in ("12h", "1d", "2d", "7d", "28d"):
        assert f'<option value="{offered}">' in form.text
    assert form.value("keep") == ""
    assert "Cancel" in form.words


@pytest.mark.parametrize(
    ("span", "retention"),
    [("12h", 43_200_000), ("1d", 86_400_000), ("2d", 172_800_000), ("7d", 604_800_000), ("28d", 2_419_200_000)],
)
async def test_a_span_becomes_the_retention(browser: AsgiBrowser, span: str, retention: int) -> None:
    page = await browser.get(f"/c/dev/do/topic-create?review=1&topic=kept-{span}&keep={span}")
    assert f"retention.ms = {retention}" in page.words
    assert f"--config retention.ms={retention}" in page.words


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("keep=soon", "soon is not understood"),
        ("keep_bytes=many", "many is not understood"),
        ("keep=1d&settings=retention.ms%3D5", "retention.ms is given twice"),
        ("in_sync=x", "x is no number"),
        ("cleanup=burn", "burn is unknown"),
    ],
)
async def test_a_wrong_field_of_a_new_topic_is_said(browser: AsgiBrowser, query: str, sentence: str) -> None:
    page = await browser.get(f"/c/dev/do/topic-create?review=1&topic=wrong&{query}")
    assert page.status == 400
    assert sentence in page.words


async def test_a_topic_is_created_listed_and_deleted(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    given = {"topic": "made", "partitions": "2", "keep": "1d", "cleanup": "compact,delete", "batch_bytes": "2 MiB"}
    page = await browser.follow(await do(browser, "topic-create", **given, keep_bytes="1 GiB", in_sync="1"))
    assert "Topic made was created." in page.words
    await until_topics(browser, "made", "made")
    assert "/c/dev/topics/made" in (await browser.get("/c/dev/topics")).html.links
    held = settings_of(broker, "made")
    assert held["retention.ms"] == "86400000"
    assert held["retention.bytes"] == str(1 << 30)
    assert held["max.message.bytes"] == str(2 << 20)
    assert held["cleanup.policy"] == "compact,delete"
    assert held["min.insync.replicas"] == "1"
    await browser.follow(await do(browser, "topics-delete", topics="made", typed="1 topic"))
    await until_topics(browser, "made")


# Records


async def test_a_topic_has_its_tabs(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "tabs")
    page = await browser.get("/c/dev/topics/tabs")
    for tab in ("", "/partitions", "/consumers", "/settings", "/storage", "/keys"):
        assert f"/c/dev/topics/tabs{tab}" in page.html.links
        assert (await browser.get(f"/c/dev/topics/tabs{tab}")).status == 200
    rows = (await browser.get(f"{API}/topics/tabs/partitions")).json["table"]["rows"]
    assert len(rows) == 1


async def test_a_record_with_key_value_and_header_is_written_and_read(
    browser: AsgiBrowser, broker: EmbeddedBroker
) -> None:
    make_topic(broker.client_config, "written")
    await do(browser, "topic-produce", topic="written", key="k-1", value="v-1", kind="text", headers="source=form")
    words = (await browser.get("/c/dev/topics/written")).words
    assert "k-1" in words
    assert "v-1" in words
    assert "source form" in words


async def test_the_cleanup_policy_changes_and_decides_what_can_be_deleted(
    browser: AsgiBrowser, broker: EmbeddedBroker
) -> None:
    make_topic(broker.client_config, "policy")
    await do(browser, "topic-produce", topic="policy", key="k", value="x", kind="text")
    page = await browser.follow(await do(browser, "topic-settings", topic="policy", settings="cleanup.policy=compact"))
    assert "cleanup.policy" in page.words
    refused = await do(browser, "topics-empty", topics="policy", typed="1 topic")
    assert refused.status == 409
    assert "policy" in refused.words.lower()
    assert await records_of(browser, "policy") == 1
    await browser.follow(await do(browser, "topic-settings", topic="policy", settings="cleanup.policy=delete"))
    await browser.follow(await do(browser, "topics-empty", topics="policy", typed="1 topic"))
    assert await records_of(browser, "policy") == 0


async def test_a_topic_is_emptied_and_made_again(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "again", 2, retention_ms="86400000")

    async def write() -> None:
        await browser.follow(await do(browser, "topic-produce", topic="again", value="x", kind="text", partition="1"))

    counts = []
    for act, typed in (("topics-empty", "1 topic"), ("topic-recreate", "again")):
        await write()
        await write()
        counts.append(await records_of(browser, "again"))
        field = {"topics": "again"} if act == "topics-empty" else {"topic": "again"}
        await browser.follow(await do(browser, act, **field, typed=typed))
        counts.append(await records_of(browser, "again"))
    await write()
    counts.append(await records_of(browser, "again"))
    assert counts == [2, 0, 2, 0, 1]
    rows = (await browser.get(f"{API}/topics/again/partitions")).json["table"]["rows"]
    # Offsets of an emptied topic go on; those of a topic that was made again begin at 0.
    assert [(each["start"], each["end"]) for each in rows] == [(0, 0), (0, 1)]
    assert settings_of(broker, "again")["retention.ms"] == "86400000"


async def test_the_plan_of_making_again_shows_both_commands(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "planned", 3, retention_ms="86400000")
    page = await review(browser, "topic-recreate", topic="planned")
    assert "strandline topic delete planned" in page.words
    assert "strandline topic create planned --partitions 3" in page.words
    assert "retention.ms=86400000" in page.words
    assert (await review(browser, "topic-recreate", topic="nothing")).status == 404


async def test_a_form_that_is_older_than_the_topic_does_not_make_it_again(
    broker: EmbeddedBroker, make_console: MakeConsole, tmp_path: Path
) -> None:
    file = tmp_path / "audit.jsonl"
    browser = AsgiBrowser(make_console({"dev": broker.bootstrap}, {"console.audit.file": str(file)}).app)
    make_topic(broker.client_config, "aged", 1, retention_ms="86400000")
    form = await review(browser, "topic-recreate", topic="aged")
    asked = {name: form.value(name) for name in ("topic", "partitions", "replicas", "settings")} | {"typed": "aged"}
    # Another console, so that this one is not told.
    other = AsgiBrowser(make_console({"dev": broker.bootstrap}).app)
    await other.follow(await do(other, "topic-settings", topic="aged", settings="retention.ms=90000000"))
    await other.follow(await do(other, "topic-partitions", topic="aged", partitions="2"))
    await do(browser, "topic-produce", topic="aged", key="k", value="x", kind="text")
    refused = await do(browser, "topic-recreate", **asked)
    assert refused.status == 409
    assert "aged has other partitions and settings than when this form began" in refused.words
    assert await records_of(browser, "aged") == 1
    assert (await review(browser, "topic-recreate", **asked)).status == 409
    await browser.follow(await do(browser, "topic-recreate", topic="aged", typed="aged"))
    # A process that dies between the two leaves what the topic was like.
    begun = [each for each in map(json.loads, file.read_text().splitlines()) if each["outcome"] == "begun"][-1]
    assert begun["command"].startswith("topic delete aged && topic create aged --partitions 2 ")
    assert "--config retention.ms=90000000" in begun["command"]


async def test_a_filter_finds_and_misses(browser: AsgiBrowser, broker: EmbeddedBroker) -> None:
    make_topic(broker.client_config, "filtered")
    await do(browser, "topic-produce", topic="filtered", value='{"f1": 2}', kind="JSON")
    path = f"{API}/topics/filtered?where=value.f1%3D"
    assert len((await browser.get(f"{path}2")).json["records"]) == 1
    assert (await browser.get(f"{path}3")).json["records"] == []
    page = await browser.get("/c/dev/topics/filtered?where=value.f1%3D2")
    # A name for it is kept by the browser: tests/console/browser sees that.
    assert "Keep this filter as" in page.text


# Schemas


@pytest.mark.parametrize(
    ("kind", "schema"), [("AVRO", AVRO), ("JSON", JSON_SCHEMA), ("PROTOBUF", PROTOBUF)], ids=["avro", "json", "proto"]
)
async def test_a_schema_is_created_shown_and_deleted(schemas: AsgiBrowser, kind: str, schema: str) -> None:
    form = await schemas.get("/c/dev/do/schema-register")
    assert {"subject", "type", "schema"} <= {each.get("name") for each in form.html.fields}
    subject = f"made-{kind.lower()}"
    given: dict[str, Any] = {"subject": subject, "type": kind, "schema": schema, "references": ""}
    page = await schemas.follow(await do(schemas, "schema-register", **given))
    assert f"{subject} version 1 has the id" in page.words
    found = (await schemas.get(f"{API}/schemas/subject?name={subject}")).json
    assert (found["version"], found["type"], found["level"]) == (1, kind, "BACKWARD")
    assert "a new version must be backward compatible" in (await schemas.get("/c/dev/schemas")).words.lower()
    plan = await schemas.get(f"/c/dev/do/schema-delete?subject={subject}")
    assert f"delete 1 version of {subject}: 1" in plan.words
    assert f"strandline schema delete {subject} --registry" in plan.words
    assert (await do(schemas, "schema-delete", subject=subject, version="", typed="other")).status == 400
    page = await schemas.follow(await do(schemas, "schema-delete", subject=subject, version="", typed=subject))
    assert f"{subject} was deleted." in page.words
    assert (await schemas.get(f"{API}/schemas?q={subject}")).json["table"]["rows"] == []


async def test_one_version_of_a_schema_is_deleted(schemas: AsgiBrowser, registry: RunningRegistry) -> None:
    first = {"type": "record", "name": "Two", "fields": []}
    second = {**first, "fields": [{"name": "a", "type": "long", "default": 0}]}
    for each in (first, second):
        assert registry.register("two-versions", each)[0] == 200
    page = await schemas.get("/c/dev/schemas/subject?name=two-versions")
    assert "Delete this version" in page.words
    await schemas.follow(await do(schemas, "schema-delete", subject="two-versions", version="1", typed="two-versions"))
    assert registry.ask("GET", "/subjects/two-versions/versions")[1] == [2]
    missing = await schemas.get("/c/dev/do/schema-delete?subject=two-versions&version=7")
    assert missing.status == 404
