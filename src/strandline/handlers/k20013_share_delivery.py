"""ShareDelivery (20013), version 0: what a leader knows of the delivery of records to a share group. It is our own.

Asked of the leaders of partitions, by `strandline queue`. It changes nothing, and loads nothing: where no member has a
share session, nothing is locked, and only the events are answered that this node saw before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.codec.messages.share_delivery_request import DeliveredPartition, ShareDeliveryRequest
from strandline.codec.messages.share_delivery_response import (
    DeliveredRange,
    DeliveryNote,
    PartitionDelivery,
    ShareDeliveryResponse,
    TopicDelivery,
)
from strandline.coordinators.shares.delivery.delivery_history import EVENT_NAMES
from strandline.coordinators.shares.delivery.offset_ranges import ACQUIRED, AVAILABLE, DeliveryRange
from strandline.coordinators.shares.delivery.share_partition import SharePartition
from strandline.errors import ErrorCode
from strandline.handlers.support.absent_partitions import led_partition
from strandline.handlers.support.context import BrokerServices, RequestContext
from strandline.partition.partition import Partition
from strandline.runtime.time_slicing import gradually

API_KEY = 20_013
VERSIONS = (0, 0)

RANGES_DESCRIBED_MAX: Final = 2_000
"""Ranges of one partition in a response; the others are counted."""


def handle(context: RequestContext, request: ShareDeliveryRequest) -> ShareDeliveryResponse | None:
    node = context.node
    if not request.group_id:
        return ShareDeliveryResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    settings = node.share_delivery.settings_of(request.group_id)
    response = ShareDeliveryResponse(
        node_id=node.node_id,
        now_ms=node.runtime.now_ms(),
        delivery_count_limit=settings.delivery_count_limit,
        lock_duration_ms=settings.lock_duration_ms,
    )
    gradually(node.runtime, _look(node, request, response), lambda _: context.reply(response))
    return None


def _look(node: BrokerServices, request: ShareDeliveryRequest, response: ShareDeliveryResponse) -> Iterator[None]:
    for topic in request.topics:
        result = TopicDelivery(name=topic.name)
        response.topics.append(result)
        for asked in topic.partitions:
            partition = led_partition(node, topic.name, asked.partition)
            if isinstance(partition, ErrorCode):
                node.count_error(API_KEY, partition)
                result.partitions.append(PartitionDelivery(partition=asked.partition, error_code=partition))
            else:
                result.partitions.append(_described(node, request.group_id, asked, partition))
            yield


def _described(
    node: BrokerServices, group_id: str, asked: DeliveredPartition, partition: Partition
) -> PartitionDelivery:
    name = partition.topic_id.bytes, partition.index
    described = PartitionDelivery(
        partition=asked.partition,
        log_start_offset=partition.log_start_offset,
        high_watermark=partition.high_watermark,
    )
    history, served = node.share_delivery.history_of(group_id, name), node.share_delivery.find(group_id, name)
    now_ms = node.runtime.now_ms()
    if history is not None:
        described.since_ms, described.redeliveries = history.since_ms, history.redeliveries
        described.events = [
            DeliveryNote(
                at_ms=event.at_ms,
                what=EVENT_NAMES[event.kind],
                first_offset=event.first,
                last_offset=event.last,
                delivery_count=event.delivery_count,
                member_id=event.member_id,
            )
            for event in history.events(asked.first_offset, asked.last_offset)
        ]
    share = None if served is None else served.share
    if share is not None:
        described.start_offset, described.end_offset = share.start_offset, share.end_offset
        if history is not None and share.in_flight:
            described.oldest_ms = max(0, now_ms - history.moved_ms)
        _describe_ranges(described, share, asked, node.runtime.monotonic())
    return described


def _describe_ranges(
    described: PartitionDelivery, share: SharePartition, asked: DeliveredPartition, now: float
) -> None:
    for found in share.ranges.ranges:
        if found.state == AVAILABLE:
            described.available += len(found)
        elif found.state == ACQUIRED:
            described.acquired += len(found)
        if found.state in (AVAILABLE, ACQUIRED) and found.count > 1:
            described.redelivering += len(found)
        if found.first <= asked.last_offset and found.last >= asked.first_offset:
            if len(described.ranges) < RANGES_DESCRIBED_MAX:
                described.ranges.append(_range(found, now))
            else:
                described.ranges_left_out += 1


def _range(found: DeliveryRange, now: float) -> DeliveredRange:
    lock = found.lock
    return DeliveredRange(
        first_offset=found.first,
        last_offset=found.last,
        state=found.state,
        delivery_count=found.count,
        member_id=None if lock is None else lock.member_id,
        lock_ms=-1 if lock is None else max(0, int((lock.deadline - now) * 1000)),
        held=found.held,
    )
