"""When can what was decided be read?

A commit is answered as soon as it cannot be undone. Readers of committed records get it when its markers are in all
partitions: milliseconds later, or when the leader of a partition is there again.
"""

from __future__ import annotations

import time
from typing import Final

from strandline.client.coordinators import ask_coordinator
from strandline.codec.messages.list_transactions_request import ListTransactionsRequest
from strandline.codec.messages.list_transactions_response import ListTransactionsResponse
from strandline.spark.sink.cluster import SinkCluster

OPEN: Final = "Ongoing"
ENDING: Final = ("PrepareCommit", "PrepareAbort")
"""Decided, and not in all partitions yet."""
READABLE_S_MAX: Final = 5.0
"""How long Spark waits with its next batch for one that is committed; it is committed all the same."""
_LOOK_S: Final = 0.001
_LOOK_S_MAX: Final = 0.05


def transactions_in(cluster: SinkCluster, key: str, *states: str) -> list[str]:
    """Transactional ids that begin with `key`, and belong to its coordinator, in one of these states."""
    answer = ask_coordinator(
        cluster.client,
        "look at the transactions",
        key,
        ListTransactionsRequest(state_filters=list(states)),
        ListTransactionsResponse,
        lambda told: told.error_code,
    )
    return sorted(each.transactional_id for each in answer.transaction_states if each.transactional_id.startswith(key))


def await_readable(cluster: SinkCluster, key: str, *, patience_s: float, states: tuple[str, ...] = ENDING) -> bool:
    """Whether nothing of these ids is in one of these states, now or within the time."""
    deadline = time.monotonic() + patience_s
    pause_s = _LOOK_S
    while transactions_in(cluster, key, *states):
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LOOK_S_MAX)
    return True
