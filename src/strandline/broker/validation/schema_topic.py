"""The reader of the topic `_schemas`: from its leader, from the beginning on, only what is committed.

It follows the topic with one long poll after the other. A broker that sees an id for the first time must not reject it
before it knows all that was registered until then: `catch_up` asks the leader where the topic ends now, and calls back
when everything below is read. Many that wait share one question.

All goes through Fetch and ListOffsets, also if this broker leads the topic: one way, with the leader's own rules for
what is committed and what a new leader does not know yet.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID

from strandline.broker.environment import Environment
from strandline.broker.network.broker_channels import BrokerChannels
from strandline.codec.columns import columns_of
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import PartitionData
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.errors import ErrorCode, PeerError, named
from strandline.ids import ZERO_UUID
from strandline.runtime.runtime import TimerHandle
from strandline.runtime.time_slicing import gradually
from strandline.schemas.records import SCHEMAS_TOPIC, SchemaRecord

log = logging.getLogger("strandline.node")

CATCH_UP_S_MAX: Final = 2.0
"""Seconds that a Produce waits for the ids that were registered before it."""
POLL_MS: Final = 5_000
"""How long the leader holds a Fetch when nothing is new."""
ANSWER_S: Final = 5.0
FETCH_BYTES_MAX: Final = 1_048_576
RETRY_S: Final = 0.02
RETRY_S_MAX: Final = 1.0
WARN_S: Final = 60.0
FETCH_VERSION: Final = 13
"""The first one that names topics by their ids."""
LIST_OFFSETS_VERSION: Final = 7
READ_COMMITTED: Final = 1
LATEST: Final = -1
EARLIEST: Final = -2

OnCaughtUp = Callable[[bool], object]
"""Takes whether everything that was registered before is known."""


@dataclass(eq=False, slots=True)
class _Waiter:
    """A caller that waits until the topic is read."""

    deadline: float
    on_caught_up: OnCaughtUp
    target: int = -1
    """The offset to read up to."""


class SchemaTopic:
    """The topic `_schemas` as far as this broker has read it."""

    def __init__(
        self,
        environment: Environment,
        on_record: Callable[[SchemaRecord], object],
        on_reset: Callable[[], object],
        is_needed: Callable[[], bool],
    ) -> None:
        """`on_reset` forgets all records: they come again, or the topic is another one."""
        self._environment = environment
        self._runtime = environment.runtime
        self._on_record = on_record
        self._on_reset = on_reset
        self._is_needed = is_needed
        self._topic_id = ZERO_UUID
        self._position = 0
        self._reading = 0
        """Counts beginnings. What belongs to an earlier one is dropped when it comes back."""
        self._is_reading = False
        self._failures = 0
        self._warned_at = -WARN_S
        self._retrying: TimerHandle | None = None
        self._channels = BrokerChannels(environment, "schemas")
        """A Fetch waits at the leader, so what is asked besides has a connection of its own."""
        self._to_ask: deque[_Waiter] = deque()
        self._asked: deque[_Waiter] = deque()
        self._behind: deque[_Waiter] = deque()
        """Waiters pass from one to the next: not asked for yet, asked for, and known how far."""
        self._asking: TimerHandle | None = None
        self._question = 0
        self._is_asked = False
        """Whether an answer to the last question is on its way. A later waiter needs a question of its own."""
        self._expiring: TimerHandle | None = None
        self._is_closed = False

    @property
    def exists(self) -> bool:
        """Return whether this broker knows of the topic."""
        return self._environment.image().topic_by_name(SCHEMAS_TOPIC) is not None

    def start(self) -> None:
        """Read from the beginning on, in a later turn."""
        if not self._is_reading and not self._is_closed:
            self._is_reading = True
            self._begin_again(ZERO_UUID, 0)
            self._runtime.call_soon(self._fetch, self._reading)

    def restart(self) -> None:
        """Forget everything and read again."""
        self._stop()
        self.start()

    def close(self) -> None:
        self._is_closed = True
        self._stop()
        for waiting in (self._behind, self._asked, self._to_ask):
            while waiting:
                waiting.popleft().on_caught_up(False)
        for timer in (self._asking, self._expiring):
            if timer is not None:
                timer.cancel()

    def _stop(self) -> None:
        self._is_reading = False
        self._reading += 1
        if self._retrying is not None:
            self._retrying.cancel()
        self._channels.keep(())

    def _begin_again(self, topic_id: UUID, position: int) -> None:
        self._topic_id, self._position = topic_id, position
        self._reading += 1
        self._on_reset()
        # Offsets of before mean nothing any more.
        self._to_ask.extendleft(reversed([*self._behind, *self._asked]))
        self._behind.clear()
        self._asked.clear()
        self._is_asked = False
        if self._to_ask:
            self._ask_soon(0.0)

    # Reading

    def _fetch(self, reading: int) -> None:
        self._retrying = None
        if reading != self._reading:
            return
        if not self._is_needed():
            self._stop()
            self._on_reset()
            return
        topic = self._environment.image().topic_by_name(SCHEMAS_TOPIC)
        if topic is None:
            if self._topic_id != ZERO_UUID:
                self._begin_again(ZERO_UUID, 0)
            self._fetch_later()
            return
        if topic.id != self._topic_id:
            self._begin_again(topic.id, 0)
        channel = self._channels.find("fetch", topic.partitions[0].leader)
        if channel is None:
            self._fetch_later()
            return
        request = FetchRequest(
            max_wait_ms=POLL_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=READ_COMMITTED,
            topics=[
                FetchTopic(
                    topic_id=topic.id,
                    partitions=[FetchPartition(fetch_offset=self._position, partition_max_bytes=FETCH_BYTES_MAX)],
                )
            ],
        )
        on_answer = partial(self._on_fetched, self._reading, self._runtime.monotonic())
        channel.ask(request, FETCH_VERSION, on_answer, timeout_s=POLL_MS / 1000 + ANSWER_S)

    def _fetch_later(self) -> None:
        """Try again: the topic may not exist yet, its leader may be gone or may not know that it leads."""
        delay_s = min(RETRY_S * 2 ** min(self._failures, 10), RETRY_S_MAX)
        if self._to_ask or self._asked or self._behind:
            delay_s = RETRY_S
        self._failures += 1
        self._retrying = self._runtime.call_later(delay_s, self._fetch, self._reading)

    def _on_fetched(self, reading: int, asked_at: float, response: Any, error: BaseException | None) -> None:
        if reading != self._reading:
            return
        data = _only_partition(response)
        code = ErrorCode.NETWORK_EXCEPTION if response is None else named(response.error_code)
        if data is not None and code is ErrorCode.NONE:
            code = named(data.error_code)
        if data is None or code is not ErrorCode.NONE:
            if code is ErrorCode.OFFSET_OUT_OF_RANGE and self._list_offsets(EARLIEST, self._on_start, reading):
                return
            self._warn(code.name if error is None else str(error))
            self._fetch_later()
            return
        has_waited = self._runtime.monotonic() - asked_at >= POLL_MS / 1000
        gradually(self._runtime, self._take(reading, data), partial(self._on_taken, reading, data, has_waited))

    def _on_start(self, reading: int, response: Any, error: BaseException | None) -> None:
        """Begin again: records were deleted, or an unclean election lost some, and what is left counts."""
        if reading == self._reading:
            start = _only_offset(response)
            if start is not None:
                self._begin_again(self._topic_id, start)
            self._fetch_later()

    def _take(self, reading: int, data: PartitionData) -> Iterator[int]:
        """Hand over the committed records of an answer; yield the position after each batch and record."""
        begin = sorted(
            ((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()), reverse=True
        )
        aborted: set[int] = set()
        try:
            for batch in columns_of(data.records or b""):
                while begin and begin[-1][0] <= batch.last_offset:
                    aborted.add(begin.pop()[1])
                if batch.is_control:
                    # A marker ends the one transaction that its producer can have open, whichever way it went.
                    aborted.discard(batch.producer_id)
                elif not (batch.is_transactional and batch.producer_id in aborted):
                    for record in batch.records():
                        if reading != self._reading:
                            return
                        if record.offset >= self._position:
                            self._on_record(SchemaRecord(record.key or b"", record.value))
                        yield 0
                yield batch.last_offset + 1
        except PeerError as error:
            self._warn(str(error))

    def _on_taken(self, reading: int, data: PartitionData, has_waited: bool, positions: list[int]) -> None:
        if reading != self._reading:
            return
        position = max(positions, default=0)
        if position <= self._position and data.records:
            # A batch that cannot be read.
            self._fetch_later()
            return
        if not data.records and has_waited:
            # Compaction may leave nothing between the last batch and the end.
            position = data.last_stable_offset
        self._failures = 0
        self._position = max(self._position, position)
        self._complete()
        self._fetch(reading)

    def _warn(self, reason: str) -> None:
        now = self._runtime.monotonic()
        if self._failures > 5 and now - self._warned_at >= WARN_S:
            self._warned_at = now
            log.warning("%s cannot be read, so new schemas are not known to this broker: %s", SCHEMAS_TOPIC, reason)

    # Catching up

    def catch_up(self, on_caught_up: OnCaughtUp) -> None:
        """Call back in a later turn: with True when all that is registered now is known, or with False in time.

        Callers are called in the order in which they came.
        """
        if self._is_closed:
            self._runtime.call_soon(on_caught_up, False)
            return
        self._to_ask.append(_Waiter(self._runtime.monotonic() + CATCH_UP_S_MAX, on_caught_up))
        if self._expiring is None:
            self._expiring = self._runtime.call_later(CATCH_UP_S_MAX, self._expire)
        if self._retrying is not None and self._is_reading:
            self._retrying.cancel()
            self._retrying = self._runtime.call_later(0, self._fetch, self._reading)
        self._ask_soon(0.0)

    def _ask_soon(self, delay_s: float) -> None:
        if self._asking is None and not self._is_asked:
            self._asking = self._runtime.call_later(delay_s, self._ask)

    def _ask(self) -> None:
        self._asking = None
        if not self._to_ask or self._is_asked or self._is_closed:
            return
        if not self._list_offsets(LATEST, self._on_end, self._question + 1):
            self._ask_soon(RETRY_S)
            return
        self._asked, self._to_ask = self._to_ask, deque()
        self._question += 1
        self._is_asked = True

    def _list_offsets(self, timestamp: int, on_answer: Callable[..., object], token: int) -> bool:
        """Ask the leader for an offset; return whether that was possible. `on_answer` gets `token` first."""
        topic = self._environment.image().topic_by_name(SCHEMAS_TOPIC)
        channel = None if topic is None else self._channels.find("offsets", topic.partitions[0].leader)
        if topic is None or channel is None or topic.id != self._topic_id:
            # The reader notices a new topic when it asks the next time.
            return False
        asked = ListOffsetsTopic(name=SCHEMAS_TOPIC, partitions=[ListOffsetsPartition(timestamp=timestamp)])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED, topics=[asked])
        channel.ask(request, LIST_OFFSETS_VERSION, partial(on_answer, token), timeout_s=CATCH_UP_S_MAX)
        return True

    def _on_end(self, question: int, response: Any, error: BaseException | None) -> None:
        if question != self._question or not self._is_asked:
            # Those who waited for it were put back, to be asked for again.
            return
        self._is_asked = False
        end = _only_offset(response)
        if end is None:
            self._to_ask.extendleft(reversed(self._asked))
            self._asked.clear()
            self._ask_soon(RETRY_S)
            return
        while self._asked:
            waiter = self._asked.popleft()
            waiter.target = end
            self._behind.append(waiter)
        self._complete()
        self._ask_soon(0.0)

    def _complete(self) -> None:
        while self._behind and self._behind[0].target <= self._position:
            self._behind.popleft().on_caught_up(True)

    def _expire(self) -> None:
        """Call back those that waited for too long. If there is no topic there is no schema, and that is known."""
        self._expiring = None
        now = self._runtime.monotonic()
        for waiting in (self._behind, self._asked, self._to_ask):
            while waiting and waiting[0].deadline <= now:
                waiting.popleft().on_caught_up(not self.exists)
            if waiting:
                self._expiring = self._runtime.call_later(waiting[0].deadline - now, self._expire)
                return


def _only_partition(response: Any) -> PartitionData | None:
    """Return the partition in an answer, or None if it has none."""
    if response is None or not response.responses or not response.responses[0].partitions:
        return None
    found: PartitionData = response.responses[0].partitions[0]
    return found


def _only_offset(response: Any) -> int | None:
    """Return the offset in an answer, or None if it has none."""
    if response is None or not response.topics or not response.topics[0].partitions:
        return None
    found = response.topics[0].partitions[0]
    return None if found.error_code else int(found.offset)
