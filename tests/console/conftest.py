"""One node for all tests of a module, and consoles that are made for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("jinja2")

from tests.console.asgi_browser import AsgiBrowser

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.services.console.console_service import ConsoleService
from strandline.services.console.console_settings import ConsoleServiceSettings

MakeConsole = Callable[..., ConsoleService]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with strandline.embedded() as node:
        yield node


@pytest.fixture
def make_console() -> Iterator[MakeConsole]:
    """Return what makes a console of clusters by their names, with more properties."""
    made: list[ConsoleService] = []

    def make(clusters: Mapping[str, str], properties: Mapping[str, str] | None = None) -> ConsoleService:
        given = {"listeners": "http://127.0.0.1:0", "clusters": ",".join(clusters)}
        given |= {f"cluster.{name}.bootstrap.servers": servers for name, servers in clusters.items()}
        made.append(ConsoleService(ConsoleServiceSettings.of(given | dict(properties or {}))))
        return made[-1]

    yield make
    for each in made:
        each.console.close()
        each.close()


@pytest.fixture
def browser(broker: EmbeddedBroker, make_console: MakeConsole) -> AsgiBrowser:
    """A browser at a console of the node."""
    return AsgiBrowser(make_console({"dev": broker.bootstrap}).app)
