"""What is to be read, with the cluster's word on it: partitions of a subscription, offsets for words and times.

Runs in Spark's planning process beside the driver. Nothing is read here but metadata; whatever is wrong with what the
user asked for (a topic that is not there, offsets that the log does not have) is said here, before a task starts.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from strandline.client.cluster_client import EARLIEST, LATEST, READ_UNCOMMITTED, ClusterClient, TopicMetadata
from strandline.client.failures import DataLost, TopicMissing
from strandline.client.fetcher import ADVICE, FetchSettings, OffsetRange, PartitionFetcher, lost_words
from strandline.ids import TopicPartition
from strandline.spark.source.source_spec import (
    Everywhere,
    Limit,
    Offsets,
    OptionRefused,
    SourceOptions,
    Timestamps,
    TopicSubscription,
)
from strandline.spark.source.splitting import Positions

NAMED_MAX: Final = 5
"""Partitions that a sentence names; of more it says how many."""
_PROBE_BYTES: Final = 128 * 1024

log = logging.getLogger(__name__)


class Planner:
    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.client = ClusterClient(options.client)

    def close(self) -> None:
        self.client.close()

    # Partitions

    def partitions(self, *, must_exist: bool = True) -> dict[TopicPartition, UUID]:
        """The partitions that are read, and the ids of their topics. Without `must_exist` what is gone is left out."""
        return subscribed(self.client, self.options.subscription, must_exist=must_exist)

    # Offsets

    def earliest(self, partitions: Mapping[TopicPartition, object]) -> Positions:
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Mapping[TopicPartition, object]) -> Positions:
        return self._listed(dict.fromkeys(partitions, LATEST))

    def starting(self, partitions: Mapping[TopicPartition, object]) -> Positions:
        began = self.options.start_at
        if began is None:
            return self._resolved(self.options.starting, partitions, "starting")
        # A partition that came later is read from its start.
        earliest = self.earliest(partitions)
        if self.options.stop_at is None:
            for each, first in earliest.items():
                if began.get(each, first) < first:
                    self.lose(each, began[each], first, f"the log begins at {first}")
        # What is read again is read as far as retention has left it.
        return {each: max(began.get(each, 0), first) for each, first in earliest.items()}

    def ending(self, partitions: Mapping[TopicPartition, object]) -> Positions:
        return self._resolved(self.options.ending, partitions, "ending")

    def at_time(self, partitions: Mapping[TopicPartition, object], timestamp_ms: int) -> Positions:
        """The first offset of that time or later; -1 where there is none."""
        return self._listed(dict.fromkeys(partitions, timestamp_ms))

    def _listed(self, wanted: Mapping[TopicPartition, int]) -> Positions:
        return self.client.list_offsets(wanted, isolation_level=self.options.isolation_level) if wanted else {}

    def _resolved(self, limit: Limit, partitions: Mapping[TopicPartition, object], side: str) -> Positions:
        if isinstance(limit, Everywhere):
            return self._listed(dict.fromkeys(partitions, limit.offset))
        if isinstance(limit, Offsets):
            _check_all_named(f"{side}Offsets", limit.by_partition, partitions)
            found = dict(limit.by_partition)
        else:
            found = self._at_times(limit, partitions, side)
        words = {partition: offset for partition, offset in found.items() if offset in (LATEST, EARLIEST)}
        return found | self._listed(words)

    def _at_times(self, limit: Timestamps, partitions: Mapping[TopicPartition, object], side: str) -> Positions:
        if limit.everywhere is not None:
            wanted = dict.fromkeys(partitions, limit.everywhere)
        else:
            _check_all_named(f"{side}OffsetsByTimestamp", limit.by_partition, partitions)
            wanted = dict(limit.by_partition)
        found = self._listed(wanted)
        missing = [partition for partition, offset in found.items() if offset < 0]
        if missing and side == "starting" and not self.options.no_match_is_latest:
            raise OptionRefused(
                f"no record of {named(missing)} is as late as {wanted[missing[0]]}: choose an earlier time, or say "
                'option("startingOffsetsByTimestampStrategy", "latest") to begin with the next record'
            )
        return found | dict.fromkeys(missing, LATEST)

    # Ranges of a batch

    def batch_ranges(self) -> list[OffsetRange]:
        partitions = self.partitions()
        start, end = self.starting(partitions), self.ending(partitions)
        self._check_order(start, end)
        if isinstance(self.options.starting, Offsets) or isinstance(self.options.ending, Offsets):
            start, end = self._within_the_log(partitions, start, end)
        return [
            OffsetRange(*partition, start[partition], end[partition], topic_id)
            for partition, topic_id in partitions.items()
        ]

    def _check_order(self, start: Positions, end: Positions) -> None:
        """Who says where to begin and where to end does not mean a range without anything in it."""
        options = [_option(self.options.starting, "starting"), _option(self.options.ending, "ending")]
        if not all(options):
            return
        for partition, first in start.items():
            if first > end[partition]:
                raise OptionRefused(
                    f"{options[0]} has {partition} begin at {first}, behind its end {end[partition]} in {options[1]}: "
                    "correct one of them"
                )

    def _within_the_log(
        self, partitions: Mapping[TopicPartition, UUID], start: Positions, end: Positions
    ) -> tuple[Positions, Positions]:
        """Offsets that a user wrote down may lie outside of the log: that is data loss, or a mistake."""
        earliest = self.earliest(partitions)
        # Of the whole log: a reader of what is committed waits for what is not decided yet.
        whole = self.client.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=READ_UNCOMMITTED)
        for partition in partitions:
            first, behind = start[partition], end[partition]
            if first < earliest[partition]:
                self.lose(partition, first, earliest[partition], f"the log begins at {earliest[partition]}")
            if max(first, behind) > whole[partition]:
                reason = f"the log ends at {whole[partition]}"
                lost = max(first, whole[partition])
                self.lose(partition, lost, behind if behind > lost else None, reason)
        clipped = {each: max(offset, earliest[each]) for each, offset in start.items()}
        return clipped, {each: min(offset, whole[each]) for each, offset in end.items()}

    # Rates

    def bytes_per_offset(self, start: Positions, end: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """What an offset takes in the log, by the first bytes that lie behind each start; 1 where nothing was found."""
        settings = FetchSettings(
            isolation_level=self.options.isolation_level,
            partition_bytes_max=_PROBE_BYTES,
            wait_ms_max=0,
            stall_timeout_s=self.options.stall_timeout_s,
            fails_on_data_loss=False,
        )
        found = {}
        for partition, behind in end.items():
            if start[partition] < behind:
                wanted = OffsetRange(*partition, start[partition], behind)
                fetcher = PartitionFetcher(self.client, wanted, settings, asks_ahead=False)
                for _ in fetcher.answers():
                    break
                found[partition] = max(fetcher.bytes_per_offset, 1.0)
        return found

    # Loss

    def lose(self, partition: TopicPartition, start: int, end: int | None, reason: str) -> None:
        """Offsets `start` to `end` cannot be had: DataLost, or a line in the log if the user does not mind."""
        words = lost_words(*partition, start, end, reason)
        if self.options.fails_on_data_loss:
            raise DataLost(f"{words}; {ADVICE}")
        log.warning("%s; read on without them, because failOnDataLoss is false", words)

    def not_behind(self, start: Positions, partitions: Mapping[TopicPartition, object]) -> Positions:
        """The latest offsets. One before where a stream has read is an old leader's, asked again; then it is loss."""
        for attempt in range(self.options.offset_retries + 1):
            latest = self.latest(partitions)
            behind = [each for each, offset in latest.items() if offset < start.get(each, 0)]
            if not behind:
                break
            if attempt < self.options.offset_retries:
                time.sleep(self.options.offset_retry_s)
        for partition in behind:
            reason = f"the log ends at {latest[partition]}; the topic may have been made again"
            self.lose(partition, latest[partition], start[partition], reason)
        return latest


