"""A share partition beside the leader of its data: loads it, stores its changes, ends its locks, wakes its readers.

It listens to the data partition. When this broker no longer leads that in the same epoch, it is dropped with all locks;
the next leader loads what was stored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from strandline.broker.coordinating.delivery_watch import DeliveryWatch
from strandline.broker.coordinating.state_persister import ABSENT, FENCED, StatePersister, client_code
from strandline.config.settings import LONG_MAX
from strandline.coordinators.shares.delivery.acknowledgements import AcknowledgedBatch
from strandline.coordinators.shares.delivery.acquisition import AcquiredRange
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange
from strandline.coordinators.shares.delivery.share_partition import SharePartition, StateChange, StateWrite
from strandline.coordinators.shares.delivery.share_settings import ShareSettings
from strandline.coordinators.shares.share_state import NO_START_OFFSET, ShareState
from strandline.errors import ErrorCode, OffsetOutOfRange, RequestError
from strandline.log.segment.log_slice import LogSlice
from strandline.log.segment.segment import ColdRead
from strandline.log.segment.time_lookup import FoundTime
from strandline.partition.partition import Partition
from strandline.partition.share_batches import SliceBatches, load_aborted
from strandline.runtime.runtime import TimerHandle

if TYPE_CHECKING:
    from strandline.broker.coordinating.dead_letters.dead_letter_writer import DeadLetters, DeadLetterWriter
    from strandline.handlers.support.services import ShareReader

log = logging.getLogger("strandline.shares")

OnAcknowledged = Callable[[ErrorCode, str | None], object]
_DURATION: Final = re.compile(r"by_duration:p(?:(\d+)d)?(?:t(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?)?")


class LedSharePartition:
    """One share partition on the broker that leads its data."""

    __slots__ = (
        "_dead_letters",
        "_is_waking",
        "_on_dropped",
        "_persister",
        "_settings_of",
        "_timer",
        "_timer_at",
        "group_id",
        "is_dropped",
        "is_retiring",
        "leader_epoch",
        "partition",
        "readers",
        "share",
        "watch",
        "writer",
        "writes",
    )

    def __init__(
        self,
        group_id: str,
        partition: Partition,
        persister: StatePersister,
        watch: DeliveryWatch,
        *,
        settings_of: Callable[[str], ShareSettings],
        on_dropped: Callable[[LedSharePartition], object],
        dead_letters: Callable[[], DeadLetters] | None = None,
    ) -> None:
        self.group_id = group_id
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._persister = persister
        self.watch = watch
        self._settings_of = settings_of
        self._on_dropped = on_dropped
        self._dead_letters = dead_letters
        self.writer: DeadLetterWriter | None = None
        """What copies dead letters; None as long as there was none."""
        self.share: SharePartition | None = None
        """None while it is loaded."""
        self.readers: dict[ShareReader, None] = {}
        """Fetches that wait for records, in the order in which they came."""
        self.writes = 0
        """Writes that are not answered yet."""
        self.is_dropped = False
        self.is_retiring = False
        """Whether it is dropped when all is written, because no member has a session."""
        self._is_waking = False
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0
        partition.advance_listeners[self] = None

    @property
    def is_loaded(self) -> bool:
        return self.share is not None

    @property
    def next_offset(self) -> int:
        """Return where the next read begins."""
        assert self.share is not None
        return self.share.next_offset

    @property
    def settings(self) -> ShareSettings:
        return self._settings_of(self.group_id)

    # Loading

    def load(self) -> None:
        partition = self.partition
        self._persister.read(self.group_id, partition.topic_id, partition.index, self.leader_epoch, self._on_state)

    def _on_state(self, code: ErrorCode, state: ShareState | None) -> None:
        if self.is_dropped:
            return
        if code or state is None:
            log.warning("cannot load %r of share group %r: %s", self.partition, self.group_id, code.name)
            self.drop(client_code(code))
        elif state.start_offset != NO_START_OFFSET:
            self._begin(state, state.start_offset)
        else:
            self._find_start(state)

    def _find_start(self, state: ShareState) -> None:
        """Begin where `share.auto.offset.reset` says."""
        reset, partition = self.settings.auto_offset_reset.lower(), self.partition
        if reset == "earliest":
            self._begin(state, partition.log_start_offset)
        elif reset == "latest":
            self._begin(state, partition.high_watermark)
        else:

            def found(at: FoundTime | None, error: BaseException | None) -> None:
                if self.is_dropped:
                    return
                if error is not None:
                    self.drop(ErrorCode.UNKNOWN_SERVER_ERROR)
                else:
                    self._begin(state, partition.high_watermark if at is None else at.offset)

            partition.offset_for_timestamp(partition.runtime.now_ms() - _milliseconds(reset), found)

    def _begin(self, state: ShareState, start_offset: int) -> None:
        self.share = SharePartition(state, start_offset, is_key_ordered=self.settings.is_key_ordered)
        self.share.move_start(self.partition.log_start_offset)
        self._bury()
        self._send_all()

    # Reading

    def can_serve(self) -> bool:
        """Return whether there may be something to acquire."""
        share = self.share
        if share is None:
            return False
        settings, partition = self.settings, self.partition
        if share.is_key_ordered != settings.is_key_ordered:
            if share.locks.next_deadline is None and self._is_written:
                # Later, because the caller may be about to wait here.
                partition.runtime.call_soon(self.drop)
            # Until then nothing is acquired, so that nothing is in flight when the other order begins.
            return False
        share.is_delayed = partition.config.delay_enable
        if partition.log_start_offset > share.start_offset:
            share.move_start(partition.log_start_offset)
        self._ripen()
        visible = partition.last_stable_offset if settings.is_read_committed else partition.high_watermark
        return share.next_offset < visible and share.has_room(settings)

    def read(self, size_bytes_max: int, *, at_least_one: bool, may_block: bool) -> LogSlice | None:
        """Return batches from the next offset on. Raises ColdRead, or StrandlineError if the log cannot be read."""
        assert self.share is not None
        try:
            return self.partition.read(
                self.share.next_offset,
                size_bytes_max=size_bytes_max,
                committed_only=self.settings.is_read_committed,
                at_least_one=at_least_one,
                may_block=may_block,
            )
        except OffsetOutOfRange:
            # Records that the group has seen were truncated by an unclean election: it waits for others.
            return None

    def acquire(
        self,
        member_id: str,
        records: LogSlice,
        *,
        records_max: int,
        batch_size: int,
        is_strict: bool,
        may_block: bool,
    ) -> tuple[LogSlice | None, list[AcquiredRange]]:
        """Give a member records of what was read; return the batches that hold them. Raises ColdRead.

        None are left if all were aborted, or are held back: then there may be others behind them.
        """
        share, settings, runtime = self.share, self.settings, self.partition.runtime
        assert share is not None
        batches = SliceBatches(records, may_block=may_block)
        if settings.is_read_committed:
            # Before anything is acquired, because a member must get at once what it acquires.
            load_aborted(self.partition, batches.first_offset, may_block=may_block)
        taken = share.acquire(
            member_id,
            batches,
            runtime.monotonic(),
            settings,
            records_max=records_max,
            batch_size=batch_size,
            is_strict=is_strict,
            now_ms=runtime.now_ms(),
        )
        if not taken and batches.is_cold:
            raise ColdRead
        if taken and settings.is_read_committed:
            taken = share.discard(taken, batches.aborted(self.partition))
        self._arm()
        if not taken:
            return None, taken
        self.watch.on_acquired(member_id, taken, share.start_offset)
        return batches.cut(taken[0].first, taken[-1].last), taken

    # Acknowledging

    def acknowledge(self, member_id: str, batches: Sequence[AcknowledgedBatch], on_done: OnAcknowledged) -> None:
        """Apply acknowledgements of a member; `on_done` is called when they are stored, or refused."""
        share = self.share
        if share is None:
            on_done(ErrorCode.INVALID_RECORD_STATE, "nothing is acquired")
            return
        try:
            change = share.acknowledge(member_id, batches, self.partition.runtime.monotonic(), self.settings)
        except RequestError as error:
            on_done(ErrorCode(error.code), str(error))
            return

        exhausted = self.watch.exhausted(change, batches, self.settings.delivery_count_limit)

        def acknowledged(code: ErrorCode, message: str | None) -> None:
            if not code:
                self.watch.on_acknowledged(member_id, batches, exhausted)
            on_done(code, message)

        if change is None:
            self._arm()
            acknowledged(ErrorCode.NONE, None)
        else:
            self._store(change, acknowledged)

    def release(self, member_id: str) -> None:
        """Make available what a member holds: its session has ended."""
        if self.share is not None:
            change = self.share.release(member_id, self.settings)
            if change is not None:
                self.watch.on_released(member_id, change)
                self._store(change, _ignore)

    def _store(self, change: StateChange, on_done: OnAcknowledged) -> None:
        def stored(code: ErrorCode) -> None:
            self.writes -= 1
            share = self.share
            assert share is not None
            if code:
                share.revert(change, self.settings)
            else:
                share.commit(change)
            self._bury()
            self._after_write(code)
            on_done(client_code(code) if code else ErrorCode.NONE, None)

        self._write(change.write, stored)

    def _write(self, write: StateWrite, stored: Callable[[ErrorCode], object]) -> None:
        assert self.share is not None
        self.writes += 1
        self._persister.write(
            self.group_id,
            self.partition.topic_id,
            self.partition.index,
            self.share.state_epoch,
            self.leader_epoch,
            *write,
            stored,
        )

    def _after_write(self, code: ErrorCode) -> None:
        if self.is_dropped:
            return
        if self.share is not None:
            self.watch.on_stored(self.share)
        if code in FENCED or code in ABSENT:
            log.info("dropping %r of share group %r: %s", self.partition, self.group_id, code.name)
            self.drop()
        elif self._may_retire:
            self.drop()
        else:
            self._arm()
            self.wake()

    # Locks and records that are held back

    def _ripen(self) -> bool:
        """Offer records whose time has come. Return whether there were any."""
        runtime, share = self.partition.runtime, self.share
        assert share is not None
        if not share.held.is_timed:
            return False
        # Where a topic delays no more, all are due.
        now_ms = runtime.now_ms() if share.is_delayed else LONG_MAX
        return share.held.ripen(now_ms, int(runtime.monotonic() * 1000))

    def _next_deadline(self) -> float | None:
        runtime, share = self.partition.runtime, self.share
        assert share is not None
        deadline, now = share.locks.next_deadline, runtime.monotonic()
        wait_ms = share.held.wait_ms(runtime.now_ms(), int(now * 1000)) if share.held.is_timed else None
        if wait_ms is None:
            return deadline
        # It may be over already: one turn offers only so many.
        ripe = now + max(0, wait_ms) / 1000
        return ripe if deadline is None else min(deadline, ripe)

    def _arm(self) -> None:
        """Look again when the next lock ends, or a record may be delivered."""
        assert self.share is not None
        deadline = self._next_deadline()
        if deadline is None or self.is_dropped or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        runtime = self.partition.runtime
        self._timer_at = deadline
        self._timer = runtime.call_later(max(0.0, deadline - runtime.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        share = self.share
        assert share is not None
        write = share.expire(self.partition.runtime.monotonic(), self.settings)
        is_ripe = self._ripen()
        self.watch.on_expired(share)
        self._arm()
        if write is not None:
            self.store(write, _ignore)
            self._bury()
        if write is not None or is_ripe:
            self.wake()

    def store(self, write: StateWrite, then: Callable[[ErrorCode], object]) -> None:
        """Have a write stored that cannot be taken back, and call back."""

        def stored(code: ErrorCode) -> None:
            self.writes -= 1
            if not code and self.share is not None:
                self.share.on_stored(write)
            self._after_write(code)
            then(code)

        self._write(write, stored)

    # Dead letters

    def _bury(self) -> None:
        """Leave records that no member gets any more to the writer of dead letters."""
        share = self.share
        if share is None or not share.dead or self.is_dropped:
            return
        dead, share.dead = share.dead, []
        if self.writer is None and self._dead_letters is not None:
            self.writer = self._dead_letters().writer(self)
        if self.writer is None:
            self.store(share.archive([each.archived() for each in dead]), _ignore)
        else:
            self.writer.add(dead)

    def on_copied(self, letters: Sequence[DeadRange]) -> None:
        self.watch.on_copied(letters)

    def on_buried(self) -> None:
        """Go on, as no dead letter is under way now."""
        if self._may_retire:
            self.drop()
        else:
            self.wake()

    # Waiting

    def on_advance(self, size_bytes: int) -> None:
        if self.readers:
            self.wake()

    def on_gone(self) -> None:
        self.drop()

    def wake(self) -> None:
        """Let readers look, one after the other, on a turn of its own."""
        if self.readers and not self._is_waking:
            self._is_waking = True
            self.partition.runtime.call_soon(self._serve)

    def _serve(self) -> None:
        self._is_waking = False
        for _ in range(len(self.readers)):
            if not self.readers or not self.can_serve():
                return
            reader = next(iter(self.readers))
            # A reader that must go on waiting comes back to the end of the line.
            del self.readers[reader]
            reader.look_again()

    def _send_all(self) -> None:
        """Have every reader look again: it is loaded now, or gone."""
        readers, self.readers = self.readers, {}
        for reader in readers:
            self.partition.runtime.call_soon(reader.look_again)

    # Ending

    def retire(self) -> None:
        """Drop it as soon as everything is written: no member of the group has a session here."""
        self.is_retiring = True
        if self._may_retire:
            self.drop()

    @property
    def _is_written(self) -> bool:
        return not self.writes and (self.writer is None or not self.writer.is_working)

    @property
    def _may_retire(self) -> bool:
        return self.is_retiring and self._is_written

    def drop(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """Forget it. Readers look for the leader again, or are answered with the error if there is one."""
        if self.is_dropped:
            return
        self.is_dropped = True
        self.partition.advance_listeners.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.writer is not None:
            self.writer.close()
        self._on_dropped(self)
        if code:
            name = self.partition.topic_id.bytes, self.partition.index
            for reader in self.readers:
                reader.on_refused(name, code)
        self._send_all()


def _milliseconds(reset: str) -> int:
    found = _DURATION.fullmatch(reset)
    if found is None:
        return 0
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def _ignore(*_: object) -> None:
    """Do nothing: no client waits for it."""
