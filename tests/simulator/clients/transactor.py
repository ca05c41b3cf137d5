"""Clients in the simulation that write transactions and read nothing: no group stands between them and their work.

Several of them, each with a transactional id. Now and then one is stopped for a while, dies in the middle, or gets a
second incarnation that takes its id over while it goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.simulator.clients.client import METADATA_AGE_S, History, SimClient
from tests.simulator.clients.processor import RECORDS_PER_LANE_MAX, ProcessorManners
from tests.simulator.clients.producer import plain_record
from tests.simulator.clients.transaction import Lane, SimTransaction
from tests.simulator.clients.transactional import SimTransactional
from tests.simulator.truth.transaction_truth import TransactionTruth
from tests.simulator.world.cluster import SimCluster
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost

from strandline.codec.columns import Record
from strandline.ids import TopicPartition
from strandline.testing.history import Op

INCARNATIONS_MAX: Final = 2
"""Of one transactional id, that are there at a time."""


class SimTransactor(SimClient):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        transactional_id: str,
        outputs: Sequence[TopicPartition],
        truth: TransactionTruth,
        transactions: list[SimTransaction],
        manners: ProcessorManners,
        record_of: Callable[[str, int], Record] = plain_record,
    ) -> None:
        super().__init__(network, host, history, bootstrap, sorted({each.topic for each in outputs}))
        self.record_of = record_of
        self.transactional_id = transactional_id
        self.outputs = list(outputs)
        self.truth = truth
        self.transactions = transactions
        self.manners = manners
        self.is_calm = False
        self.committed = 0
        self.on_over: Callable[[SimTransactor], object] = lambda transactor: None
        self._values = 0
        self.producer = self._new_producer()
        self.runtime.call_soon(self.refresh)
        self.runtime.call_later(METADATA_AGE_S, self._refresh_by_time)
        self._later()

    def _new_producer(self) -> SimTransactional:
        producer = SimTransactional(
            self,
            self.transactional_id,
            self.truth,
            process=self.history.new_process(),
            speaks=self.random.choice(self.manners.speaks),
            timeout_s=self.manners.timeout_s,
            late_share=self.manners.late_share,
        )
        producer.record_of = self.record_of
        return producer

    def _refresh_by_time(self) -> None:
        if not self.is_stopped:
            self.runtime.call_later(METADATA_AGE_S, self._refresh_by_time)
            self.refresh()

    def _later(self) -> None:
        self.runtime.call_later(self.manners.pause_s * (0.5 + self.random.random()), self._work)

    def _work(self) -> None:
        if not self.is_stopped:
            self.write()

    def write(self) -> SimTransaction:
        """Begin a transaction."""
        manners, chance = self.manners, self.random.random
        transaction = SimTransaction(
            self.producer.process,
            None,
            {},
            self._lanes(),
            commits=self.is_calm or chance() >= manners.abort_share,
            hangs_s=0.0 if self.is_calm or chance() >= manners.hang_share else manners.timeout_s * (0.5 + chance()),
        )
        self.transactions.append(transaction)
        self.producer.run(transaction, self._on_over_with)
        return transaction

    def _lanes(self) -> dict[TopicPartition, Lane]:
        lanes = {}
        for partition in self.random.sample(self.outputs, self.random.randint(1, len(self.outputs))):
            count = self.random.randint(1, RECORDS_PER_LANE_MAX)
            values = [f"{self.producer.process}:{each}" for each in range(self._values, self._values + count)]
            lanes[partition] = Lane(values)
            self._values += count
        return lanes

    def _on_over_with(self, transaction: SimTransaction) -> None:
        self.committed += transaction.outcome == "ok"
        if self.producer.is_fenced:
            if not self.is_calm and self.random.random() < self.manners.die_share:
                self.on_over(self)
                return
            self.producer = self._new_producer()
        self._later()


class SimTransactors:
    """All of them, with what happens to them."""

    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        truth: TransactionTruth,
        outputs: Sequence[TopicPartition],
        *,
        count: int,
        churn_s: float,
        manners: ProcessorManners,
        name: str = "transactor",
        record_of: Callable[[str, int], Record] = plain_record,
    ) -> None:
        self.cluster = cluster
        self.history = history
        self.truth = truth
        self.outputs = list(outputs)
        self.count = count
        self.churn_s = churn_s
        self.manners = manners
        self.name = name
        self.record_of = record_of
        self.random = cluster.loop.derive(f"{name}s")
        self.transactors: list[SimTransactor] = []
        self.transactions: list[SimTransaction] = []
        self.is_calm = False
        self._number = 0
        self._committed: dict[SimTransactor, int] = {}

    def start(self) -> None:
        for number in range(self.count):
            self.add(f"{self.name}-{number}")
        if self.churn_s:
            self._churn_later()

    def add(self, transactional_id: str) -> SimTransactor:
        self._number += 1
        transactor = SimTransactor(
            self.cluster.network,
            self.cluster.host(f"{self.name}-host-{self._number}"),
            self.history,
            self.cluster.bootstrap,
            transactional_id,
            self.outputs,
            self.truth,
            self.transactions,
            self.manners,
            self.record_of,
        )
        transactor.is_calm = self.is_calm
        transactor.on_over = self._replace
        self.transactors.append(transactor)
        return transactor

    @property
    def hosts(self) -> list[str]:
        return [each.host.name for each in self.transactors]

    def remove(self, transactor: SimTransactor) -> None:
        """It dies, whatever it has begun."""
        if transactor in self.transactors:
            self.transactors.remove(transactor)
            transactor.stop()
            transactor.kill()

    def _replace(self, transactor: SimTransactor) -> None:
        self.remove(transactor)
        if not any(each.transactional_id == transactor.transactional_id for each in self.transactors):
            self.add(transactor.transactional_id)

    def _churn_later(self) -> None:
        self.cluster.loop.call_in(self.churn_s * (0.3 + 1.4 * self.random.random()), self._churn)

    def _churn(self) -> None:
        if self.is_calm:
            return
        self._churn_later()
        transactor = self.random.choice(self.transactors)
        self.random.choice([self._pause, self._replace, self._double])(transactor)

    def _pause(self, transactor: SimTransactor) -> None:
        transactor.runtime.actor.pause()
        pause_s = 2.0 * self.manners.timeout_s * self.random.random() ** 2
        self.cluster.loop.call_in(pause_s, transactor.runtime.actor.resume)

    def _double(self, transactor: SimTransactor) -> None:
        """A second incarnation while the first is stopped; when that goes on, it does not know."""
        same = [each for each in self.transactors if each.transactional_id == transactor.transactional_id]
        if len(same) < INCARNATIONS_MAX:
            self._pause(transactor)
            self.add(transactor.transactional_id)

    # The end

    def calm(self) -> None:
        """One for each id goes on, and does nothing but its work; whatever others have open is not theirs to end."""
        self.is_calm = True
        last = {each.transactional_id: each for each in self.transactors}
        for transactor in list(self.transactors):
            transactor.runtime.actor.resume()
            transactor.is_calm = True
            if last[transactor.transactional_id] is not transactor:
                self.remove(transactor)
        self._committed = {each: each.committed for each in self.transactors}

    def unsettled(self) -> str:
        """Say which have committed nothing since the faults ended."""
        idle = [each for each in self.transactors if each.committed <= self._committed.get(each, 0)]
        return ", ".join(f"{each.host.name} ({each.transactional_id}) has committed nothing" for each in idle)

    def finish(self) -> None:
        for transactor in self.transactors:
            transactor.stop()

    def ops(self) -> list[Op]:
        now_ns = self.history.now_ns()
        return [each.op(now_ns) for each in self.transactions]
