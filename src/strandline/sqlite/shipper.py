"""Ships a database into its topic: snapshots, and the transactions of the WAL behind them.

The state of the database stands in the header of each record, so it is committed together with the pages. A shipper
begins with the last committed record. It goes on from there only if the pages of the file, as of that position in the
WAL, have the sum that the record names. Otherwise it begins a new generation with a snapshot. So a database that was
replaced, restored or changed while no shipper ran is never continued wrongly.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from strandline.runtime.fault_points import fault_point
from strandline.sqlite.database import FollowedDatabase
from strandline.sqlite.failures import ShippingFailed, TopicUnavailable
from strandline.sqlite.page_sums import PageSums
from strandline.sqlite.records import (
    SNAPSHOT,
    TRANSACTION,
    DatabaseState,
    ShippedHeader,
    encode_pages,
    part_pages,
)
from strandline.sqlite.snapshots import is_unfinished, snapshot_of
from strandline.sqlite.topic import SILENCE_S, ShippedTopic, ShippingProducer
from strandline.sqlite.wal import DamagedWal, IndexHeader, Salts

COMMIT_BYTES: Final = 16 * 1024 * 1024
"""Bytes of pages after which a Kafka transaction is committed."""
FORCED_FACTOR: Final = 10
"""Times `checkpoint_pages` at which writers are held back for a checkpoint."""
_TRIES: Final = 10
_UNWRITTEN: Final = (0, 0)
"""Salts of a frame whose header SQLite forgot to complete."""
_SALT_MASK: Final = 0xFFFF_FFFF


@dataclass(frozen=True)
class ShipSettings:
    """What a user chooses."""

    snapshot_interval_s: float = 86_400.0
    checkpoint_pages: int = 1000
    poll_s: float = 0.1
    replaces: bool = False
    """Whether a topic of another database may be continued with this one."""


class DatabaseShipper:
    """A shipper that has the topic for itself, until another one fences it."""

    def __init__(
        self,
        database: FollowedDatabase,
        topic: ShippedTopic,
        writer: ShippingProducer,
        settings: ShipSettings,
        say: Callable[[str], None],
    ) -> None:
        self._database = database
        self._topic = topic
        self._writer = writer
        self._settings = settings
        self._say = say
        self._state = DatabaseState("", 0, database.page_bytes, 0, 0, (0, 0), 0, (0, 0))
        self._sums = PageSums(database.page_bytes)
        self._in_wal: dict[int, int] = {}
        """The newest shipped frame of each page in the current WAL."""
        self._is_wal_sound = True
        """Whether all frames of the current WAL have its salts and the right checksums."""
        self._snapshot: int | None = None
        self._snapshot_at_ms = 0
        self._at_ms = 0
        self._uncommitted_bytes = 0
        self._checkpointed_frames = 0
        self._forced_frames = 0

    @property
    def state(self) -> DatabaseState:
        return self._state

    def start(self, timeout_s: float) -> None:
        """Fence earlier shippers and find the place to go on, or ship a snapshot."""
        self._writer.start(timeout_s)
        begin, end = self._topic.bounds()
        last = self._topic.last_before(end, begin)
        if last is None:
            self._begin_generation("the topic is empty")
            return
        header = last.header
        if header.database != str(self._database.path) and not self._settings.replaces:
            raise ShippingFailed(
                f"topic {self._topic.name} holds the database {header.database}: ship into another topic, or say "
                "--replace if this is the same database at another place"
            )
        self._at_ms = header.at_ms
        self._state = header.state
        self._snapshot = snapshot_of(last)
        if is_unfinished(header):
            self._begin_generation("the last snapshot is not whole")
        elif not header.is_last:
            self._begin_generation("the last transaction is not whole")
        elif self._snapshot is None or self._snapshot < begin:
            self._begin_generation("retention has deleted the last snapshot")
        elif not self._is_continued():
            self._begin_generation("the database has changed while it was not followed")
        else:
            self._snapshot_at_ms = self._topic.at(self._snapshot).header.at_ms
            self._say(f"continue behind transaction {self._state.transaction}")

    def follow(self, *, once: bool = False) -> None:
        """Ship what is committed to the database, until the process is interrupted; or with `once` until now."""
        while True:
            shipped = self._ship_frames()
            if self._now_ms() - self._snapshot_at_ms >= self._settings.snapshot_interval_s * 1000:
                self._ship_snapshot(expected=self._state.checksum)
            self._let_go()
            if not shipped:
                self._database.check_in_place()
                if once:
                    self._wait_shown()
                    return
                time.sleep(self._settings.poll_s)

    def _wait_shown(self) -> None:
        """Wait until readers see the last record: a commit returns before the partition has its marker."""
        until = time.monotonic() + SILENCE_S
        while time.monotonic() < until:
            begin, end = self._topic.bounds()
            last = self._topic.last_before(end, begin)
            if last is not None and last.header.state.checksum == self._state.checksum and last.header.is_last:
                return
        raise TopicUnavailable(f"topic {self._topic.name} does not show the last transaction to readers")

    # Continuity

    def _is_continued(self) -> bool:
        """Return whether the file had exactly the pages of the state, and where its WAL goes on from there."""
        state, database = self._state, self._database
        if state.page_bytes != database.page_bytes:
            return False
        index = database.index()
        self._in_wal = {}
        if index.salts == state.salts:
            if index.frames < state.frames:
                return False
            for frame, (page, _, salts, wal_sum) in enumerate(database.frame_heads(state.frames)):
                if salts != index.salts or (frame + 1 == state.frames and wal_sum != state.wal_sum):
                    return False
                self._in_wal[page] = frame
        else:
            # If the file itself has all shipped transactions, those of the new WAL follow them.
            self._state = state = replace(state, salts=index.salts, frames=0, wal_sum=(0, 0))
        self._sums = PageSums(database.page_bytes)
        for _, content in database.chunks(state.pages, self._in_wal, index.salts, part_pages(state.page_bytes)):
            self._sums.extend(content)
        return self._sums.total == state.checksum

    def _begin_generation(self, reason: str) -> None:
        self._say(f"ship a snapshot: {reason}")
        for tried in range(1, _TRIES + 1):
            try:
                # A writer may begin the WAL again between two reads. If checksums stay wrong, SQLite wrote them so:
                # before 3.50.2 it does after ROLLBACK TO in a transaction beyond its cache. The index is right then.
                self._look_at_wal(is_checked=tried <= _TRIES // 2)
                break
            except DamagedWal:
                if tried == _TRIES:
                    raise
        self._ship_snapshot()

    def _look_at_wal(self, *, is_checked: bool) -> None:
        """Take the committed end of the WAL as the position of a new generation."""
        database = self._database
        index = database.index()
        state = DatabaseState(
            uuid.uuid4().hex,
            self._state.transaction,
            database.page_bytes,
            index.pages if index.frames else database.file_pages(),
            0,
            index.salts,
            index.frames,
            index.sum if index.frames else (0, 0),
        )
        self._in_wal = {}
        if not is_checked:
            for number, (page, _, salts, _) in enumerate(database.frame_heads(index.frames)):
                if salts not in (index.salts, _UNWRITTEN):
                    raise DamagedWal(f"frame {number} of {database.path}-wal is not of this WAL")
                self._in_wal[page] = number
        elif index.frames:
            header = database.header_of(index.salts)
            for number, frame in database.frames(header, 0, index.frames, header.sum):
                self._in_wal[frame.page_number] = number
        self._state, self._is_wal_sound = state, is_checked

    # Snapshots

    def _ship_snapshot(self, expected: int | None = None) -> None:
        """Write all pages. One that goes on with a generation must have the sum of its transactions."""
        state, previous = self._state, self._snapshot
        limit = part_pages(state.page_bytes)
        sums = PageSums(state.page_bytes)
        offsets: list[int] = []
        salts = Salts(*state.salts) if self._is_wal_sound else None
        for part, (first, content) in enumerate(self._database.chunks(state.pages, self._in_wal, salts, limit)):
            sums.extend(content)
            is_last = first + limit > state.pages
            if is_last and expected is not None and sums.total != expected:
                self._commit()
                self._begin_generation("the file has other pages than its transactions made")
                return
            if is_last and salts is None and self._database.index().salts != state.salts:
                self._commit()
                self._begin_generation("the WAL was begun again during the snapshot")
                return
            if is_last:
                state = replace(state, checksum=sums.total)
            header = ShippedHeader(
                SNAPSHOT,
                state,
                part,
                is_last,
                self._now_ms(),
                str(self._database.path),
                first=first,
                start=offsets[0] if offsets else None,
                snapshot=previous,
            )
            self._write(header, content, offsets.append if not part else None)
            if not part:
                self._writer.flush()
                if not offsets:
                    raise TopicUnavailable(f"topic {self._topic.name} did not take the first part of a snapshot")
            fault_point("sqlite-snapshot-part")
        self._commit()
        self._state, self._sums = state, sums
        self._snapshot, self._snapshot_at_ms = offsets[0], self._at_ms

    # Transactions

    def _ship_frames(self) -> bool:
        """Ship the transactions that are committed, and return whether there were any."""
        index = self._database.index()
        state = self._state
        if index.salts != state.salts:
            restarts = (index.salts.first - state.salts[0]) & _SALT_MASK
            if index.frames and state.frames and restarts != 1:
                self._begin_generation("the WAL was begun again more than once")
                return True
            self._in_wal, self._is_wal_sound = {}, True
            self._checkpointed_frames = self._forced_frames = 0
            self._state = state = replace(state, salts=index.salts, frames=0, wal_sum=(0, 0))
        if index.frames < state.frames:
            self._begin_generation("the WAL is shorter than what was shipped")
            return True
        if index.frames == state.frames:
            return False
        try:
            self._ship_until(index)
        except DamagedWal as damage:
            self._begin_generation(str(damage))
        return True

    def _ship_until(self, index: IndexHeader) -> None:
        header = self._database.header_of(index.salts)
        at_ms = self._now_ms()
        limit = part_pages(self._state.page_bytes)
        before = self._state.wal_sum if self._state.frames else header.sum
        pages: dict[int, memoryview] = {}
        part = count = 0
        for number, frame in self._database.frames(header, self._state.frames, index.frames, before):
            pages[frame.page_number] = frame.page
            self._in_wal[frame.page_number] = number
            count += 1
            is_last = frame.pages_if_commit > 0
            if count < limit and not is_last:
                continue
            for each in pages.items():
                self._sums.put(*each)
            if is_last:
                self._sums.resize(frame.pages_if_commit)
                self._state = replace(
                    self._state,
                    transaction=self._state.transaction + 1,
                    pages=frame.pages_if_commit,
                    checksum=self._sums.total,
                    frames=number + 1,
                    wal_sum=frame.sum,
                )
            self._write_part(part, pages, at_ms, is_last=is_last)
            pages, count = {}, 0
            part = 0 if is_last else part + 1
        self._commit()

    def _write_part(self, part: int, pages: dict[int, memoryview], at_ms: int, *, is_last: bool) -> None:
        header = ShippedHeader(
            TRANSACTION, self._state, part, is_last, at_ms, str(self._database.path), snapshot=self._snapshot
        )
        self._write(header, encode_pages(pages))
        fault_point("sqlite-part-written")

    def _write(
        self, header: ShippedHeader, value: bytes | memoryview, on_offset: Callable[[int], None] | None = None
    ) -> None:
        self._writer.write(header, value, on_offset)
        self._uncommitted_bytes += len(value)
        if self._uncommitted_bytes >= COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        self._writer.commit()
        self._uncommitted_bytes = 0

    def _now_ms(self) -> int:
        """Return the time, which goes on even if the clock jumps back."""
        self._at_ms = max(self._at_ms, int(time.time() * 1000))
        return self._at_ms

    # Read transactions, checkpoints

    def _let_go(self) -> None:
        """Let SQLite write shipped frames to the database, and begin the WAL again when it is long."""
        frames, limit = self._state.frames, self._settings.checkpoint_pages
        if frames < limit or frames - self._checkpointed_frames < max(1, limit // FORCED_FACTOR):
            # Frames that are not shipped stay out of the file, so that a shipper that ends now can be continued.
            if self._is_all_shipped():
                self._database.renew_reader()
            return
        self._checkpointed_frames = frames
        if frames - self._forced_frames < FORCED_FACTOR * limit:
            self._checkpoint()
            return
        self._forced_frames = frames
        with self._database.writers_held() as is_held:
            while is_held and self._ship_frames():
                pass
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Begin a new read transaction and, if it sees only what is shipped, make a checkpoint."""
        self._database.renew_reader()
        if self._is_all_shipped():
            fault_point("sqlite-before-checkpoint")
            self._database.checkpoint()
            fault_point("sqlite-after-checkpoint")

    def _is_all_shipped(self) -> bool:
        index = self._database.index()
        return index.frames == self._state.frames and index.salts == self._state.salts
