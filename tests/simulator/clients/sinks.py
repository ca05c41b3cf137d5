"""Sinks in the simulation, with what happens to their drivers: they are stopped, die, run in pairs, and one begins from
a checkpoint of long ago.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.simulator.clients.client import History
from tests.simulator.clients.processor import ProcessorManners
from tests.simulator.clients.sink_driver import SimDriver, SinkLife
from tests.simulator.truth.transaction_truth import TransactionTruth
from tests.simulator.world.cluster import SimCluster

from strandline.ids import TopicPartition
from strandline.testing.history import Op

DRIVERS_MAX: Final = 2
"""Of one sink, at a time."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    count: int
    tasks_max: int
    churn_s: float
    manners: ProcessorManners


class SimSinks:
    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        truth: TransactionTruth,
        outputs: Sequence[TopicPartition],
        options: SinkOptions,
    ) -> None:
        self.cluster = cluster
        self.history = history
        self.truth = truth
        self.outputs = list(outputs)
        self.options = options
        self.random = cluster.loop.derive("sinks")
        self.lives = [SinkLife(f"sink-{number}") for number in range(options.count)]
        self.drivers: list[SimDriver] = []
        self.is_calm = False
        self._number = 0
        self._committed: dict[SimDriver, int] = {}

    def start(self) -> None:
        for life in self.lives:
            self.add(life)
        self._churn_later()

    def add(self, life: SinkLife, *, behind: int = 0) -> SimDriver:
        self._number += 1
        driver = SimDriver(
            self.cluster.network,
            self.cluster.host(f"driver-host-{self._number}"),
            self.history,
            self.cluster.bootstrap,
            life,
            self.outputs,
            self.truth,
            self.options.manners,
            first_batch_id=max(0, life.checkpoint - behind),
            tasks_max=self.options.tasks_max,
        )
        driver.is_calm = self.is_calm
        driver.on_over = self._replace
        self.drivers.append(driver)
        return driver

    @property
    def hosts(self) -> list[str]:
        return [each.host.name for each in self.drivers]

    def remove(self, driver: SimDriver) -> None:
        """It dies, and its tasks with it."""
        if driver in self.drivers:
            self.drivers.remove(driver)
            driver.stop()
            driver.kill()

    def _replace(self, driver: SimDriver) -> None:
        self.remove(driver)
        if not any(each.life is driver.life for each in self.drivers):
            self.add(driver.life)

    def _churn_later(self) -> None:
        self.cluster.loop.call_in(self.options.churn_s * (0.3 + 1.4 * self.random.random()), self._churn)

    def _churn(self) -> None:
        if self.is_calm:
            return
        self._churn_later()
        driver = self.random.choice(self.drivers)
        self.random.choice([self._pause, self._replace, self._double, self._restore])(driver)

    def _pause(self, driver: SimDriver) -> None:
        driver.runtime.actor.pause()
        pause_s = 2.0 * self.options.manners.timeout_s * self.random.random() ** 2
        self.cluster.loop.call_in(pause_s, driver.runtime.actor.resume)

    def _double(self, driver: SimDriver) -> None:
        """Another one begins; if the first was stopped, it goes on later and does not know."""
        if sum(each.life is driver.life for each in self.drivers) < DRIVERS_MAX:
            if self.random.random() < 0.5:
                self._pause(driver)
            self.add(driver.life)

    def _restore(self, driver: SimDriver) -> None:
        """From a checkpoint of long ago: it stops, and nothing of it is seen."""
        self.remove(driver)
        self.add(driver.life, behind=self.random.randint(2, 4))

    # The end

    def calm(self) -> None:
        """One driver of each sink goes on, and does nothing but its work."""
        self.is_calm = True
        last = {id(each.life): each for each in self.drivers}
        for driver in list(self.drivers):
            driver.runtime.actor.resume()
            driver.is_calm = True
            if last[id(driver.life)] is not driver:
                self.remove(driver)
        self._committed = {each: each.committed for each in self.drivers}

    def unsettled(self) -> str:
        """Say which have committed nothing since the faults ended."""
        idle = [each for each in self.drivers if each.committed <= self._committed.get(each, 0)]
        return ", ".join(f"{each.host.name} ({each.life.sink_id}) has committed nothing" for each in idle)

    def finish(self) -> None:
        for driver in self.drivers:
            driver.stop()

    def ops(self) -> list[Op]:
        now_ns, label = self.history.now_ns(), str(self.outputs[0])
        return [op for life in self.lives for batch in life.batches for op in batch.ops(now_ns, label=label)]
