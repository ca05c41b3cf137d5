"""`__cluster_metadata-0`: performs what the controller decides.

Records go into the log as one batch, the batch is flushed, then they are folded into the image, then whoever asked is
told. So nothing is answered, and no producer id leaves, that a crash could take back. One node is a quorum of one: each
start takes a new epoch, written to `quorum-state` and announced by a leader change record, as KRaft does.
"""

from __future__ import annotations

import logging
import re
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from uuid import UUID

from strandline.codec.columns import Record, columns_of, decode_batch, encode_batch
from strandline.codec.internal_records import decode_metadata_record, encode_metadata_record
from strandline.codec.message import encode
from strandline.codec.messages.leader_change_message import LeaderChangeMessage, Voter
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.record_batch import parse_header
from strandline.errors import CorruptLog, StrandlineError
from strandline.ids import TopicPartition
from strandline.log.flusher import Flusher
from strandline.log.log_directory import LogDirectory
from strandline.observability.log_lines import fields
from strandline.quorum.cluster_image import ClusterImage
from strandline.quorum.quorum_state import QuorumState
from strandline.quorum.topic_names import CLUSTER_METADATA
from strandline.runtime import Runtime
from strandline.topic_config import TopicConfig

log = logging.getLogger("strandline.metadata")

NAME: Final = TopicPartition(CLUSTER_METADATA, 0)
QUORUM_STATE: Final = "quorum-state"
LEADER_CHANGE_KEY: Final = b"\x00\x00\x00\x02"
"""Control record key: version 0, type 2."""
FOLD_S_MAX: Final = 0.005
"""What folding flushed writes may take of one turn of the loop, save that one write is folded as a whole."""
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")

Done = Callable[[BaseException | None], object]


