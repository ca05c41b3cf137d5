"""A processor in the simulation: it consumes, transforms, produces, and commits its positions with what it produced.

It is a member of a group, of either protocol, and a transactional producer. What it has read since its last transaction
goes into the next one: a few records per partition that tell of it, to several partitions, and the positions. If the
transaction is not committed, or its outcome is unknown, it asks where the group stands and goes on from there. A
transaction that has begun goes on while the group rebalances, as that of a zombie does; new partitions wait for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.simulator.clients.classic_member import SimClassicMember
from tests.simulator.clients.consumer import READ_COMMITTED
from tests.simulator.clients.consumer_member import SimConsumerMember
from tests.simulator.clients.member import SimMember
from tests.simulator.clients.transaction import Lane, Membership, SimTransaction
from tests.simulator.clients.transactional import NEW, SimTransactional
from tests.simulator.truth.group_truth import Tag

from strandline.ids import TopicPartition

if TYPE_CHECKING:
    from tests.simulator.truth.transaction_truth import TransactionTruth

RECORDS_PER_LANE_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class ProcessorManners:
    """How a processor behaves."""

    speaks: tuple[int, ...] = (NEW,)
    timeout_s: float = 10.0
    pause_s: float = 0.5
    abort_share: float = 0.15
    hang_share: float = 0.03
    """How often it does nothing for a time about as long as the timeout, and then goes on."""
    late_share: float = 0.3
    """How often something of a transaction is sent once more after its end."""
    die_share: float = 0.5
    """How often it ends when it is fenced; else it begins again with the same transactional id."""


class Processing(SimMember):
    """What makes a processor of a member; to be mixed into one of a protocol."""

    def __init__(
        self,
        *args: Any,
        transactional_id: str,
        outputs: Sequence[TopicPartition],
        transactions: list[SimTransaction],
        transaction_truth: TransactionTruth,
        processing: ProcessorManners,
        **named: Any,
    ) -> None:
        super().__init__(*args, **named)
        self.transactional_id = transactional_id
        self.outputs = list(outputs)
        self.transactions = transactions
        """Where all transactions of the run are written down."""
        self.transaction_truth = transaction_truth
        self.processing = processing
        self.more_topics = tuple(sorted({each.topic for each in outputs}))
        self.isolation_level = READ_COMMITTED
        self.is_calm = False
        """Whether it does nothing but its work from now on."""
        self._values = 0
        self.producer = self._new_producer()

    def _new_producer(self) -> SimTransactional:
        manners = self.processing
        producer = SimTransactional(
            self,
            self.transactional_id,
            self.transaction_truth,
            process=self.history.new_process(),
            speaks=self.random.choice(manners.speaks),
            timeout_s=manners.timeout_s,
            late_share=manners.late_share,
        )
        producer.group_coordinator = self._group_coordinator
        producer.forget_group_coordinator = self._forget_coordinator
        producer.on_positions = self._on_positions
        producer.on_refused = self._on_refused
        return producer

    def _group_coordinator(self) -> int | None:
        return None if self._coordinator_wire() is None else self._coordinator

    def _forget_coordinator(self) -> None:
        self._coordinator = None

    # A member commits nothing but in transactions

    def commit(self, then: Callable[[], object] | None = None) -> None:
        if then is not None:
            then()

    def _commit_by_time(self) -> None:
        if not self.is_stopped:
            self.runtime.call_later(self.processing.pause_s * (0.5 + self.random.random()), self._commit_by_time)
            if not self.producer.is_busy:
                self.process_more()

    def _ask_where(self, partitions: list[TopicPartition]) -> None:
        """Not before its own transaction is over: a member that kept a partition may commit what it took from it before
        a rebalance, and would take the same again."""
        if self.producer.is_busy:
            self.later(self._ask_where, partitions)
        else:
            super()._ask_where(partitions)

    def process_more(self) -> SimTransaction | None:
        """Begin a transaction about all that was read since the last one; None if there is nothing."""
        consumed = {
            partition: (self.committed[partition], position.offset)
            for partition, position in self.positions.items()
            if position.offset > self.committed[partition]
        }
        if not consumed or self.generation < 0:
            return None
        self._tags += 1
        tag = Tag(self.process, self.member_id, self.generation, self._tags)
        membership = Membership(self.group, self.member_id, self.generation, self.instance_id, tag.text())
        manners, calm, chance = self.processing, self.is_calm, self.random.random
        transaction = SimTransaction(
            self.producer.process,
            membership,
            consumed,
            self._lanes(),
            commits=calm or chance() >= manners.abort_share,
            hangs_s=0.0 if calm or chance() >= manners.hang_share else manners.timeout_s * (0.5 + chance()),
            positions={each: self.positions[each] for each in consumed},
        )
        self.transactions.append(transaction)
        self.producer.run(transaction, self._on_over_with)
        return transaction

    def _lanes(self) -> dict[TopicPartition, Lane]:
        lanes = {}
        for partition in self.random.sample(self.outputs, self.random.randint(1, len(self.outputs))):
            count = self.random.randint(1, RECORDS_PER_LANE_MAX)
            lanes[partition] = Lane(
                [f"{self.producer.process}:{each}" for each in range(self._values, self._values + count)]
            )
            self._values += count
        return lanes

    # What came of it

    def _on_positions(self, transaction: SimTransaction) -> None:
        assert transaction.membership is not None
        tag = Tag.read(transaction.membership.tag)
        assert tag is not None
        for partition in transaction.consumed:
            self.truth.on_acknowledged(tag, *partition)

    def _on_refused(self, code: int, transaction: SimTransaction) -> None:
        assert transaction.membership is not None
        if code in self.fenced_by and transaction.membership.generation == self.generation:
            self.refused += 1
            self.lose()

    def _on_over_with(self, transaction: SimTransaction) -> None:
        if transaction.outcome == "ok":
            self.commits += 1
        still = [each for each, position in transaction.positions.items() if self.positions.get(each) is position]
        if transaction.outcome == "ok":
            for partition in still:
                self.committed[partition] = transaction.consumed[partition][1]
        else:
            self._read_again(still)
        if self.producer.is_fenced:
            self._begin_anew()

    def _read_again(self, partitions: Iterable[TopicPartition]) -> None:
        """From where the group stands, whatever that is by now."""
        again = list(partitions)
        if again:
            self.release(again)
            self._ask_where(again)

    def _begin_anew(self) -> None:
        """Another has the transactional id, or the transaction took too long."""
        if not self.is_calm and self.random.random() < self.processing.die_share:
            self.end()
        else:
            self._read_again(list(self.positions))
            self.producer = self._new_producer()


class SimClassicProcessor(Processing, SimClassicMember):
    pass


class SimConsumerProcessor(Processing, SimConsumerMember):
    pass
