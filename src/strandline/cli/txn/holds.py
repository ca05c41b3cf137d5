"""Reads which partitions hold back committed records, and finds the transactions behind that.

A leader knows the producer ids that have a transaction open and where each began; their coordinators know the names.
Who asks the leader first, then the coordinators, and then the leader again, takes no transaction for hanging that
ended in between: a coordinator forgets one only when every partition has its marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.conversation import Conversation, error_name
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed, topic_not_found
from strandline.cli.common.partition_places import BrokerAddress, leaders_of
from strandline.cli.common.record_times import RecordTimes
from strandline.cli.group.state import Place
from strandline.cli.topic.topics import look_up_offsets
from strandline.cli.txn.reading import TransactionsFound, read_transactions
from strandline.cli.txn.state import Hold, Holder, HoldVerdict, OpenProducer, judged
from strandline.codec.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from strandline.codec.messages.describe_producers_response import DescribeProducersResponse

_PLACES_PER_LOOK = 10_000
OpenByPlace = dict[Place, list[OpenProducer]]
Tell = Callable[[str], object]


class PartitionsOfCluster:
    """Which partitions there are, and who leads them, as one look at the metadata shows it."""

    def __init__(self, cluster: Cluster) -> None:
        self.leaders: dict[Place, BrokerAddress | None] = leaders_of(cluster)
        """None where there is no leader."""
        self.topics: frozenset[str] = frozenset(name for name, _ in self.leaders)

    def named(self, text: str) -> list[Place]:
        """`orders` is all its partitions; `orders-3`, where no topic is called that, is the fourth one."""
        if text in self.topics:
            return sorted(place for place in self.leaders if place[0] == text)
        topic, _, partition = text.rpartition("-")
        if topic not in self.topics or not partition.isdigit():
            raise topic_not_found(text, self.topics)
        return [self.one(text)]

    def one(self, text: str) -> Place:
        topic, _, partition = text.rpartition("-")
        if not topic or not partition.isdigit():
            raise UsageFailed(f"{text!r} is no partition", hint="say it as TOPIC-PARTITION: orders-0")
        if topic not in self.topics:
            raise topic_not_found(topic, self.topics)
        place = topic, int(partition)
        if place not in self.leaders:
            raise NotFound(f"topic {topic!r} has no partition {partition}")
        return place


def read_holds(
    cluster: Cluster,
    choose: Callable[[PartitionsOfCluster], Sequence[Place]],
    *,
    with_times: bool = False,
    held_only: bool = False,
    tell: Tell = lambda words: None,
) -> list[Hold]:
    """The partitions that `choose` picks, each with what it holds back and why.

    With `held_only` those that hold nothing back are left out, which keeps a look at 100,000 partitions small.
    """
    admin = cluster.admin()
    there = PartitionsOfCluster(cluster)
    places = list(choose(there))
    holds: dict[Place, Hold] = {}
    for begin in range(0, len(places), _PLACES_PER_LOOK):
        for hold in _looked(cluster, admin, there, places[begin : begin + _PLACES_PER_LOOK]):
            if hold.held_back or not held_only:
                holds[hold.place] = hold
    held = [place for place, hold in holds.items() if hold.held_back]
    for place, holders in read_holders(cluster, there, held, tell=tell).items():
        holds[place] = replace(holds[place], holders=tuple(holders))
    return _with_times(cluster, holds.values()) if with_times else list(holds.values())


def _looked(cluster: Cluster, admin: Any, there: PartitionsOfCluster, places: Sequence[Place]) -> Iterator[Hold]:
    spec_of, isolation = admin_api().OffsetSpec, kafka_api().IsolationLevel
    # High watermarks first: then whatever is below the one and above the other was held back when we looked.
    led = [place for place in places if there.leaders.get(place) is not None]
    look_up = partial(look_up_offsets, cluster, admin, led, spec_of.latest(), leaders=there.leaders)
    ends = look_up(isolation_level=isolation.READ_UNCOMMITTED)
    stable = look_up(isolation_level=isolation.READ_COMMITTED)
    for place in places:
        leader = there.leaders.get(place)
        yield Hold(*place, None if leader is None else leader.id, ends.get(place), stable.get(place))


def read_holders(
    cluster: Cluster, there: PartitionsOfCluster, places: Sequence[Place], *, tell: Tell = lambda words: None
) -> dict[Place, list[Holder]]:
    """The transactions that are open on each of the partitions, the earliest first."""
    opened = read_open_producers(cluster, there, places)
    producer_ids = {producer.producer_id for each in opened.values() for producer in each}
    if not producer_ids:
        return {}
    found = read_transactions(cluster, producer_ids=producer_ids, tell=tell)
    holders = {place: _judged_all(place, producers, found) for place, producers in opened.items()}
    doubtful = [place for place, each in holders.items() if any(_is_doubtful(holder) for holder in each)]
    still = read_open_producers(cluster, there, doubtful)
    return {
        place: [
            holder for holder in each if not _is_doubtful(holder) or _is_among(holder.producer, still.get(place, ()))
        ]
        for place, each in holders.items()
    }


def read_open_producers(cluster: Cluster, there: PartitionsOfCluster, places: Sequence[Place]) -> OpenByPlace:
    """Asked of the leader of each partition; one that has none is left out."""
    led_by: dict[BrokerAddress, dict[str, list[int]]] = {}
    for topic, partition in places:
        leader = there.leaders.get((topic, partition))
        if leader is not None:
            led_by.setdefault(leader, {}).setdefault(topic, []).append(partition)
    opened: OpenByPlace = {}
    for broker, topics in led_by.items():
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=partitions) for name, partitions in topics.items()]
        )
        with Conversation(broker.host, broker.port, cluster.timeout_s, cluster.security) as conversation:
            answer = conversation.ask(request, DescribeProducersResponse)
        if answer is None:
            raise CommandFailed("this cluster does not offer DescribeProducers, so it cannot say who holds what back")
        for told in answer.topics:
            for each in told.partitions:
                if each.error_code:
                    raise CommandFailed(
                        f"node {broker.id} does not tell the producers of {told.name}-{each.partition_index}: "
                        f"{error_name(each.error_code)}",
                        hint="leadership may have moved: try again",
                    )
                opened[told.name, each.partition_index] = _opened(each.active_producers)
    return opened


def _opened(producers: Iterable[Any]) -> list[OpenProducer]:
    opened = [
        OpenProducer(
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            each.current_txn_start_offset,
            each.last_timestamp,
        )
        for each in producers
        if each.current_txn_start_offset >= 0
    ]
    return sorted(opened, key=lambda each: each.start_offset)


def _judged_all(place: Place, producers: Iterable[OpenProducer], found: TransactionsFound) -> list[Holder]:
    by_producer = {each.producer_id: each for each in found.transactions}
    return [judged(place, each, by_producer.get(each.producer_id), unasked=found.unasked) for each in producers]


def _is_doubtful(holder: Holder) -> bool:
    return holder.verdict in (HoldVerdict.HANGING, HoldVerdict.UNKNOWN)


def _is_among(producer: OpenProducer, others: Iterable[OpenProducer]) -> bool:
    known = producer.producer_id, producer.start_offset
    return any((each.producer_id, each.start_offset) == known for each in others)


def _with_times(cluster: Cluster, holds: Iterable[Hold]) -> list[Hold]:
    holds = list(holds)
    wanted = [(each.place, each.last_stable_offset) for each in holds if each.held_back]
    if not wanted:
        return holds
    reader = RecordTimes(cluster)
    try:
        times = reader.read((place, offset) for place, offset in wanted if offset is not None)
    finally:
        reader.close()
    return [
        each
        if each.last_stable_offset is None
        else replace(each, since_ms=times.get((each.place, each.last_stable_offset)))
        for each in holds
    ]
