"""For all tests: examples of Hypothesis have no time limit, what Python compiles is kept, kafka-python is mended.

A machine may be busy with four lanes at once, so no example can say how long it may take. Where slow tests are left
out, Hypothesis tries fewer examples, too, and where lengthy tests are left out, only a handful. A test that needs more
says how many.
"""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import HealthCheck, settings
from tests import kafka_python  # noqa: F401 - imported for what it does

BUSY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("whole", BUSY)
settings.register_profile("short", BUSY, max_examples=40)
settings.register_profile("brief", BUSY, max_examples=8)


def pytest_configure(config: pytest.Config) -> None:
    left_out = config.getoption("markexpr")
    is_brief, is_short = "not lengthy" in left_out, "not slow" in left_out
    settings.load_profile("brief" if is_brief else "short" if is_short else "whole")


# Tests start nodes and commands as processes by the hundred, and without its cache each compiles all it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
