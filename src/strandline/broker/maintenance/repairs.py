"""Rebuilds a damaged segment of a replica with the records of the leader, and replaces the old one.

What is sound of it is copied. What is not is read as a consumer would read it, by ordinary Fetch requests on a
connection of its own, and checked. All of it is written beside the damaged files and swapped in. Nothing is cut, the
log end and the in-sync set stay as they are, and readers of other segments notice nothing.

Cleaners work at different times. A value that the leader still has may be one whose tombstone was removed here, and a
tombstone that the leader has removed may be needed here. Where either may be, this replica is not mended: it copies all
of the leader's log again, as one that was away for too long does (decision 0037). What is mended counts as dirty: the
leader's records may be older than what the cleaner has left here, and their tombstones are in the clean part.

Before the swap the recovery points are written down: a segment that lacks records must lie below them (`swapping`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.broker.network.channel import Channel
from strandline.codec.fetch import FetchedPartition, PartitionFetch, encode_follower_fetch, parse_fetch_answer
from strandline.codec.messages.resign_leadership_request import (
    ResignedPartition,
    ResignedTopic,
    ResignLeadershipRequest,
)
from strandline.codec.messages.resign_leadership_response import ResignLeadershipResponse
from strandline.codec.record_batch import (
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    PREFIX_SIZE,
    RECORD_COUNT,
    HeaderFields,
    check_run,
)
from strandline.errors import CorruptBatch, ErrorCode, StrandlineError, named
from strandline.ids import TopicPartition
from strandline.log.maintenance.segment_rebuild import Hole, RebuiltSegment
from strandline.log.maintenance.segment_replacement import replace_segments
from strandline.log.segment.read_verification import distrust
from strandline.log.segment.segment import Segment
from strandline.partition.partition import Partition

if TYPE_CHECKING:
    from strandline.broker.environment import Environment
    from strandline.broker.kraft.controller_channel import ControllerChannel
    from strandline.broker.lazy import Lazy
    from strandline.broker.maintenance.log_cleaner import LogCleaner
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.log.cleaning.job import CleanedGroup
    from strandline.log.log_directory import Files

FETCH_API_KEY: Final = 1
FETCH_VERSION: Final = 17
PIECE_BYTES: Final = 1024 * 1024
WAIT_MS: Final = 500
FETCH_TIMEOUT_S: Final = 30.0
RESIGN_TIMEOUT_S: Final = 10.0
CONSUMER: Final = -1
NO_SESSION: Final = -1

OnEnded = Callable[[str | None], object]
"""None if it is mended; else why it is not, for a person to read."""


class SegmentRepair:
    """One segment of a partition that is followed here, on its way to being whole again."""

    def __init__(
        self,
        storage: LogStorage,
        cleaner: Lazy[LogCleaner],
        partition: Partition,
        segment: Segment,
        on_ended: OnEnded,
    ) -> None:
        self._storage = storage
        self._cleaner = cleaner
        self._runtime = storage.environment.runtime
        self._partition = partition
        self._log = partition.log
        self._segment = segment
        self._on_ended = on_ended
        self._leader_id = partition.leader_id
        self._leader_epoch = partition.leader_epoch
        self._cuts = partition.log.cuts
        self._end_offset = partition.log.end_of(segment.base_offset)
        self._hole = Hole(segment.base_offset, segment.base_offset)
        self._next_offset = segment.base_offset
        self._made: RebuiltSegment | None = None
        self._channel: Channel | None = None
        self._is_closed = False
        self._is_holding = False

    def begin(self) -> None:
        if self._partition in self._storage.replicas.fetchers.giving_up:
            self._end("all of the log is copied again from the leader")
        elif self._log.flushed_offset < self._end_offset:
            self._storage.flusher.flush_soon(self._log)
            self._end("it waits to be flushed")
        else:
            # The cleaner makes files of the same names, and may be at the same segment.
            self._is_holding = True
            self._cleaner.get().hold(self._partition, self._on_held)

    def _on_held(self) -> None:
        reason = self._why_not_on()
        if reason is not None:
            self._end(reason)
        else:
            self._storage.checkpoints.write_recovery_points(self._on_recovery_points)

    def close(self) -> None:
        """The node stops. Files that are half done are removed by the next start."""
        self._is_closed = True
        if self._channel is not None:
            self._channel.close()

    def _on_recovery_points(self, error: BaseException | None) -> None:
        if error is not None:
            self._end(f"the recovery points could not be written: {error}")
            return
        address = self._storage.replicas.fetchers.address_of(self._leader_id)
        if address is None:
            self._end("its leader is not there")
            return
        self._channel = self._storage.replicas.fetchers.connect(*address)
        self._runtime.in_thread(partial(RebuiltSegment, self._segment, self._end_offset), self._on_made)

    def _on_made(self, made: RebuiltSegment | None, error: BaseException | None) -> None:
        self._made = made
        if made is None:
            self._end(f"there is no room for it: {error}")
        else:
            self._copy()

    # Copying

    def _copy(self) -> None:
        reason = self._why_not_on()
        if reason is not None or self._made is None:
            self._end(reason or "nothing was made")
        elif retained(self._segment):
            self._runtime.in_thread(self._made.copy_some, self._on_copied)
        else:
            self._end("its file cannot be opened")

    def _on_copied(self, copied: Hole | bool | None, error: BaseException | None) -> None:
        self._segment.release()
        if copied is None:
            if isinstance(error, StrandlineError):
                # Something changed that was sound when it was last looked at: all of it is looked at once more.
                distrust(self._segment, self._log)
            self._end(f"it could not be copied: {error}")
        elif isinstance(copied, Hole):
            self._hole = copied
            # What was deleted since need not be mended.
            self._next_offset = max(copied.start_offset, self._log.log_start_offset)
            if self._next_offset < self._log.tombstone_horizon:
                self._copy_again("tombstones behind it were removed here")
            else:
                self._go_on()
        elif copied:
            self._copy()
        else:
            self._finish()

    def _go_on(self) -> None:
        if self._next_offset < self._hole.end_offset:
            self._fetch()
        else:
            self._copy()

    # Fetching

    def _copy_again(self, reason: str) -> None:
        is_begun = self._storage.replicas.fetchers.copy_again(self._partition)
        what = "all of the log is copied again from the leader" if is_begun else "too few other replicas are in sync"
        self._end(f"{reason}, and {what}")

    def _why_not_on(self) -> str | None:
        """Why it makes no sense to go on."""
        log, partition = self._log, self._partition
        if self._is_closed or log.failure is not None:
            return "the log is closed"
        if partition.is_leader or partition.leader_epoch != self._leader_epoch:
            return "another leads now"
        if self._segment not in log.segments or log.cuts != self._cuts:
            return "the log has changed"
        return None

    def _fetch(self) -> None:
        reason = self._why_not_on()
        if reason is not None or self._channel is None:
            self._end(reason or "there is no connection")
            return
        partition = self._partition
        wanted = PartitionFetch(
            partition.topic_id.bytes, partition.index, self._leader_epoch, self._next_offset, -1, -1, PIECE_BYTES
        )
        body = encode_follower_fetch(
            FETCH_VERSION,
            replica_id=CONSUMER,
            replica_epoch=-1,
            wait_ms_max=WAIT_MS,
            size_bytes_max=PIECE_BYTES,
            session_id=0,
            session_epoch=NO_SESSION,
            partitions=[wanted],
            forgotten=[],
        )
        self._channel.ask_raw(FETCH_API_KEY, FETCH_VERSION, [body], self._on_answer, timeout_s=FETCH_TIMEOUT_S)

    def _on_answer(self, body: memoryview | None, error: BaseException | None) -> None:
        reason = self._why_not_on()
        if reason is not None or body is None:
            self._end(reason or f"its leader could not be asked: {error}")
            return
        try:
            answer = parse_fetch_answer(body, 0, FETCH_VERSION)
            code = answer.error_code or (answer.partitions[0].error_code if answer.partitions else 0)
            if code:
                self._end(f"its leader said {named(code).name}")
                return
            if not answer.partitions:
                self._end("its leader said nothing of it")
                return
            headers, size = self._checked(answer.partitions[0])
        except StrandlineError as refused:
            self._end(str(refused))
            return
        if size < 0 or _has_gaps(headers, self._next_offset):
            self._copy_again("the leader's cleaner has removed records of it")
        elif headers:
            run = bytes(answer.partitions[0].records[:size])
            self._write(run, headers)
        else:
            self._end("its leader has not committed it yet")

    def _checked(self, fetched: FetchedPartition) -> tuple[list[HeaderFields], int]:
        """The batches of the hole at the beginning of what came, and their size; -1 if there are no more."""
        first, end_offset = self._next_offset, self._hole.end_offset
        if first == self._log.log_start_offset:
            # The batch that holds it may begin before.
            first = self._hole.start_offset
        headers, size = check_run(fetched.records, next_offset=first, leader_epoch=self._leader_epoch)
        kept = [header for header in headers if header[BASE_OFFSET] < end_offset]
        if not kept:
            # Nothing up to the high watermark: the leader's cleaner took it.
            return [], -1 if headers or fetched.high_watermark >= end_offset else 0
        epochs = self._log.leader_epochs
        for header in kept:
            base_offset, epoch = header[BASE_OFFSET], header[LEADER_EPOCH]
            if base_offset + header[LAST_OFFSET_DELTA] >= end_offset:
                raise CorruptBatch(f"batch {base_offset} reaches beyond {end_offset - 1}")
            if epochs.epoch_of(base_offset) not in (epoch, -1):
                raise CorruptBatch(f"batch {base_offset} was fetched with epoch {epoch}")
        if len(kept) < len(headers):
            size = sum(header[BATCH_LENGTH] + PREFIX_SIZE for header in kept)
        return kept, size

    def _write(self, run: bytes, headers: Sequence[HeaderFields]) -> None:
        made = self._made
        assert made is not None
        self._next_offset = headers[-1][BASE_OFFSET] + headers[-1][LAST_OFFSET_DELTA] + 1

        def on_written(_: None, error: BaseException | None) -> None:
            if error is not None:
                self._end(f"it could not be written: {error}")
            else:
                self._go_on()

        self._runtime.in_thread(partial(made.add, run, headers), on_written)

    # Swapping

    def _finish(self) -> None:
        made, directory = self._made, self._storage.directory
        assert made is not None
        name, base_offset = TopicPartition(self._partition.topic, self._partition.index), self._segment.base_offset
        files: Files = {}
        if directory.cleaner_offsets.get(name, 0) > base_offset:
            directory.cleaner_offsets[name] = base_offset
            files = directory.changed_cleaner_offsets()

        def finish() -> CleanedGroup:
            directory.save(files)
            return made.finish()

        self._runtime.in_thread(finish, self._on_finished)

    def _on_finished(self, group: CleanedGroup | None, error: BaseException | None) -> None:
        reason = self._why_not_on()
        if group is None or reason is not None:
            self._storage.directory.forget_checkpoints()
            self._end(reason or f"it could not be written: {error}")
            return
        self._made = None
        replace_segments(
            self._log,
            group,
            runtime=self._runtime,
            sources=[self._segment],
            cuts=self._cuts,
            on_done=lambda failed: self._end(None if failed is None else str(failed)),
            remove=self._log.remove_files,
        )

    def _end(self, reason: str | None) -> None:
        if self._is_holding:
            self._is_holding = False
            self._cleaner.get().release(self._partition)
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        made, self._made = self._made, None
        if made is None or self._log.failure is not None:
            self._runtime.call_soon(self._on_ended, reason)
        else:
            self._runtime.in_thread(made.discard, lambda *_: self._on_ended(reason))


def _has_gaps(headers: Sequence[HeaderFields], next_offset: int) -> bool:
    """Tell whether records are missing among batches that are to go on at `next_offset`: a cleaner removed them."""
    for header in headers:
        if header[BASE_OFFSET] > next_offset or header[RECORD_COUNT] <= header[LAST_OFFSET_DELTA]:
            return True
        next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    return False


def retained(segment: Segment) -> bool:
    try:
        segment.retain()
    except OSError:
        return False
    return True


def resign(
    environment: Environment,
    controller: ControllerChannel,
    broker_epoch: Callable[[], int],
    partition: Partition,
    on_ended: OnEnded,
) -> None:
    """Ask the controller that another in-sync replica leads; None to `on_ended` if one does."""
    asked = ResignedTopic(partition.topic_id, [ResignedPartition(partition.index, partition.leader_epoch)])
    request = ResignLeadershipRequest(environment.node_id, broker_epoch(), [asked])

    def on_answer(response: ResignLeadershipResponse | None, error: BaseException | None) -> None:
        if response is None:
            on_ended(f"the controller could not be asked: {error}")
            return
        results = [result.error_code for topic in response.topics for result in topic.partitions]
        code = named(response.error_code or (results[0] if results else ErrorCode.UNKNOWN_SERVER_ERROR))
        # That this epoch is over is as good: the leader was elected since.
        is_done = code in (ErrorCode.NONE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        on_ended(None if is_done else f"the controller said {code.name}")

    controller.ask(request, 0, on_answer, timeout_s=RESIGN_TIMEOUT_S)
