"""Asks other brokers about partitions of which this node has no replica, in the words of any Kafka client.

In each round a broker is asked with RecordCounts where its logs begin and end and what is unread in between, whatever
the number of partitions; one that does not know that question, twice with ListOffsets for where they end and begin. And
it is asked for the time of the record at a position with a Fetch of one batch, for a few positions at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from strandline.broker.environment import Environment
from strandline.broker.network.broker_channels import BrokerChannels
from strandline.broker.network.channel import Channel
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.list_offsets_response import ListOffsetsResponse
from strandline.codec.messages.record_counts_request import PartitionPositions, RecordCountsRequest, TopicPositions
from strandline.codec.messages.record_counts_response import RecordCountsResponse
from strandline.codec.record_batch import HEADER, HEADER_SIZE, BatchHeader
from strandline.partition.counting import Counted
from strandline.partition.position_lookup import batch_time_ms

Place = tuple[str, int]
"""Topic and partition."""
Range = tuple[int, int]
"""Log start offset and high watermark."""
Asked = dict[Place, list[int]]
"""The positions that are asked about, by partition."""
Told = dict[Place, tuple[Range, dict[int, Counted]]]
"""By partition where it begins and ends, and what is unread from positions on, where that is known."""

PLACES_PER_REQUEST_MAX: Final = 2_000
TIMEOUT_S: Final = 5.0
LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER: Final = -1
"""The replica id of a client that is not a replica."""
LIST_OFFSETS_VERSION: Final = 7
FETCH_VERSION: Final = 12
"""The last version that names topics."""


class LagLeaders:
    """A channel for each broker that had to be asked."""

    def __init__(self, environment: Environment) -> None:
        self._channels = BrokerChannels(environment, "lag")

    def ask(self, broker_id: int, asked: Asked, on_told: Callable[[Told], object]) -> None:
        """Call `on_told` with what the broker knows; a part of the places at a time, and not at all if it is away."""
        channel = self._channel(broker_id)
        if channel is None:
            return
        places = list(asked)
        for first in range(0, len(places), PLACES_PER_REQUEST_MAX):
            some = places[first : first + PLACES_PER_REQUEST_MAX]
            _ask_counts(channel, {place: asked[place] for place in some}, on_told)

    def ask_time(self, broker_id: int, place: Place, offset: int, on_time: Callable[[int | None], object]) -> None:
        """Call `on_time` with the time of the batch at `offset`, None if the broker did not tell."""
        channel = self._channel(broker_id)
        if channel is None:
            on_time(None)
            return
        topic, index = place
        asked = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1)
        # The first batch is given whole however few bytes are asked for.
        request = FetchRequest(max_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])

        def on_answer(response: FetchResponse | None, error: BaseException | None) -> None:
            on_time(None if response is None else _first_batch_time(response))

        channel.ask(request, FETCH_VERSION, on_answer, timeout_s=TIMEOUT_S)

    def _channel(self, broker_id: int) -> Channel | None:
        return self._channels.find(broker_id, broker_id)

    def keep(self, broker_ids: Iterable[int]) -> None:
        """Let go of channels to all other brokers."""
        self._channels.keep(broker_ids)

    def close(self) -> None:
        self._channels.close()


def _ask_counts(channel: Channel, asked: Asked, on_told: Callable[[Told], object]) -> None:
    topics: dict[str, TopicPositions] = {}
    for (name, index), offsets in asked.items():
        positions = PartitionPositions(partition=index, offsets=list(dict.fromkeys(offsets)))
        topics.setdefault(name, TopicPositions(name=name)).partitions.append(positions)

    def on_answer(response: RecordCountsResponse | None, error: BaseException | None) -> None:
        if response is None:
            # It is of an older version perhaps: records are not counted then.
            _AskRanges(channel, list(asked), lambda ranges: on_told({place: (ranges[place], {}) for place in ranges}))
            return
        told: Told = {}
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == 0:
                    known = {each.offset: Counted(each.records, each.undecided) for each in partition.counts}
                    counts = {offset: counted for offset, counted in known.items() if counted.records >= 0}
                    told[topic.name, partition.partition] = (
                        (partition.log_start_offset, partition.high_watermark),
                        counts,
                    )
        on_told({place: told[place] for place in asked if place in told})

    # It answers with what it has at hand, and goes on counting for the next look.
    channel.ask(RecordCountsRequest(topics=list(topics.values())), 0, on_answer, timeout_s=TIMEOUT_S)


class _AskRanges:
    """Both ends of some logs of one broker."""

    def __init__(
        self, channel: Channel, places: list[Place], on_ranges: Callable[[dict[Place, Range]], object]
    ) -> None:
        self._on_ranges = on_ranges
        self._ends: dict[Place, int] = {}
        self._starts: dict[Place, int] = {}
        self._open = 2
        # Starts first: a log that is trimmed in between must not seem to begin behind its end.
        for timestamp, found in ((EARLIEST, self._starts), (LATEST, self._ends)):
            self._ask(channel, places, timestamp, found)

    def _ask(self, channel: Channel, places: list[Place], timestamp: int, found: dict[Place, int]) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for name, index in places:
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))

        def on_answer(response: ListOffsetsResponse | None, error: BaseException | None) -> None:
            for topic in () if response is None else response.topics:
                for partition in topic.partitions:
                    if partition.error_code == 0 and partition.offset >= 0:
                        found[topic.name, partition.partition_index] = partition.offset
            self._open -= 1
            if self._open == 0:
                both = self._ends.keys() & self._starts.keys()
                self._on_ranges({place: (self._starts[place], self._ends[place]) for place in places if place in both})

        request = ListOffsetsRequest(replica_id=CONSUMER, topics=list(topics.values()))
        channel.ask(request, LIST_OFFSETS_VERSION, on_answer, timeout_s=TIMEOUT_S)


def _first_batch_time(response: FetchResponse) -> int | None:
    for topic in response.responses:
        for partition in topic.partitions:
            content = partition.records
            if partition.error_code == 0 and content is not None and len(content) >= HEADER_SIZE:
                return batch_time_ms(BatchHeader._make(HEADER.unpack_from(content)))
    return None
