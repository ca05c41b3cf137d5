"""For all tests: examples of Hypothesis have no time limit, for a machine may be busy with four lanes at once."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
