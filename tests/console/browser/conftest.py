"""A browser and a console that listens, for the tests that look at pages as people do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("playwright")

from playwright.sync_api import Browser, Page, sync_playwright
from tests.console.browser.chromium import ROOT, find_chromium

from strandline.services.console.console_service import ConsoleService
from strandline.services.console.console_settings import ConsoleServiceSettings

PICTURES: Final = ROOT / "build" / "console"
AXE: Final = Path(__file__).with_name("axe-core-4.14.0.min.js")
TIMEOUT_S: Final = 60


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start a browser for the tests of a module. While it runs, no test in this process may have a loop of its own."""
    program, options, environment = find_chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=options, env={**os.environ, **environment}, timeout=TIMEOUT_S * 1000
        )
        yield browser
        browser.close()


@contextmanager
def listening(properties: Mapping[str, str]) -> Iterator[ConsoleService]:
    """Run a console in a thread until the block ends."""
    ready = threading.Event()
    given = {"listeners": "http://127.0.0.1:0"} | dict(properties)
    service = ConsoleService(ConsoleServiceSettings.of(given), ready.set)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        assert ready.wait(TIMEOUT_S), "the console listens"
        yield service
    finally:
        service.stop()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive(), "the console stops"


class Screen:
    """One tab, which remembers what a page must not do."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.wrong: list[str] = []
        page.set_default_timeout(TIMEOUT_S * 1000)
        # A violation of the policy of content is an error of the console, too.
        page.on("console", lambda message: self._heard(message))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", self._asked)

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)

    def picture(self, name: str) -> None:
        """Keep what is seen, for people to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png", full_page=True)

    def faults_of_access(self) -> list[str]:
        """Return what axe-core finds wrong for people with screen readers, keyboards or weak eyes."""
        # In the page's own world but not by an element, which the policy of content would not allow.
        self.page.evaluate(AXE.read_text())
        found: dict[str, Any] = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"]]

    def is_too_wide(self) -> bool:
        """Return whether the page scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def _heard(self, message: Any) -> None:
        if message.type == "error":
            self.wrong.append(message.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.wrong.append(f"a request to elsewhere: {request.url}")


OpenScreen = Callable[..., Screen]


@pytest.fixture
def open_screen(chromium: Browser) -> Iterator[OpenScreen]:
    """Return what opens a tab at a console: `open_screen(service, width=360, scheme="dark")`."""
    contexts = []

    def open_one(service: ConsoleService, *, width: int = 1280, height: int = 800, scheme: str = "light") -> Screen:
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        return Screen(context.new_page(), service.url)

    yield open_one
    for context in contexts:
        context.close()
