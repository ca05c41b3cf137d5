"""What the committed records of `__transaction_state` say of every transaction, and what must never stand in them.

| invariant | how it is seen |
|---|---|
| a decision stands | behind a Prepare record comes its Complete record, and no other |
| epochs only grow | of one producer id; and no two processes are ever given the same one |
| no marker before its decision | a marker in any log says what was decided for its producer id and epoch |
| a batch is decided once | the numbers of a sink's decisions only grow; what one names is open, and is committed |
| and carried out | before the next one of its sink, what follows from a decision is in the log |
| only by that | a transaction of a sink is committed by the decision that names it, and aborted by any other |
| answers come last | an end that is acknowledged, an id that is given stand in the log by then |
"""

from __future__ import annotations

from tests.simulator.truth.invariants import Invariants, Violation

from strandline.codec.columns import decode_batch
from strandline.codec.internal_records import TRANSACTION_STATE, decode_coordinator_record
from strandline.codec.messages.sink_decision_key import SinkDecisionKey
from strandline.codec.messages.sink_decision_value import SinkDecisionValue
from strandline.codec.messages.transaction_log_key import TransactionLogKey
from strandline.codec.messages.transaction_log_value import TransactionLogValue
from strandline.coordinators.shares.dead_letters.covered_offsets import SINK_BEGIN
from strandline.ids import sink_key, sink_of

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
NAMES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
FOLLOWS = {
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (PREPARE_COMMIT, COMPLETE_COMMIT),
    PREPARE_ABORT: (PREPARE_ABORT, COMPLETE_ABORT),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_COMMIT),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT),
}
"""An abort of nothing is a decision too, from version 2 of transactions on: it raises the epoch. So does a producer of
version 2 that hears that its sink has committed its transaction."""


