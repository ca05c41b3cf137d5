"""Ends transactions that were open where a clone, or a restored topic, continues the records of another.

Their markers are not among the shared records, so without this no read_committed consumer would ever get past them.
"""

from __future__ import annotations

import logging

from strandline.config.remote_origin import partition_origin
from strandline.errors import StrandlineError
from strandline.partition.partition import Partition
from strandline.partition.transaction_appends import append_marker

log = logging.getLogger("strandline.tiering")


def end_shared_transactions(partition: Partition, node_id: int) -> None:
    """Abort them, if this node leads the partition and there are some."""
    text, open_transactions = partition.config.strandline_remote_origin, partition.producers.open_transactions
    if not text or not open_transactions or not partition.is_leader or partition.leader_id != node_id:
        return
    origin = partition_origin(text, partition.index)
    for each in () if origin is None else origin.transactions:
        if open_transactions.get(each.producer_id) != each.first_offset:
            continue
        try:
            append_marker(
                partition,
                each.producer_id,
                each.producer_epoch,
                is_commit=False,
                coordinator_epoch=each.coordinator_epoch,
                transaction_version=0,
                now_ms=partition.runtime.now_ms(),
                on_committed=lambda _: None,
            )
        except StrandlineError as error:
            # The next look tries again, for example when enough replicas are in sync.
            log.warning("%r: a transaction that it shares is still open: %s", partition, error)
