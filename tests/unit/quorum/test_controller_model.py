"""The controller in the model of a cluster: seeded walks, and sequences that Hypothesis makes up and shortens."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.quorum.controller_model import ControllerModel, run

pytestmark = pytest.mark.lengthy("random walks beside a model")

WALKS = int(os.environ.get("STRANDLINE_MODEL_WALKS", "24"))


@pytest.mark.parametrize("seed", range(WALKS))
def test_a_walk(seed: int) -> None:
    model = run(seed, 500)
    assert model.invariants.acknowledged + model.invariants.elections, "a walk in which nothing happens shows nothing"


class Cluster(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 1000), partitions_per_step=st.integers(1, 3))
    def start(self, seed: int, partitions_per_step: int) -> None:
        self.model = ControllerModel(seed, partitions_per_step=partitions_per_step)
        self.model.warm_up()

    @rule(steps=st.integers(1, 20))
    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.model.step()

    @rule()
    def everybody_is_heard(self) -> None:
        self.model.calm_round()

    @rule()
    def deliver(self) -> None:
        self.model.deliver()

    @rule()
    def another_controller(self) -> None:
        self.model.fail_over()

    @rule(at=st.integers(0, 3), kept=st.sampled_from((0.0, 0.5, 1.0)))
    def crash(self, at: int, kept: float) -> None:
        processes = list(self.model.processes.values())
        if at < len(processes):
            self.model.crash(processes[at], kept)

    @precondition(lambda self: len(self.model.processes) < len(self.model.disks))
    @rule(broker_id=st.integers(1, 4))
    def start_broker(self, broker_id: int) -> None:
        self.model.start_broker(broker_id)

    @rule(seconds=st.sampled_from((0.5, 3.0, 9.0)))
    def wait(self, seconds: float) -> None:
        self.model.wait(seconds)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "model"):
            self.model.invariants.check()

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.model.heal()


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
