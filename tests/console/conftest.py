"""One node for all tests of a module, and consoles that are made for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

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


@dataclass(frozen=True)
class OtherCluster:
    """A cluster that is not ours to start; it has what tests take from an embedded node."""

    bootstrap: str

    @property
    def client_config(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A node, or the cluster that STRANDLINE_TEST_BOOTSTRAP names: `test_beside_kafka` runs tests there."""
    if other := os.environ.get("STRANDLINE_TEST_BOOTSTRAP"):
        yield cast(EmbeddedBroker, OtherCluster(other))
        return
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