def subscribed(
    client: ClusterClient, subscription: TopicSubscription, *, must_exist: bool = True
) -> dict[TopicPartition, UUID]:
    if subscription.pattern is not None:
        # As in Spark's own source, any part of a name may fit, and internal topics never do.
        pattern = re.compile(subscription.pattern)
        every = client.topics(None).values()
        return _all_of([each for each in every if not each.is_internal and pattern.search(each.name)])
    names = subscription.topics or tuple(dict.fromkeys(each.topic for each in subscription.assigned))
    topics = client.topics(names)
    missing = [name for name in names if name not in topics]
    if missing and must_exist:
        raise TopicMissing(
            f"topic {missing[0]} does not exist on {client.settings.bootstrap}: create it, or correct the option "
            f"{'subscribe' if subscription.topics else 'assign'}"
        )
    every_partition = _all_of([topics[name] for name in names if name in topics])
    if not subscription.assigned:
        return every_partition
    absent = [each for each in subscription.assigned if each not in every_partition]
    if absent and must_exist:
        raise TopicMissing(f"partition {absent[0]} does not exist: correct the option assign")
    return {each: every_partition[each] for each in subscription.assigned if each in every_partition}


def _all_of(topics: list[TopicMetadata]) -> dict[TopicPartition, UUID]:
    return {
        TopicPartition(topic.name, partition): topic.topic_id
        for topic in sorted(topics, key=lambda topic: topic.name)
        for partition in topic.leaders
    }


def _option(limit: Limit, side: str) -> str:
    """The option that said it; nothing for earliest and latest."""
    match limit:
        case Offsets():
            return f"{side}Offsets"
        case Timestamps(everywhere=None):
            return f"{side}OffsetsByTimestamp"
        case Timestamps():
            return f"{side}Timestamp"
        case _:
            return ""


def _check_all_named(
    option: str, said: Mapping[TopicPartition, int], partitions: Mapping[TopicPartition, object]
) -> None:
    extra = [each for each in said if each not in partitions]
    if extra:
        raise OptionRefused(f"{option} names {named(extra)}, which is not read: leave it out, or correct the topics")
    missing = [each for each in partitions if each not in said]
    if missing:
        rest = "" if "Timestamp" in option else "; -2 stands for earliest, -1 for latest"
        raise OptionRefused(f"{option} says nothing of {named(missing)}: say every partition{rest}")


def named(partitions: list[TopicPartition]) -> str:
    """A few of them by name."""
    few = ", ".join(map(str, partitions[:NAMED_MAX]))
    return few if len(partitions) <= NAMED_MAX else f"{few} and {len(partitions) - NAMED_MAX} more"
