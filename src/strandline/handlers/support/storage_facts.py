"""What is known of a partition's files beyond their size: what retention, the cleaner and the scrubber say of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.codec.messages.describe_log_dirs_request import DescribeLogDirsRequest
from strandline.codec.messages.describe_storage_request import DescribeStorageRequest
from strandline.codec.messages.describe_storage_response import StoredDamage, StoredPartition
from strandline.handlers.support.context import BrokerServices
from strandline.log.maintenance.retention import outlook
from strandline.partition.partition import Partition

FOR_EVER: Final = 2**60
"""The cap for times and sizes, because settings of 2^63-1 ("no limit") would overflow the fields."""


def asked_partitions(
    node: BrokerServices, request: DescribeLogDirsRequest | DescribeStorageRequest
) -> Iterator[tuple[str, int]]:
    """Yield the topic and index of each partition that a request names, or of every one if it names none."""
    if request.topics is None:
        # A list of them: between two turns of the loop topics come and go.
        for topic in list(node.image.topics.values()):
            for index in range(len(topic.partitions)):
                yield topic.name, index
    else:
        yield from dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions)


def add_deletion(stored: StoredPartition, partition: Partition, now_ms: int) -> None:
    found = outlook(partition.log, high_watermark=partition.high_watermark, now_ms=now_ms)
    deletes_at_ms, bytes_until = _or_unknown(found.deletes_at_ms), _or_unknown(found.bytes_until)
    cause = found.because
    if cause == "time" and (found.deletes_at_ms or 0) >= FOR_EVER:
        cause = "size"
    if cause is None or (cause == "size" and bytes_until < 0):
        return
    stored.next_deletion_cause = cause
    stored.next_deletion_base = found.next_segment_base
    stored.next_deletion_end = found.next_segment_end
    stored.next_deletion_bytes = found.next_segment_bytes
    stored.next_deletion_ms = deletes_at_ms
    stored.next_deletion_bytes_until = bytes_until
    stored.next_deletion_is_active = found.is_active
    stored.next_deletion_is_held = found.is_held


def _or_unknown(number: int | None) -> int:
    return -1 if number is None or number >= FOR_EVER else number


def add_cleaning(stored: StoredPartition, node: BrokerServices, partition: Partition, now_ms: int) -> None:
    """Add the state of the cleaner, if it compacts local segments."""
    if not partition.config.cleans_locally:
        return
    found = node.cleaner.outlook(partition, now_ms)
    stored.cleaning_state = found.state
    stored.cleaning_reason = found.reason
    stored.retry_ms = found.retry_ms
    stored.dirty_ratio = found.dirty_ratio
    stored.dirty_ratio_min = found.dirty_ratio_min
    stored.clean_up_to = found.clean_up_to
    stored.first_uncleanable = found.first_uncleanable
    stored.uncleanable_because = found.because
    stored.uncleanable_until_ms = _or_unknown(found.until_ms)
    stored.cleaning_due_ms = _or_unknown(found.due_ms)
    stored.cleaning_bytes = found.done_bytes
    stored.cleaning_bytes_total = found.total_bytes
    if found.last is not None:
        result = found.last.result
        stored.cleaned_ms = found.last.ended_ms
        stored.cleaned_bytes_before = found.last.size_bytes_before
        stored.cleaned_bytes_after = found.last.size_bytes_after
        stored.cleaned_records_before = result.records_read
        stored.cleaned_records_after = result.records_kept
        stored.cleaned_without_key = result.records_without_key


def add_scrubbing(stored: StoredPartition, node: BrokerServices, partition: Partition) -> None:
    """Add when the files were last scrubbed, and what was found."""
    stored.scrubbed_ms = node.scrubber.scrubbed_ms(partition)
    stored.damages = [
        StoredDamage(each.base_offset, each.end_offset, each.position, each.what, each.state, each.found_ms)
        for each in node.scrubber.damages_of(partition)
    ]
