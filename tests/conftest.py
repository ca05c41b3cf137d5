"""For all tests: examples of Hypothesis have no time limit, and what Python compiles is kept.

A machine may be busy with four lanes at once, so no example can say how long it may take.
"""

from __future__ import annotations

import os
import sys

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# Tests start nodes and commands as processes by the hundred, and without its cache each compiles all it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
