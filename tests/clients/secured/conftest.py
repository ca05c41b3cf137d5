"""One node with every mechanism for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("cryptography")

from tests.clients.secured.every_mechanism import EveryMechanism, every_mechanism  # needs cryptography


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryMechanism]:
    with every_mechanism(tmp_path_factory.mktemp("every-mechanism")) as node:
        yield node
