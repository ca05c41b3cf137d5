"""A group of processors in the simulation: members that come and go, and transactional ids that are taken over.

There are a few transactional ids. A new processor takes a free one, or now and then one that is still in use: a second
incarnation beside the first, which learns of it only when it is fenced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulator.clients.client import History
from tests.simulator.clients.group import CLASSIC, GroupOptions, SimGroup
from tests.simulator.clients.member import SimMember
from tests.simulator.clients.processor import (
    Processing,
    ProcessorManners,
    SimClassicProcessor,
    SimConsumerProcessor,
)
from tests.simulator.clients.transaction import SimTransaction
from tests.simulator.truth.group_truth import GroupTruth
from tests.simulator.truth.invariants import Invariants
from tests.simulator.truth.transaction_truth import TransactionTruth
from tests.simulator.world.cluster import SimCluster

from strandline.ids import TopicPartition
from strandline.testing.history import Op

TAKE_OVER_SHARE: Final = 0.3


@dataclass(frozen=True, slots=True)
class ProcessorOptions:
    group: GroupOptions
    outputs: tuple[TopicPartition, ...]
    transactional_ids: int = 3
    manners: ProcessorManners = field(default_factory=ProcessorManners)


class SimProcessors(SimGroup):
    def __init__(
        self,
        cluster: SimCluster,
        history: History,
        invariants: Invariants,
        truth: GroupTruth,
        transaction_truth: TransactionTruth,
        options: ProcessorOptions,
        *,
        leads: Callable[[TopicPartition, int], bool],
    ) -> None:
        super().__init__(cluster, history, invariants, truth, options.group, leads=leads)
        self.processor_options = options
        self.transaction_truth = transaction_truth
        self.transactions: list[SimTransaction] = []

    @property
    def processors(self) -> list[Processing]:
        return [each for each in self.members if isinstance(each, Processing)]

    def new_member(self, name: str, protocol: str, instance_id: str | None) -> SimMember:
        kind = SimClassicProcessor if protocol == CLASSIC else SimConsumerProcessor
        options = self.processor_options
        processor = kind(
            self.cluster.network,
            self.cluster.host(name),
            self.history,
            self.cluster.bootstrap,
            self.truth,
            self.options.name,
            self.options.topics,
            manners=self.options.manners,
            instance_id=instance_id,
            transactional_id=self._transactional_id(),
            outputs=options.outputs,
            transactions=self.transactions,
            transaction_truth=self.transaction_truth,
            processing=options.manners,
        )
        processor.is_calm = self.is_calm
        return processor

    def _transactional_id(self) -> str:
        taken = {each.transactional_id for each in self.processors}
        every = [f"{self.options.name}-{number}" for number in range(self.processor_options.transactional_ids)]
        free = [each for each in every if each not in taken]
        if free and (self.is_calm or self.random.random() >= TAKE_OVER_SHARE):
            return free[0]
        return self.random.choice(every)

    def calm(self) -> None:
        """Keep only the last of those that share a transactional id; none aborts or hangs any more."""
        last = {each.transactional_id: each for each in self.processors}
        for processor in self.processors:
            if last[processor.transactional_id] is not processor:
                # Whatever it had open is for the coordinator to end.
                self.kill(processor)
            else:
                processor.is_calm = True
        super().calm()

    def ops(self) -> list[Op]:
        """Return all transactions as operations of the history."""
        now_ns = self.history.now_ns()
        return [each.op(now_ns) for each in self.transactions]
