"""One broker for a module of hostile tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.hostile.stage import stage

from strandline.local.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with stage({"target": 2}) as log:
        yield log
