"""A world for the driver of groups: a clock that a test turns, and partitions in memory that commit when told to."""

from __future__ import annotations

import heapq
import itertools
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from strandline.broker.coordinating.group_driver import GroupDriver
from strandline.broker.coordinating.group_topics import TopicsOfNode
from strandline.codec.answers import response_class
from strandline.codec.columns import columns_of
from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.partitioning import KAFKAS_HASH
from strandline.handlers.support.context import EncodedResponse
from strandline.quorum.image.cluster_image import COORDINATOR_HASH, ClusterImage


@dataclass(order=True)
class Timer:
    due: float
    number: int
    callback: Callable[..., object] = field(compare=False)
    args: tuple[Any, ...] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class TurnedClock:
    """A `Runtime` whose time passes only in `run`."""

    def __init__(self) -> None:
        self.random = random.Random(11)
        self.time_s = 1_000.0
        self.timers_started = 0
        self._queue: list[Timer] = []
        self._numbers = itertools.count()

    def now_ms(self) -> int:
        return round(self.time_s * 1000)

    def monotonic(self) -> float:
        return self.time_s

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        return self.call_later(0, callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(self.time_s + delay_s, next(self._numbers), callback, args)
        self.timers_started += 1
        heapq.heappush(self._queue, timer)
        return timer

    def in_thread(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], object]) -> None:
        raise AssertionError("the driver of groups needs no threads")

    def turn(self) -> None:
        """One turn of the loop: what is due now, and not what that starts."""
        due = []
        while self._queue and self._queue[0].due <= self.time_s:
            due.append(heapq.heappop(self._queue))
        for timer in due:
            if not timer.cancelled:
                timer.callback(*timer.args)

    def run(self, duration_s: float = 0) -> None:
        end = self.time_s + duration_s
        while self._queue and self._queue[0].due <= end:
            self.time_s = max(self.time_s, self._queue[0].due)
            self.turn()
        self.time_s = end

    @property
    def waiting(self) -> list[Timer]:
        return [timer for timer in self._queue if not timer.cancelled]


class MemoryPartition:
    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.commits_at_once = True
        self.error: Exception | None = None
        self.uncommitted: list[Callable[[Exception | None], None]] = []
        self.has_uncommitted = False
        """Whether the log holds what a predecessor may not have committed."""

    def append_internal(self, batch: bytes, on_committed: Callable[[Exception | None], None]) -> None:
        if self.error is not None:
            raise self.error
        self.batches.append(batch)
        if self.commits_at_once:
            on_committed(None)
        else:
            self.uncommitted.append(on_committed)

    def is_committed(self) -> bool:
        return not self.has_uncommitted

    def read_all(self) -> Iterator[bytes]:
        return iter(list(self.batches))

    def commit(self, error: Exception | None = None) -> None:
        waiting, self.uncommitted = self.uncommitted, []
        for on_committed in waiting:
            on_committed(error)

    @property
    def record_counts(self) -> list[int]:
        return [columns.count for batch in self.batches for columns in columns_of(batch)]


class OffsetsInMemory:
    def __init__(self, partition_count: int) -> None:
        self.partitions: list[MemoryPartition | None] = [MemoryPartition() for _ in range(partition_count)]
        self.creations = 0
        self.moved: set[int] = set()
        """Partitions that the image has led elsewhere, which is still to take effect."""
        self.due: set[int] = set()
        """Partitions that the image has led here, which is still to take effect."""

    def partition_count(self) -> int:
        return len(self.partitions)

    def hash_level(self) -> int:
        return KAFKAS_HASH

    def partition(self, index: int) -> MemoryPartition | None:
        return self.partitions[index]

    def is_led(self, index: int) -> bool:
        return index not in self.moved | self.due

    def is_due(self, index: int) -> bool:
        return index in self.due

    def create(self) -> None:
        self.creations += 1


class World:
    """One node as the group handlers see it."""

    authorizer = None
    events = None

    def __init__(self, *, partition_count: int = 3, **config: int) -> None:
        self.clock = TurnedClock()
        self.offsets_topic = OffsetsInMemory(partition_count)
        self.config = GroupConfig(**config)
        self.image = ClusterImage()
        self.image.apply(FeatureLevelRecord(name=COORDINATOR_HASH, feature_level=KAFKAS_HASH))
        self.may_be_replaced = False
        self.errors: list[tuple[int, int]] = []
        self.groups = GroupDriver(self.clock, self.config, self.offsets_topic, TopicsOfNode(lambda: self.image))

    @property
    def runtime(self) -> TurnedClock:
        return self.clock

    def count_error(self, api_key: int, code: int) -> None:
        self.errors.append((api_key, code))

    def make_topic(self, name: str, *, partition_count: int = 2) -> uuid.UUID:
        topic_id = uuid.UUID(int=self.clock.random.getrandbits(128), version=4)
        self.image.apply(TopicRecord(name=name, topic_id=topic_id))
        for index in range(partition_count):
            self.image.apply(PartitionRecord(topic_id=topic_id, partition_id=index, replicas=[1], isr=[1], leader=1))
        return topic_id

    def remove_topic(self, topic_id: uuid.UUID) -> None:
        self.image.apply(RemoveTopicRecord(topic_id=topic_id))

    def partition_of(self, group_id: str) -> MemoryPartition:
        partition = self.offsets_topic.partitions[self.groups.partition_index(group_id)]
        assert partition is not None
        return partition

    def restart(self) -> None:
        """The process ends without a word; the partitions stay."""
        self.clock = TurnedClock()
        self.groups = GroupDriver(self.clock, self.config, self.offsets_topic, TopicsOfNode(lambda: self.image))

    def ask(self, handler: Any, request: Message, version: int) -> Asked:
        """Send a request over the wire format to a handler; the answer comes now or later."""
        asked = Asked(self, version, response_class(type(request)))
        response = handler.handle(asked, decode_exact(type(request), version, encode(request, version)))
        if response is not None:
            asked.reply(response)
        return asked


class Asked:
    """The context of one request, and what became of it."""

    def __init__(self, node: World, api_version: int, response_class: type[Message]) -> None:
        self.node = node
        self.api_version = api_version
        self.response_class = response_class
        self.client_id: str | None = "client"
        self.client_host = "127.0.0.1"
        self.guard = None
        self.replies: list[Any] = []
        self.on_reply: Callable[[], object] | None = None

    def reply(self, response: Message | EncodedResponse) -> None:
        body = response.body if isinstance(response, EncodedResponse) else encode(response, self.api_version)
        self.replies.append(decode_exact(self.response_class, self.api_version, body))
        if self.on_reply is not None:
            self.on_reply()

    @property
    def is_answered(self) -> bool:
        return bool(self.replies)

    @property
    def response(self) -> Any:
        assert len(self.replies) == 1, f"answered {len(self.replies)} times"
        return self.replies[0]
