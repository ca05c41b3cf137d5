"""All transactional ids that live in one partition of `__transaction_state`, behind one door."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.coordinators.transactions.events import Effect, Event
from strandline.coordinators.transactions.transaction_config import TransactionConfig


class TransactionShard:
    """The state machine. `load` the partition's records, say `Loaded()`, then `step` for every event.

    The state is that of the log plus what was asked to be appended. If an append fails, the shard knows more than the
    log: the driver throws it away and loads another. Markers carry `coordinator_epoch`, the leader epoch of the
    partition: a leader that begins a new epoch loads a new shard.
    """

    def __init__(self, config: TransactionConfig, *, coordinator_epoch: int) -> None:
        self.config = config
        self.coordinator_epoch = coordinator_epoch

    def load(self, records: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Fold records into the state, in the order of the log; may be called again and again with the next ones."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        raise NotImplementedError
