"""Producers, partitions and a coordinator, and between them a network that delays, doubles and loses every message.

The coordinator's shard and the rules of partitions are the real ones; the log of a partition is a list. Producers speak
version 2 of transactions, fence each other, crash, and come back as zombies; coordinators change, partitions forget
all but their log, transactions time out, and the cluster's level goes back and forth. In the end a transaction is seen
whole or not at all, once, and if its producer was told that it is committed, it is.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.coordinators.transaction_story import P0, P1, P2, TIMEOUT_MS, Story, Token, only

from strandline.codec.record_batch import HEADER
from strandline.codec.transaction_marker import encode_marker
from strandline.coordinators.transactions.events import SendMarkers
from strandline.coordinators.transactions.transaction import EPOCH_LAST, UNFINISHED, Transaction
from strandline.coordinators.transactions.transaction_records import transaction_record
from strandline.errors import ErrorCode, InvalidProducerEpoch, RequestError, StrandlineError, error_code
from strandline.ids import TopicPartition
from strandline.partition.producers import Producers
from strandline.partition.transactions import check_beginning, check_epoch, check_marker
from strandline.partition.verification import ONGOING, VerificationGuard

Producer = tuple[int, int]
"""Id and epoch."""
STEPS = 2_000
ROUNDS_MAX = 3
TRY_AGAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


@dataclasses.dataclass
class Written:
    producer: Producer
    sequence: int = -1
    value: int = -1
    marker: SendMarkers | None = None


class Partition:
    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.log: list[Written] = []
        self.producers = Producers()

    def begin(self, producer: Producer, sequence: int) -> VerificationGuard:
        check_epoch(self.producers, *producer)
        if self.producers.has_open_transaction(*producer):
            return ONGOING
        return self.producers.verifications.begin(*producer, sequence, supports_epoch_bump=True, now_ms=0)

    def append(self, producer: Producer, sequence: int, value: int, guard: VerificationGuard) -> None:
        header = (0, 0, 0, 0, 0, 0, 0, 0, 0, *producer, sequence, 1)
        if self.producers.has_open_transaction(*producer):
            known = self.producers.check(*producer, sequence, sequence)
        else:
            known = check_beginning(self.producers, header, guard, verifies=lambda: True)
        if known is None:
            self._keep(Written(producer, sequence, value))

    def mark(self, marker: SendMarkers) -> None:
        producer = marker.producer_id, marker.producer_epoch
        check_marker(
            self.producers,
            *producer,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        self._keep(Written(producer, marker=marker))

    def _keep(self, written: Written) -> None:
        self._learn(len(self.log), written)
        self.log.append(written)

    def _learn(self, offset: int, written: Written) -> None:
        if written.marker is None:
            self.producers.note(*written.producer, written.sequence, offset, 0, 0, 0)
            self.producers.note_transactional(written.producer[0], offset)
            return
        batch = encode_marker(
            *written.producer,
            is_commit=written.marker.is_commit,
            coordinator_epoch=written.marker.coordinator_epoch,
            timestamp_ms=0,
        )
        self.producers.note_marker((offset, *HEADER.unpack_from(batch)[1:]), batch, 0)

    def forget_all_but_the_log(self, snapshot_at: int) -> None:
        """Another leads, or the node starts again."""
        self.producers = Producers()
        for offset, written in enumerate(self.log):
            if offset == snapshot_at:
                snapshot, self.producers = self.producers.snapshot(), Producers()
                self.producers.restore(snapshot, 0)
            self._learn(offset, written)

    def committed(self) -> list[int]:
        undecided: dict[int, list[int]] = {}
        seen: list[int] = []
        for written in self.log:
            producer_id = written.producer[0]
            if written.marker is None:
                undecided.setdefault(producer_id, []).append(written.value)
            else:
                values = undecided.pop(producer_id, [])
                seen += values if written.marker.is_commit else []
        assert not undecided, "a transaction is open for ever"
        return seen


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.story = Story()
        self.story.gives_ids = False
        self.partitions = [Partition(place) for place in (P0, P1, P2)]
        self.under_way: list[Callable[[], object]] = []
        self.waiting: list[tuple[Token, Callable[[Any], object]]] = []
        self.markers: list[SendMarkers] = []
        self.attempts: list[Attempt] = []
        self.values = 0
        for number, name in enumerate("xy"):
            # Close to the last epoch, so that it is met.
            epoch = EPOCH_LAST - self.random.randint(1, 8)
            owned = Transaction(name, 50 + number, epoch, TIMEOUT_MS, self.story.now_ms)
            self.story.log.append(transaction_record(owned, transaction_version=2))
        self.story.restart()
        self.clients = [Client(self, name) for name in "xxy"]

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def step(self) -> None:
        self.take_markers()
        (what,) = self.random.choices(
            [
                self.deliver,
                self.act,
                self.pass_time,
                self.give_id,
                self.take_over,
                self.set_level,
                self.lose,
                self.join,
            ],
            [550, 380, 30, 100, 15, 8, 8, 6],
        )
        what()
        for waiting in list(self.waiting):
            token, then = waiting
            if token.response is not None:
                self.waiting.remove(waiting)
                self.under_way.append(lambda token=token, then=then: then(token.response))

    def deliver(self) -> None:
        if self.under_way:
            self.under_way.pop(self.random.randrange(len(self.under_way)))()

    def act(self) -> None:
        self.random.choice(self.clients).act()

    def pass_time(self) -> None:
        self.story.pass_ms(self.random.choice([1, 500, 1_500, TIMEOUT_MS + 10_000]))

    def give_id(self) -> None:
        if self.story.allocations:
            self.story.give_id(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if self.happens(0.3) else ErrorCode.NONE)

    def take_over(self) -> None:
        self.story.restart()

    def set_level(self) -> None:
        """Not to 0, where the log has no room for what keeps late markers out."""
        level = self.random.choice([1, 2])
        self.story.config = self.story.shard.config = dataclasses.replace(self.story.config, transaction_version=level)

    def lose(self) -> None:
        partition = self.random.choice(self.partitions)
        partition.forget_all_but_the_log(self.random.randint(0, len(partition.log)))

    def join(self) -> None:
        if len(self.clients) < 6:
            self.clients.append(Client(self, self.random.choice("xy")))

    # ---- markers

    def take_markers(self) -> None:
        taken, self.story.markers = self.story.markers, []
        for markers in taken:
            for partition in self.partitions:
                if partition.place in markers.partitions:
                    self.mark_later(markers, partition)

    def mark_later(self, markers: SendMarkers, partition: Partition) -> None:
        self.under_way.append(lambda: self.mark(markers, partition))

    def mark(self, markers: SendMarkers, partition: Partition) -> None:
        # Below version 2 nothing tells a late marker from one of the next transaction.
        is_safe = markers.transaction_version >= 2
        if is_safe and self.happens(0.2):
            self.mark_later(markers, partition)
        try:
            partition.mark(markers)
        except InvalidProducerEpoch:
            """As good as written."""
        except RequestError:
            return
        if is_safe and self.happens(0.15):
            self.mark_later(markers, partition)
        elif markers.coordinator_epoch == self.story.epoch:
            self.under_way.append(lambda: self.tell_written(markers, partition))

    def tell_written(self, markers: SendMarkers, partition: Partition) -> None:
        if markers.coordinator_epoch == self.story.epoch:
            self.story.written(markers, (partition.place,))

    # ---- the end

    def settle(self) -> None:
        self.story.gives_ids = True
        self.clients.clear()
        # Who asked a coordinator that is none any more is never answered here.
        while self.under_way or any(each.status in UNFINISHED for each in self.transactions()):
            while self.story.allocations:
                self.story.give_id()
            self.take_markers()
            if self.under_way:
                self.under_way.pop(0)()
            else:
                self.story.pass_ms(TIMEOUT_MS)

    def transactions(self) -> list[Transaction]:
        return list(self.story.shard.transactions.values())

    def judge(self) -> None:
        committed = [value for partition in self.partitions for value in partition.committed()]
        seen = set(committed)
        assert len(committed) == len(seen), "seen twice"
        for attempt in self.attempts:
            assert attempt.acknowledged & seen in (set(), attempt.acknowledged), f"torn: {attempt}"
            if attempt.told is True:
                assert set(attempt.values) <= seen, f"told that it is committed: {attempt}"
            if attempt.told is False or not attempt.asks_commit:
                assert not set(attempt.values) & seen, f"aborted: {attempt}"


@dataclasses.dataclass(eq=False)
class Attempt:
    """One transaction, as its producer knows it."""

    values: list[int] = dataclasses.field(default_factory=list)
    acknowledged: set[int] = dataclasses.field(default_factory=set)
    asks_commit: bool = False
    told: bool | None = None
    has_failed: bool = False


class Client:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.act: Callable[[], object] = self.begin
        self.producer: Producer = (-1, -1)
        self.sequences: dict[TopicPartition, int] = {}
        self.sent: dict[TopicPartition, tuple[Partition, int]] = {}
        """Values that are not acknowledged."""
        self.attempt = Attempt()

    def ask(self, make: Callable[[], Token], then: Callable[[Any], object]) -> None:
        """The answer, or None if it is lost; the request may arrive twice, much later."""
        world, goes_on = self.world, self.act

        def arrive(then: Callable[[Any], object] = then) -> None:
            if world.happens(0.1):
                world.under_way.append(lambda: arrive(lambda _: None))
            world.waiting.append((make(), then))

        def answered(response: Any) -> None:
            self.act = goes_on
            then(None if world.happens(0.1) else response)

        self.act = lambda: None
        world.under_way.append(lambda: arrive(answered))

    def rest(self) -> None:
        """Fenced, or lost: it comes back, and others have their time meanwhile."""
        if self.world.happens(0.03):
            self.act = self.begin

    def begin(self) -> None:
        """Start as a new producer, which fences all before; or as the same one, after an error (KIP-360)."""
        producer = (-1, -1) if self.world.happens(0.5) else self.producer

        def then(response: Any) -> None:
            if response is not None and not response.error_code:
                self.go_on(response)
            elif response is not None and response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.act = self.rest

        self.ask(lambda: self.world.story.init_token(self.name, producer=producer), then)

    def go_on(self, response: Any) -> None:
        self.producer = response.producer_id, response.producer_epoch
        self.sequences, self.sent = {}, {}
        self.attempt = Attempt()
        self.world.attempts.append(self.attempt)
        self.act = self.write_or_end

    def write_or_end(self) -> None:
        attempt, partition = self.attempt, self.world.random.choice(self.world.partitions)
        if attempt.has_failed:
            self.end(False)
        elif len(attempt.values) < 4 and partition.place not in self.sent and self.world.happens(0.6):
            self.world.values += 1
            attempt.values.append(self.world.values)
            self.sent[partition.place] = partition, self.world.values
            self.send(partition, self.world.values)
        elif self.sent:
            self.send(*self.world.random.choice(list(self.sent.values())))
        elif attempt.values:
            self.end(self.world.happens(0.75))

    def end(self, is_commit: bool) -> None:
        attempt, producer = self.attempt, self.producer
        attempt.asks_commit = is_commit
        self.act = lambda: self.end(is_commit)

        def then(response: Any) -> None:
            if response is None or response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                if self.world.happens(0.1):
                    self.act = self.begin
            elif response.error_code:
                self.act = self.rest
            else:
                attempt.told = is_commit
                self.go_on(response)

        self.ask(lambda: self.world.story.end_token(producer, commit=is_commit, name=self.name), then)

    def send(self, partition: Partition, value: int) -> None:
        sequence = self.sequences.get(partition.place, 0)
        Sending(self, partition, value, sequence).arrive_later()

    def on_sent(self, sending: Sending, code: ErrorCode) -> None:
        place = sending.partition.place
        if sending.attempt is not self.attempt or self.sent.get(place) != (sending.partition, sending.value):
            return
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            del self.sent[place]
            self.sequences[place] = sending.sequence + 1
            self.attempt.acknowledged.add(sending.value)
        elif code not in TRY_AGAIN:
            self.attempt.has_failed = True
            self.sent.clear()
            if code in FENCED:
                self.act = self.rest


class Sending:
    """A batch on its way: the partition's leader asks the coordinator, and appends it."""

    def __init__(self, client: Client, partition: Partition, value: int, sequence: int) -> None:
        self.client = client
        self.world = client.world
        self.attempt = client.attempt
        self.producer = client.producer
        self.partition = partition
        self.value = value
        self.sequence = sequence

    def arrive_later(self) -> None:
        self.world.under_way.append(self.arrive)

    def arrive(self) -> None:
        if self.world.happens(0.1):
            self.arrive_later()
        self.verify(None, 0)

    def verify(self, verified: VerificationGuard | None, rounds: int) -> None:
        try:
            guard = self.partition.begin(self.producer, self.sequence)
            if guard is ONGOING or guard is verified or rounds > ROUNDS_MAX:
                self.partition.append(self.producer, self.sequence, self.value, guard)
                self.answer(ErrorCode.NONE)
                return
        except StrandlineError as error:
            self.answer(ErrorCode(error_code(error)))
            return

        def then(codes: Any) -> None:
            code = only(codes)
            if code is ErrorCode.NONE:
                self.verify(guard, rounds + 1)
            else:
                self.answer(code)

        token = self.world.story.add_token(self.producer, self.partition.place, name=self.client.name)
        self.world.waiting.append((token, then))

    def answer(self, code: ErrorCode) -> None:
        if not self.world.happens(0.1):
            self.world.under_way.append(lambda: self.client.on_sent(self, code))


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 150))])
def test_whatever_the_network_does_a_transaction_is_seen_whole_or_not_at_all(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    assert len(world.attempts) > 5
    world.judge()
