"""Work on topics that needs a browser: rows that are chosen, and filters that are kept."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from tests.console.browser.conftest import OpenScreen, listening
from tests.console.made_topics import make_topic

import strandline
from strandline.services.console.console_service import ConsoleService


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleService]:
    with strandline.embedded() as node:
        for name in ("orders", "payments", "visits"):
            make_topic(node.client_config, name)
        producer = Producer(node.client_config)
        producer.produce("orders", b'{"amount": 2}')
        producer.flush(30)
        with listening({"clusters": "dev", "cluster.dev.bootstrap.servers": node.bootstrap}) as service:
            yield service


def test_buttons_follow_what_is_chosen(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    page = screen.page
    screen.open("/c/dev/topics")

    def on() -> list[str]:
        return [each.inner_text() for each in page.query_selector_all(".chosen button:not([disabled])")]

    page.wait_for_selector("[data-chosen-words]:has-text('None chosen')")
    assert on() == []
    page.check("[data-choose-all]")
    assert on() == ["Delete all records", "Delete"]
    page.uncheck("[data-choose-all]")
    page.check("input[value=orders]")
    assert on() == ["Copy", "Delete all records", "Delete"]
    # The table renews itself, and what was chosen stays.
    page.evaluate("document.querySelector('#table-main').dataset.old = 'yes'")
    page.wait_for_selector("#table-main:not([data-old])")
    assert page.is_checked("input[value=orders]")
    assert on() == ["Copy", "Delete all records", "Delete"]
    screen.picture("topics-chosen")
    assert screen.faults_of_access() == []
    page.check("input[value=payments]")
    page.click(".chosen button:has-text('Delete all records')")
    page.wait_for_selector("h1:has-text('Delete all records of topics')")
    assert "orders payments" in page.inner_text(".summary")
    assert screen.faults_of_access() == []
    assert screen.wrong == []


def test_a_filter_is_kept_and_forgotten(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    page = screen.page
    screen.open("/c/dev/topics/orders")
    page.fill("textarea[name=where]", "value.amount=2")
    page.fill("#filter-name", "two <b>")
    page.click("button:has-text('Keep')")
    page.wait_for_selector(".kept a[aria-current=true]:text-is('two <b>')")
    assert page.locator(".records tbody tr").count() == 1
    assert screen.faults_of_access() == []
    screen.picture("topic-filter")
    # The same name again replaces it.
    page.fill("textarea[name=where]", "value.amount=3")
    page.fill("#filter-name", "two <b>")
    page.click("button:has-text('Keep')")
    page.wait_for_selector(".records .empty")
    assert page.locator(".kept a").count() == 1
    screen.open("/c/dev/topics/orders")
    page.click(".kept a")
    page.wait_for_selector(".records .empty")
    screen.open("/c/dev/topics/visits")
    assert page.locator(".kept a").count() == 0
    screen.open("/c/dev/topics/orders")
    page.click(".kept button:has-text('Forget')")
    assert page.locator(".kept a").count() == 0
    assert screen.wrong == []


def test_a_clock_that_is_wrong_changes_nothing(console: ConsoleService, open_screen: OpenScreen) -> None:
    screen = open_screen(console)
    page = screen.page
    page.clock.install(time="2001-01-01T00:00:00Z")
    screen.open("/c/dev/topics/orders?live=1")
    year = page.inner_text(".records tbody .when")[:4]
    assert int(year) > 2020
    producer = Producer({"bootstrap.servers": console.console._settings.clusters[0].bootstrap})
    producer.produce("orders", b"came late")
    assert producer.flush(30) == 0
    page.wait_for_selector(".records tbody tr:has-text('came late')")
    assert page.inner_text(".records tbody tr:has-text('came late') .when").startswith(year)
    screen.open("/c/dev")
    page.wait_for_selector(".answer.ok")
    assert screen.wrong == []
