"""The outcomes of all cases, asked once."""

from __future__ import annotations

import pytest
from tests.differential import recording
from tests.differential.brokers import strandline_on_stage
from tests.differential.cases import CASES
from tests.differential.recording import Outcome


@pytest.fixture(scope="session")
def ours() -> dict[str, Outcome]:
    """What a node of ours answers."""
    with strandline_on_stage() as (port, ids):
        return recording.run(port, ids, CASES)


@pytest.fixture(scope="session")
def theirs() -> dict[str, Outcome]:
    """What Apache Kafka answered when it was asked."""
    return recording.load()
