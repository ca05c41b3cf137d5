"""Fifty visitors browse a cluster of three nodes while its nodes are killed and come back."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.clients.positions import commit
from tests.console.asgi_browser import AsgiBrowser
from tests.console.conftest import MakeConsole

from strandline.testing import EmbeddedCluster, embedded

VISITORS = 50
KILLS = 3
ANSWERS_MAX_MB = 60
"""What a console may grow by: the answers that it keeps are those of one user, whatever the number of visitors."""
PAGES = (
    "",
    "/topics",
    "/topics/orders",
    "/topics/orders/partitions",
    "/topics/orders/consumers",
    "/groups",
    "/groups/readers",
    "/cluster",
    "/transactions",
    "/doctor",
    "/charts",
    "/security",
)
UNKNOWN = (404,)
"""A topic or a group that no node knows for now."""
PASSING = (200, 503, 504)


class Crowd:
    """Visitors with a browser each, who go from page to page until they are told to go home."""

    def __init__(self, app: object) -> None:
        self.statuses: Counter[int] = Counter()
        self.failures: list[str] = []
        self.silent: list[str] = []
        self._app = app
        self._home = asyncio.Event()
        self._visits = 0
        self._more = asyncio.Condition()

    async def visit(self, number: int) -> None:
        browser = AsgiBrowser(self._app)
        at = number
        while not self._home.is_set():
            page = PAGES[at % len(PAGES)]
            answer = await browser.get(f"/c/dev{page}")
            self.statuses[answer.status] += 1
            if answer.status not in (*PASSING, *UNKNOWN):
                self.failures.append(f"{page}: {answer.status} {answer.words[-300:]}")
            elif answer.status != 200 and "That did not work" not in answer.words:
                self.silent.append(f"{page}: {answer.status} {answer.words[-300:]}")
            at += 1
            async with self._more:
                self._visits += 1
                self._more.notify_all()

    async def wait_visits(self, more: int) -> None:
        """Wait until so many pages were answered from now on."""
        async with self._more:
            until = self._visits + more
            await self._more.wait_for(lambda: self._visits >= until)

    def go_home(self) -> None:
        self._home.set()


@pytest.mark.slow
async def test_fifty_visitors_see_what_is_wrong_while_nodes_die(make_console: MakeConsole) -> None:
    with embedded(nodes=3) as cluster:
        await asyncio.to_thread(_fill, cluster)
        service = make_console({"dev": cluster.bootstrap})
        crowd, browser = Crowd(service.app), AsgiBrowser(service.app)
        nodes = sorted(cluster.nodes)
        async with asyncio.timeout(300), asyncio.TaskGroup() as group:
            for number in range(VISITORS):
                group.create_task(crowd.visit(number))
            await crowd.wait_visits(2 * VISITORS)
            before_mb = _resident_mb()
            for number in range(KILLS):
                node = nodes[number % len(nodes)]
                await asyncio.to_thread(cluster.kill, node)
                await crowd.wait_visits(VISITORS)
                await browser.until("/c/dev", lambda answer: "2 of 3" in answer.words)
                await asyncio.to_thread(cluster.start, node)
                await browser.until("/c/dev", lambda answer: "3 of 3" in answer.words)
                await crowd.wait_visits(VISITORS)
            crowd.go_home()
        assert crowd.failures == []
        assert crowd.silent == []
        assert crowd.statuses[200] > crowd.statuses.total() / 2
        assert _resident_mb() - before_mb < ANSWERS_MAX_MB
        # Afterwards every page is well again, and the overview has said what happened.
        for page in PAGES:
            await browser.until(f"/c/dev{page}", lambda answer: answer.status == 200)
        found = (await browser.get("/api/v1/clusters/dev")).json
        told = " ".join(each["text"] for each in found["changes"])
        assert "is gone" in told, found["changes"]
        assert threading.active_count() < 60


def _fill(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", partitions=6, replication_factor=3)
    producer = Producer(cluster.client_config)
    for number in range(200):
        producer.produce("orders", value=b"%d" % number)
    assert producer.flush(60) == 0
    commit(cluster.bootstrap, "readers", "orders", 1)


def _resident_mb() -> float:
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmRSS:") + 1]) / 1024
