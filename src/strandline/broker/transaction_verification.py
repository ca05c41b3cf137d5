"""Asks the coordinator of a transaction whether a partition is part of it, before anything is written there (KIP-890).

A Produce or TxnOffsetCommit of a transaction that the coordinator knows nothing of would leave records behind that
nobody ever ends. `verify` asks; with `adds` the partition becomes part of the transaction by asking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from strandline.errors import ErrorCode

Place = tuple[str, int]
"""Topic and partition."""
OnVerified = Callable[[dict[Place, ErrorCode]], object]
"""Told an error code for each place that was asked about, NONE where it may be written to."""


class Verification(Protocol):
    """What `node.transactions` offers to whoever writes transactional records."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        places: Sequence[Place],
        *,
        adds: bool,
        then: OnVerified,
    ) -> None:
        """Ask the coordinator, wherever it is, whether these partitions are in the producer's open transaction.

        With `adds` they are added if they are not: for clients of transactions v2 (Produce 12+, TxnOffsetCommit 5+).
        `then` is called exactly once, perhaps before this returns. Codes are the ones that producers understand:
        INVALID_PRODUCER_EPOCH for a fenced one, INVALID_TXN_STATE or (adds) TRANSACTION_ABORTABLE for a transaction
        that is not open here, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
        CONCURRENT_TRANSACTIONS and NETWORK_EXCEPTION where trying again may help.
        """
