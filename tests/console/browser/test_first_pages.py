"""Overview, Topics and the action that creates a topic, as people see them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.console.browser.conftest import OpenScreen, listening
from tests.console.made_topics import make_topics

import strandline
from strandline.services.console.console_service import ConsoleService

EVIL = "<script>document.title='stolen'</script>"


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleService]:
    with strandline.embedded() as node:
        from confluent_kafka import Producer
        from confluent_kafka.admin import NewTopic

        owners = {"orders": "team-shop", "payments": "team-money", "visits": EVIL}
        names = [*owners, *(f"sensor.readings.{number:02}" for number in range(60))]
        topics = [
            NewTopic(name, 3, 1, config={"strandline.owner": owners[name]} if name in owners else {}) for name in names
        ]
        make_topics(node.client_config, *topics)
        producer = Producer(node.client_config)
        for number in range(2000):
            producer.produce("orders", f"o-{number}".encode(), b"x" * 100)
            producer.produce("visits", b"v", EVIL.encode())
        producer.flush()
        with listening({"clusters": "dev", "cluster.dev.bootstrap.servers": node.bootstrap}) as service:
            yield service


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_overview_says_that_all_is_well(console: ConsoleService, open_screen: OpenScreen, scheme: str) -> None:
    screen = open_screen(console, scheme=scheme)
    screen.open("/")
    screen.page.wait_for_selector(".answer.ok")
    assert "All is well." in screen.page.inner_text("main")
    screen.picture(f"overview-{scheme}")
    assert screen.faults_of_access() == []
    assert screen.wrong == []


def test_topics_are_searched_sorted_and_paged_in_the_url(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    screen.open("/c/dev/topics")
    page = screen.page
    # Sizes and owners come a moment later, by themselves.
    page.wait_for_selector("td:text-is('team-shop')")
    screen.picture("topics-light")
    assert screen.faults_of_access() == []
    page.keyboard.press("/")
    page.keyboard.type("sensor 07")
    page.wait_for_selector(".foot:has-text('1 found among')")
    assert page.url.endswith("/c/dev/topics?q=sensor%2007")
    page.fill("input[type=search]", "")
    page.wait_for_selector(".foot:has-text('1–50 of 63')")
    page.click("th:has-text('Size') a")
    page.wait_for_selector("th[aria-sort=descending]:has-text('Size')")
    assert "sort=-size_bytes" in page.url
    page.click("a[rel=next]")
    page.wait_for_selector(".foot:has-text('51–63 of 63')")
    # The whole state is in the URL.
    shown = page.inner_text("tbody tr:first-child th")
    screen.open(page.url.removeprefix(screen.url))
    assert page.inner_text("tbody tr:first-child th") == shown
    assert shown
    assert page.title().startswith("Topics")
    assert screen.wrong == []


def test_a_topic_is_created_after_a_confirmation(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    screen.open("/c/dev/topics")
    page = screen.page
    page.click("text=Create topic")
    page.fill("#field-topic", "clicks")
    page.fill("#field-partitions", "6")
    screen.picture("action-form")
    assert screen.faults_of_access() == []
    page.click("button:has-text('Continue')")
    assert "strandline topic create clicks --partitions 6" in page.inner_text(".command")
    screen.picture("action-confirmation")
    assert screen.faults_of_access() == []
    page.click("button:has-text('Create topic')")
    page.wait_for_selector(".notice.ok:has-text('clicks was created')")
    page.wait_for_selector("th.name a:text-is('clicks')")
    assert screen.wrong == []


@pytest.mark.parametrize("path", ["/c/dev", "/c/dev/topics", "/c/dev/do/topic-create", "/c/dev/nothing"])
def test_a_narrow_dark_screen_is_enough(console: ConsoleService, open_screen: OpenScreen, path: str) -> None:
    screen = open_screen(console, width=360, height=740, scheme="dark")
    screen.open(path)
    screen.page.wait_for_selector("h1")
    screen.picture(f"narrow-{path.rsplit('/', 1)[-1]}")
    assert not screen.is_too_wide()
    assert screen.faults_of_access() == []


def test_the_colours_are_kept(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    screen.open("/c/dev/topics?q=orders")
    before = screen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    screen.page.click("button[value=dark]")
    screen.page.wait_for_selector("html[data-theme=dark]")
    assert screen.page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    # It comes back to where it was.
    assert screen.page.url.endswith("/c/dev/topics?q=orders")
    screen.open("/c/dev")
    assert screen.page.get_attribute("html", "data-theme") == "dark"
    screen.picture("overview-dark-chosen")
    assert screen.wrong == []