class MetadataLog:
    is_leader = True

    def __init__(
        self,
        directory: LogDirectory,
        runtime: Runtime,
        flusher: Flusher,
        *,
        node_id: int,
        segment_bytes: int,
    ) -> None:
        self._directory = directory
        self._runtime = runtime
        self._flusher = flusher
        self._node_id = node_id
        self.image = ClusterImage()
        self.removed_topic_ids: set[UUID] = set()
        """Topics that the log saw go, for the start: a crash may have left their directories."""
        self.on_applied: Callable[[list[Any], Callable[[], object]], None] | None = None
        """Told of records that have just become part of the image; calls back when they have taken effect here."""
        self.on_failed: Callable[[list[Any]], None] | None = None
        """Told that a write failed, with the records of earlier ones that are still under way."""
        self._pending: deque[tuple[int, int, list[Any], Done]] = deque()
        self._is_fold_due = False
        self.log = directory.open_log(NAME, TopicConfig(segment_bytes=segment_bytes), now_ms=runtime.now_ms())
        # What recovery found in the file is flushed before it is believed.
        self.log.flush_now()
        self._load()
        self.epoch = self._take_epoch()
        self.log.on_flushed = self._on_flushed
        self.log.on_failed = self._on_failed

    @property
    def next_offset(self) -> int:
        return self.log.log_end_offset

    # Starting

    def _load(self) -> None:
        start = self._load_snapshot()
        if self.log.log_start_offset > start:
            raise CorruptLog(
                f"{self.log.directory}: the log begins at {self.log.log_start_offset} and no snapshot does"
            )
        for batch in self.log.batches(max(start, self.log.log_start_offset)):
            columns = decode_batch(batch)
            if columns.is_control:
                continue
            for record in columns:
                if record.offset >= start:
                    self._apply(record)

    def _load_snapshot(self) -> int:
        """Fold the newest snapshot, if there is one; the offset it ends at."""
        disk = self._directory.disk
        names = [name for name in disk.names(self.log.directory) if _SNAPSHOT.fullmatch(name)]
        if not names:
            return 0
        for columns in columns_of(disk.read_whole(self.log.directory / names[-1])):
            if not columns.is_control:
                for record in columns:
                    self._apply(record)
        return int(names[-1][:20])

    def _apply(self, record: Record) -> None:
        if record.value is None:
            raise CorruptLog(f"{self.log.directory}: record {record.offset} has no value")
        decoded = decode_metadata_record(record.value)
        if isinstance(decoded, RemoveTopicRecord):
            self.removed_topic_ids.add(decoded.topic_id)
        self.image.apply(decoded, record.offset)

    def _take_epoch(self) -> int:
        """Lead a new epoch: remembered on disk before anything is written in it."""
        disk = self._directory.disk
        path = self.log.directory / QUORUM_STATE
        before = QuorumState.parse(disk.read_whole(path).decode()) if disk.exists(path) else QuorumState()
        epoch = max(before.leader_epoch, self.log.leader_epochs.latest) + 1
        state = QuorumState(leader_epoch=epoch, leader_id=self._node_id, voted_id=self._node_id)
        disk.write_whole(path, state.text().encode(), sync=True)
        voters = [Voter(voter_id=self._node_id)]
        change = LeaderChangeMessage(leader_id=self._node_id, voters=voters, granting_voters=voters)
        value = encode(change, 0)
        record = Record(timestamp_ms=self._runtime.now_ms(), key=LEADER_CHANGE_KEY, value=value)
        self._append([record], epoch, control=True)
        return epoch

    def write_now(self, records: list[Any]) -> None:
        """Write, flush and fold before returning; only while the node starts."""
        assert not self._pending
        base_offset = self._append_records(records)
        self.log.flush_now()
        self._fold(base_offset, records, lambda: None)

    # Running

    def write(self, records: list[Any], on_done: Done) -> None:
        """Append `records` as one batch and call `on_done` when they are flushed and in the image.

        With no records, `on_done` is called when everything before is.
        """
        if self.log.failure is not None:
            on_done(self.log.failure)
            return
        if not records:
            if not self._pending:
                on_done(None)
            else:
                self._pending.append((self.next_offset, self.next_offset, [], on_done))
            return
        try:
            base_offset = self._append_records(records)
        except StrandlineError as error:
            if self.on_failed is not None:
                self.on_failed([record for _, _, pending, _ in self._pending for record in pending])
            on_done(error)
            return
        self._pending.append((base_offset, self.next_offset, records, on_done))
        self._flusher.flush_soon(self.log)

    def _append_records(self, records: list[Any]) -> int:
        now_ms = self._runtime.now_ms()
        base_offset = self.next_offset
        values = [Record(timestamp_ms=now_ms, value=encode_metadata_record(record)) for record in records]
        self._append(values, self.epoch, control=False)
        return base_offset

    def _append(self, records: list[Record], epoch: int, *, control: bool) -> None:
        batch = bytearray(encode_batch(records, control=control))
        self.log.append(batch, parse_header(batch), leader_epoch=epoch, now_ms=self._runtime.now_ms())

    def _fold(self, base_offset: int, records: list[Any], then: Callable[[], object]) -> None:
        for offset, record in enumerate(records, base_offset):
            self.image.apply(record, offset)
        if self.on_applied is not None:
            self.on_applied(records, then)
        else:
            then()

    def _on_flushed(self) -> None:
        """Fold what is on disk now, a share per turn of the loop: thousands of records take their time."""
        until = self._runtime.monotonic() + FOLD_S_MAX
        pending = self._pending
        while pending and pending[0][1] <= self.log.flushed_offset:
            if self._runtime.monotonic() > until:
                if not self._is_fold_due:
                    self._is_fold_due = True
                    self._runtime.call_soon(self._fold_on)
                return
            base_offset, _, records, on_done = pending.popleft()
            self._fold(base_offset, records, partial(on_done, None))

    def _fold_on(self) -> None:
        self._is_fold_due = False
        self._on_flushed()

    def _on_failed(self, error: StrandlineError) -> None:
        log.error("the metadata log failed: %s", error, extra=fields(reason=str(error)))
        while self._pending and self._pending[0][1] <= self.log.flushed_offset:
            # On disk before the failure, and only waiting for its turn to be folded.
            base_offset, _, records, on_done = self._pending.popleft()
            self._fold(base_offset, records, partial(on_done, None))
        if self.on_failed is not None:
            self.on_failed([])
        while self._pending:
            self._pending.popleft()[3](error)

    def close(self) -> None:
        self.log.close()
