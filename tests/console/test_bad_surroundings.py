"""A cluster that is half gone, or that answers slowly: pages say so, show what they can, and go on."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.admin import NewTopic
from tests.console.asgi_browser import Answer, AsgiBrowser
from tests.console.conftest import MakeConsole
from tests.console.made_topics import make_topic, make_topics

import strandline
from strandline.console.pages.index import page_modules
from strandline.console.routing import PAGE_S_MAX

pytestmark = pytest.mark.slow
PATHS = [
    page.path
    for module in page_modules()
    for page in module.pages
    if "{" not in page.path and page.name not in ("subject", "connector", "connector_create", "pipeline")
]


async def test_pages_of_a_cluster_that_is_half_gone_say_what_is_missing(make_console: MakeConsole) -> None:
    with strandline.embedded(nodes=3) as cluster:
        make_topics(cluster.client_config, NewTopic("alone", 3, 1), NewTopic("safe", 3, 3))
        browser = AsgiBrowser(make_console({"dev": cluster.bootstrap}).app)
        assert "3 of 3 brokers up" in (await browser.get("/c/dev/cluster")).words
        cluster.kill(3)

        def is_told(answer: Answer) -> bool:
            return answer.status == 200 and answer.json["verdict"]["level"] != "ok"

        await browser.until("/api/v1/clusters/dev/cluster", is_told)
        for path in PATHS:
            page = await browser.get(f"/c/dev{'' if path == '/' else path}")
            assert page.status == 200, (path, page.words)
            assert "The console failed" not in page.words
        rows = (await browser.get("/api/v1/clusters/dev/topics?q=alone")).json["table"]["rows"]
        assert rows[0]["health"] == "offline"
        partitions = await browser.get("/c/dev/topics/alone/partitions")
        assert partitions.status == 200
        assert "without a leader" in partitions.words or "no leader" in partitions.words
        for topic in ("alone", "safe"):
            # Records of the partitions that are led are shown.
            assert (await browser.get(f"/c/dev/topics/{topic}")).status == 200
        cluster.start(3)

        def is_well(answer: Answer) -> bool:
            return answer.status == 200 and answer.json["verdict"]["level"] == "ok"

        await browser.until("/api/v1/clusters/dev/cluster", is_well)


async def test_a_cluster_that_hangs_is_said_in_time(make_console: MakeConsole) -> None:
    with strandline.embedded(nodes=3) as cluster:
        make_topic(cluster.client_config, "kept")
        browser = AsgiBrowser(make_console({"dev": cluster.bootstrap}).app)
        assert "kept" in (await browser.get("/c/dev/topics")).words
        for node in (1, 2, 3):
            cluster.pause(node)
        try:
            began = time.monotonic()
            page = await browser.get("/c/dev/groups")
            took_s = time.monotonic() - began
            # Either the whole page waits, or a part of it is still being read.
            told = ("This page comes again by itself.", "still being read", "does not answer")
            assert any(each in page.words for each in told), page.words
            assert "There is no group" not in page.words
            assert took_s < 2 * PAGE_S_MAX
            known = await browser.until("/c/dev/topics", lambda answer: "does not answer" in answer.words)
            assert "kept" in known.words
        finally:
            for node in (1, 2, 3):
                cluster.resume(node)
        await browser.until("/c/dev/groups", lambda answer: answer.status == 200)


async def test_a_topic_that_is_deleted_while_it_is_looked_at_is_one_sentence(make_console: MakeConsole) -> None:
    from confluent_kafka.admin import AdminClient

    with strandline.embedded() as node:
        make_topic(node.client_config, "brief")
        browser = AsgiBrowser(make_console({"dev": node.bootstrap}).app)
        tabs = ("", "/partitions", "/consumers", "/settings", "/storage", "/keys", "/schema", "/contract", "/0/0")
        for tab in tabs:
            await browser.get(f"/c/dev/topics/brief{tab}")
        form = await browser.get("/c/dev/do/topic-produce?topic=brief&value=x&kind=text&review=1")
        admin = AdminClient(node.client_config)
        for done in admin.delete_topics(["brief"]).values():
            done.result()
        for tab in tabs:
            page = await browser.until(f"/c/dev/topics/brief{tab}", lambda answer: answer.status != 200)
            assert page.status == 404, (tab, page.words)
            assert "does not exist" in page.words
        given = {"csrf": form.value("csrf"), "topic": "brief", "value": "x", "kind": "text"}
        late = await browser.post("/c/dev/do/topic-produce", given)
        assert late.status == 404
        assert "brief" not in admin.list_topics(timeout=10).topics, "nothing is created by a late form"
