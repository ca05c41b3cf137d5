"""A producer in the simulation: idempotent with retries and five batches in flight, or plain and without retries.

Every batch is one operation of the history: Kafka writes it whole or not at all. When anything in flight to a partition
fails, the producer waits for the rest, asks who leads now, and sends what is not acknowledged again, in order and with
the sequence numbers it had. What it gives up after `delivery_timeout_s` has an unknown outcome; an idempotent producer
then goes on as another process with another id, as an application would after a fatal error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.simulator.clients.client import BACKOFF_S, METADATA_AGE_S, History, SimClient
from tests.simulator.world.flips import flipped
from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost

from strandline.codec.columns import Record, encode_batch
from strandline.codec.messages.init_producer_id_request import InitProducerIdRequest
from strandline.codec.messages.init_producer_id_response import InitProducerIdResponse
from strandline.codec.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.codec.messages.produce_response import ProduceResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition
from strandline.testing.history import GivenProducerId, Op, Outcome, Send

PRODUCE_VERSION: Final = 12
PRODUCE_BY_ID_VERSION: Final = 13
IN_FLIGHT_MAX: Final = 5
WAITING_MAX: Final = 20
REST_SHARE: Final = 0.1
PRODUCE_TIMEOUT_S: Final = 4.0
BROKER_TIMEOUT_MS: Final = 3_000

WRITTEN: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
CERTAINLY_NOT_WRITTEN: Final = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE)
"""Answers to a first attempt after which the batch is in no log. NOT_LEADER_OR_FOLLOWER is none of them: a leader that
was replaced while the batch waited says so too."""
REFUSED_FOR_GOOD: Final = (ErrorCode.INVALID_TIMESTAMP,)
"""Answers after which no client tries again: the clock of a leader was hours behind."""
STATE_IS_LOST: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
)


@dataclass(slots=True)
class Batch:
    values: list[str]
    sequence: int
    invoked_ns: int
    expires_at: float
    attempts: int = 0
    encoded: bytes = b""


@dataclass(slots=True)
class Lane:
    """What is on its way to one partition."""

    partition: TopicPartition
    unacknowledged: list[Batch] = field(default_factory=list)
    """In the order of their sequences; the first `sent` of them are in flight."""
    sent: int = 0
    outstanding: int = 0
    """Requests whose answers are still to come."""
    has_failed: bool = False
    is_flipped: bool = False
    """Whether a bit of a batch was flipped on its way: a leader that forgot the refusal may miss that batch."""
    sent_to: int = -1
    """The broker that is to answer them."""
    next_sequence: int = 0


class SimProducer(SimClient):
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        partitions: Sequence[TopicPartition],
        *,
        acks: int = -1,
        idempotent: bool = True,
        records_per_batch: int = 20,
        pause_s: float = 0.2,
        delivery_timeout_s: float = 60.0,
        loses_are_legal: bool = False,
    ) -> None:
        super().__init__(network, host, history, bootstrap, sorted({each.topic for each in partitions}))
        self.acks = acks
        self.idempotent = idempotent
        self.records_per_batch = records_per_batch
        self.pause_s = pause_s
        self.delivery_timeout_s = delivery_timeout_s
        self.loses_are_legal = loses_are_legal
        """Topics with unclean elections may forget a producer: its surprises are none."""
        self.record_of: Callable[[str, int], Record] = plain_record
        self.burst = 1
        """Batches that are made at once."""
        self.flip_share = 0.0
        """How many of the batches lose a bit on the way to their leader."""
        self.rest_s = 0.0
        """How long the producer is away, now and then, before it goes on with the id that it had; 0 for never."""
        self._rests_until = 0.0
        self.process = history.new_process()
        self.lanes = [Lane(partition) for partition in partitions]
        self.producer_id = -1
        self.producer_epoch = -1
        self._sent = 0
        self._is_asking_for_id = False
        self._generation = 0
        """Grows with each new producer id: answers to an older one are void."""
        self.on_topology = self._pump_all
        self.runtime.call_soon(self.refresh)
        self.runtime.call_later(self.random.random() * pause_s, self._work)
        self.runtime.call_later(METADATA_AGE_S, self._refresh_by_time)

    @property
    def is_idle(self) -> bool:
        return not any(lane.unacknowledged for lane in self.lanes)

    # Making batches

    def _work(self) -> None:
        if self.is_stopped:
            return
        self.runtime.call_later(self.pause_s * self.burst * (0.2 + 1.6 * self.random.random()), self._work)
        if self._rests():
            return
        lane = self.random.choice(self.lanes)
        if (self.idempotent and self.producer_id < 0) or not self.known:
            self._ask_for_id()
            return
        for _ in range(self.burst):
            if len(lane.unacknowledged) < WAITING_MAX:
                self.send(lane)
        self._expire()

    def _rests(self) -> bool:
        """Return whether the producer is away; it leaves only when nothing of it is open."""
        now = self.runtime.monotonic()
        if self.rest_s and self.is_idle and now > self._rests_until and self.random.random() < REST_SHARE:
            self._rests_until = now + self.rest_s
        return now < self._rests_until

    def send(self, lane: Lane, count: int | None = None) -> Batch:
        """Make a batch of new values and send it as soon as the lane allows."""
        count = count or self.random.randint(1, 2 * self.records_per_batch)
        values = [f"{self.process}:{number}" for number in range(self._sent, self._sent + count)]
        self._sent += count
        batch = Batch(
            values,
            lane.next_sequence,
            self.history.now_ns(),
            self.runtime.monotonic() + self.delivery_timeout_s,
        )
        lane.next_sequence += count
        lane.unacknowledged.append(batch)
        self._pump(lane)
        return batch

    def _refresh_by_time(self) -> None:
        if not self.is_stopped:
            self.runtime.call_later(METADATA_AGE_S, self._refresh_by_time)
            self.refresh()

    # A producer id

    def _ask_for_id(self) -> None:
        if self.idempotent and self.producer_id < 0 and not self._is_asking_for_id and self.known:
            self._is_asking_for_id = True
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            self.ask_any(request, 4, InitProducerIdResponse, self._on_id)

    def _on_id(self, answer: InitProducerIdResponse | None) -> None:
        self._is_asking_for_id = False
        if answer is None or answer.error_code:
            self.runtime.call_later(BACKOFF_S * (0.5 + self.random.random()), self._ask_for_id)
            return
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        now_ns = self.history.now_ns()
        given = GivenProducerId(self.producer_id, self.producer_epoch)
        self.history.ops.append(Op(self.process, "ok", "init_producer_id", (given,), now_ns, now_ns))
        self._pump_all()

    # Sending

    def _pump_all(self) -> None:
        for lane in self.lanes:
            self._pump(lane)

    def _pump(self, lane: Lane) -> None:
        if lane.has_failed or (self.idempotent and self.producer_id < 0):
            return
        while lane.sent < len(lane.unacknowledged) and lane.outstanding < IN_FLIGHT_MAX:
            known = self.leader_of(lane.partition)
            wire = None if known is None else self.wire(known.leader, "produce")
            if known is None or wire is None:
                self.refresh_later()
                return
            if lane.outstanding and lane.sent_to != known.leader:
                # A new leader that knows nothing of us would take a later batch for our first.
                return
            lane.sent_to = known.leader
            batch = lane.unacknowledged[lane.sent]
            lane.sent += 1
            lane.outstanding += 1
            batch.attempts += 1
            version = PRODUCE_BY_ID_VERSION if lane.partition.partition % 2 else PRODUCE_VERSION
            topic = TopicProduceData(
                name="" if version >= PRODUCE_BY_ID_VERSION else lane.partition.topic,
                partition_data=[PartitionProduceData(lane.partition.partition, self._as_sent(lane, batch))],
            )
            if version >= PRODUCE_BY_ID_VERSION:
                topic.topic_id = known.topic_id
            request = ProduceRequest(
                transactional_id=None, acks=self.acks, timeout_ms=BROKER_TIMEOUT_MS, topic_data=[topic]
            )
            generation = self._generation

            def on_answer(answer: ProduceResponse | None, batch: Batch = batch, generation: int = generation) -> None:
                if generation == self._generation:
                    self._on_produced(lane, batch, answer)

            wire.ask(request, version, ProduceResponse, on_answer, timeout_s=PRODUCE_TIMEOUT_S)

    def _as_sent(self, lane: Lane, batch: Batch) -> bytes:
        """Return the bytes of a batch as they reach the leader."""
        encoded = self._encode(batch)
        if self.flip_share and self.random.random() < self.flip_share:
            lane.is_flipped = True
            return flipped(encoded, self.random)
        return encoded

    def _encode(self, batch: Batch) -> bytes:
        if not batch.encoded:
            batch.encoded = self._encode_anew(batch)
        return batch.encoded

    def _encode_anew(self, batch: Batch) -> bytes:
        now_ms = self.runtime.now_ms()
        records = [self.record_of(value, now_ms) for value in batch.values]
        if not self.idempotent:
            return encode_batch(records)
        return encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=batch.sequence,
        )

    def _on_produced(self, lane: Lane, batch: Batch, answer: ProduceResponse | None) -> None:
        lane.outstanding -= 1
        told = None if answer is None else answer.responses[0].partition_responses[0]
        if told is not None and told.error_code in WRITTEN:
            self._acknowledge(lane, batch, told.base_offset if told.error_code == ErrorCode.NONE else -1)
        elif told is not None and told.error_code in STATE_IS_LOST and lane.unacknowledged[0] is batch:
            self._on_state_lost(lane, batch, told.error_code)
            return
        elif told is not None and told.error_code in REFUSED_FOR_GOOD and self.idempotent:
            self.start_over(ErrorCode(told.error_code).name)
            return
        elif not self.idempotent:
            is_certain = told is not None and told.error_code in CERTAINLY_NOT_WRITTEN
            lane.unacknowledged.remove(batch)
            lane.sent -= 1
            self._record(lane, batch, "fail" if is_certain else "info", None, _name(told))
            self.refresh_later()
        else:
            lane.has_failed = True
        if not lane.has_failed:
            self._pump(lane)
        elif lane.outstanding == 0:
            self.runtime.call_later(BACKOFF_S * (0.5 + self.random.random()), self._retry, lane, self._generation)
            self.refresh()

    def _retry(self, lane: Lane, generation: int) -> None:
        if generation == self._generation:
            lane.has_failed = False
            lane.sent = 0
            self._pump(lane)

    def _acknowledge(self, lane: Lane, batch: Batch, base_offset: int) -> None:
        lane.unacknowledged.remove(batch)
        lane.sent -= 1
        self.history.acknowledged += len(batch.values)
        self._record(lane, batch, "ok", base_offset if base_offset >= 0 else None, "")

    def _record(self, lane: Lane, batch: Batch, outcome: Outcome, base_offset: int | None, error: str) -> None:
        name = str(lane.partition)
        sends = tuple(
            Send(name, value, None if base_offset is None else base_offset + at)
            for at, value in enumerate(batch.values)
        )
        now_ns = self.history.now_ns()
        self.history.ops.append(Op(self.process, outcome, "send", sends, batch.invoked_ns, now_ns, error=error))

    # Giving up

    def _expire(self) -> None:
        now = self.runtime.monotonic()
        if any(lane.unacknowledged and lane.unacknowledged[0].expires_at < now for lane in self.lanes):
            self.start_over("delivery timeout")

    def _on_state_lost(self, lane: Lane, batch: Batch, code: int) -> None:
        """The first batch that is not acknowledged does not follow what the leader has: it lost some, or who we are."""
        if not self.loses_are_legal and not lane.is_flipped and self.leads(lane.partition, lane.sent_to):
            self.history.surprises.append(
                f"producer {self.process} ({self.producer_id}) at sequence {batch.sequence} of {lane.partition}: "
                f"{ErrorCode(code).name}"
            )
        self.start_over(ErrorCode(code).name)

    def start_over(self, reason: str) -> None:
        """What is open has an unknown outcome; go on as another producer."""
        for lane in self.lanes:
            for batch in lane.unacknowledged:
                outcome: Outcome = "info" if batch.attempts else "fail"
                self._record(lane, batch, outcome, None, reason)
        self._generation += 1
        self.process = self.history.new_process()
        self._sent = 0
        self.producer_id = self.producer_epoch = -1
        self.lanes = [Lane(lane.partition) for lane in self.lanes]
        self._ask_for_id()


def plain_record(value: str, now_ms: int) -> Record:
    return Record(timestamp_ms=now_ms, value=value.encode())


def old_record(value: str, now_ms: int, *, age_ms: int) -> Record:
    """Return a record that is said to be from long ago."""
    return plain_record(value, now_ms - age_ms)


def _name(told: object) -> str:
    code = getattr(told, "error_code", None)
    return "no answer" if code is None else ErrorCode(code).name
