"""The marker that ends a transaction on one partition, written by the leader of the partition."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from strandline.coordinators.groups.events import TransactionEnded
from strandline.errors import ErrorCode, StrandlineError, error_code, named
from strandline.handlers.support.context import BrokerServices
from strandline.ids import TopicPartition
from strandline.partition.partition import Partition
from strandline.partition.transaction_appends import append_marker
from strandline.quorum.controller.topic_names import AUDIT_TOPIC, CONSUMER_OFFSETS

CLIENT_ID_BEGIN: Final = "markers-"
"""What a broker that sends markers calls itself, before its node id."""

OnWritten = Callable[[ErrorCode], object]


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int


def write_marker(node: BrokerServices, place: TopicPartition, marker: Marker, then: OnWritten) -> None:
    """Append the marker and call `then` once: with NONE when it is committed, or with why it is not, or not yet."""
    partition = node.partition(*place)
    if partition is None:
        # Deleted, or moved away: which of the two it is the coordinator knows by its own image.
        then(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return
    if not partition.is_leader:
        then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return
    if place.topic == AUDIT_TOPIC:
        # No transaction writes to it, so a marker would only be a way to write there.
        then(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return

    def on_committed(error: Exception | None) -> None:
        then(ErrorCode.NONE if error is None else named(error_code(error)))

    append = partial(_append, node, partition, marker)
    try:
        if place.topic == CONSUMER_OFFSETS:
            # Offsets that were committed within the transaction count from here on, or never.
            ended = TransactionEnded(marker.producer_id, marker.is_commit)
            node.groups.append_marker(place.partition, ended, append, on_committed)
        else:
            append(on_committed)
    except (StrandlineError, OSError) as error:
        then(named(error_code(error)))


def _append(
    node: BrokerServices, partition: Partition, marker: Marker, on_committed: Callable[[Exception | None], None]
) -> None:
    append_marker(
        partition,
        marker.producer_id,
        marker.producer_epoch,
        is_commit=marker.is_commit,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
        now_ms=node.runtime.now_ms(),
        on_committed=on_committed,
    )