class TransactionTruth:
    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self.states: dict[str, TransactionLogValue] = {}
        self.decided: dict[tuple[int, int], set[bool]] = {}
        """By producer id and epoch of the decision: whether it was to commit."""
        self._logged: set[tuple[str, int, int]] = set()
        """Every transactional id, producer id and epoch that was ever in the log together."""
        self._owners: dict[tuple[int, int], int] = {}
        """The process that was given a producer id with an epoch."""
        self._epochs: dict[int, int] = {}
        self.batches: dict[str, int] = {}
        """The last one that is decided, by sink."""
        self._due: dict[str, int] = {}
        """What transactions of sinks have to become next, since it was decided."""
        self.batches_decided = 0
        self.commits = 0
        self.aborts = 0
        invariants.on_committed[TRANSACTION_STATE] = self.fold
        invariants.stabilities.on_marker = self.on_marker

    def fold(self, batch: bytes) -> None:
        columns = decode_batch(batch)
        if columns.is_control:
            return
        for record in columns:
            assert record.key is not None
            key, value = decode_coordinator_record(record.key, record.value, topic=TRANSACTION_STATE)
            if isinstance(key, SinkDecisionKey):
                assert isinstance(value, SinkDecisionValue), "no sink is deleted here"
                self._fold_decision(key.sink_id, value)
                continue
            assert isinstance(key, TransactionLogKey)
            if value is None:
                self._fold_tombstone(key.transactional_id)
            else:
                assert isinstance(value, TransactionLogValue)
                self._fold_state(key.transactional_id, value)

    def _fold_decision(self, sink_id: str, value: SinkDecisionValue) -> None:
        last = self.batches.get(sink_id, -1)
        if value.batch_id <= last:
            self._fail(f"batch {value.batch_id} of {sink_id} is decided behind batch {last}")
        if not sink_id.startswith(SINK_BEGIN) and bytes(value.note) != note_of(value.batch_id):
            self._fail(f"batch {value.batch_id} of {sink_id} has the note of another one: {value.note!r}")
        self.batches[sink_id] = value.batch_id
        self.batches_decided += 1
        if left := [name for name in self._due if sink_of(name) == sink_id]:
            self._fail(f"batch {value.batch_id} of {sink_id} is decided, and not all is done of batch {last}: {left}")
        members = {sink_key(sink_id) + each.name: each for each in value.transactions}
        for name, member in members.items():
            state = self.states.get(name)
            identity = None if state is None else (state.producer_id, state.producer_epoch)
            if state is None or state.transaction_status != ONGOING:
                self._fail(f"batch {value.batch_id} of {sink_id} names {name}, which is not open")
            elif identity != (member.producer_id, member.producer_epoch):
                self._fail(f"batch {value.batch_id} of {sink_id} names {name} with another epoch than {_words(state)}")
        for name, state in self.states.items():
            if sink_of(name) == sink_id and state.transaction_status == ONGOING:
                self._due[name] = PREPARE_COMMIT if name in members else PREPARE_ABORT

    def _fold_tombstone(self, name: str) -> None:
        before = self.states.pop(name, None)
        if before is not None and before.transaction_status in (ONGOING, *PREPARED):
            self._fail(f"{name} is forgotten in {NAMES[before.transaction_status]}")

    def _fold_state(self, name: str, value: TransactionLogValue) -> None:
        before, status = self.states.get(name), value.transaction_status
        self.states[name] = value
        due = self._due.pop(name, None)
        if due not in (None, status):
            self._fail(f"{name} is {_words(value)}, and its sink has decided otherwise")
        if due is None and status == PREPARE_COMMIT and sink_of(name) is not None:
            self._fail(f"{name} is {_words(value)}, and no batch names it")
        if before is not None:
            wrong = _wrong_step(before, value)
            if wrong:
                self._fail(f"{name} goes from {_words(before)} to {_words(value)}: {wrong}")
        latest = self._epochs.setdefault(value.producer_id, value.producer_epoch)
        if value.producer_epoch < latest:
            self._fail(f"{name}: the epoch of producer {value.producer_id} goes back from {latest} to {_words(value)}")
        self._epochs[value.producer_id] = value.producer_epoch
        self._logged.add((name, value.producer_id, value.producer_epoch))
        if status in PREPARED and (before is None or before.transaction_status != status):
            is_commit = status == PREPARE_COMMIT
            self.decided.setdefault((value.producer_id, value.producer_epoch), set()).add(is_commit)
            self.commits += is_commit
            self.aborts += not is_commit

    # Answers to drivers

    @property
    def has_more_to_come(self) -> bool:
        """Whether a decision is committed, and not everything that follows from it."""
        return bool(self._due)

    def on_batch_told(self, sink_id: str, batch_id: int) -> None:
        if self.batches.get(sink_id, -1) < batch_id:
            self._fail(f"batch {batch_id} of {sink_id} is acknowledged and not committed")

    # Markers

    def on_marker(self, place: str, producer_id: int, epoch: int, is_commit: bool) -> None:
        if is_commit not in self.decided.get((producer_id, epoch), ()):
            what = "commit" if is_commit else "abort"
            self._fail(f"{place} has a marker to {what} producer {producer_id}, epoch {epoch}, and that is not decided")

    # Answers to clients

    def on_given(self, process: int, name: str, producer_id: int, epoch: int) -> None:
        """Check a producer id and epoch that a process was given."""
        if (name, producer_id, epoch) not in self._logged:
            self._fail(f"{name} was told producer id {producer_id} with epoch {epoch}, and that is not committed")
        owner = self._owners.setdefault((producer_id, epoch), process)
        if owner != process:
            self._fail(f"producer id {producer_id} with epoch {epoch} was given to processes {owner} and {process}")

    def on_ended(self, name: str, producer_id: int, epoch: int, *, is_commit: bool) -> None:
        """Check an answer that a transaction of this epoch has ended; the decision may have raised the epoch."""
        if not any(is_commit in self.decided.get((producer_id, each), ()) for each in (epoch, epoch + 1)):
            what = "commit" if is_commit else "abort"
            self._fail(f"the {what} of {name}, producer {producer_id}, epoch {epoch} is acknowledged and not committed")

    def _fail(self, what: str) -> None:
        raise Violation(f"{what} at {self._invariants.now:.6f}")


def _wrong_step(before: TransactionLogValue, after: TransactionLogValue) -> str:
    if after.transaction_status not in FOLLOWS[before.transaction_status]:
        return "a decision stands" if before.transaction_status in PREPARED else "a step that there is not"
    if before.transaction_status == after.transaction_status == ONGOING:
        if (before.producer_id, before.producer_epoch) != (after.producer_id, after.producer_epoch):
            return "an open transaction belongs to one producer and epoch"
        if not _partitions(before) <= _partitions(after):
            return "an open transaction loses a partition"
    if before.transaction_status == ONGOING and after.transaction_status in PREPARED:
        return "" if _partitions(before) == _partitions(after) else "the decision is not about the same partitions"
    return ""


def _partitions(value: TransactionLogValue) -> frozenset[tuple[str, int]]:
    return frozenset(
        (topic.topic, each) for topic in value.transaction_partitions or () for each in topic.partition_ids
    )


def _words(value: TransactionLogValue) -> str:
    return f"{NAMES[value.transaction_status]} (producer {value.producer_id}, epoch {value.producer_epoch})"


def note_of(batch_id: int) -> bytes:
    """Return what drivers in the simulation have kept with a batch."""
    return b"what batch %d read" % batch_id
