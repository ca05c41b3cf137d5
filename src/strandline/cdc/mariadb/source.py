"""MariadbCdcSource: changes of a MariaDB's tables, exactly once, with GTIDs as positions."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from strandline.cdc.envelope import MARIADB_SOURCE
from strandline.cdc.events import EventMaker
from strandline.cdc.mariadb.binlog import BinlogStream
from strandline.cdc.mariadb.changes import BinlogChanges
from strandline.cdc.mariadb.connection import BinlogGone, check_server, close, connect, explained, query
from strandline.cdc.mariadb.gtid import GtidPosition
from strandline.cdc.mariadb.prepared import check_none_prepared
from strandline.cdc.mariadb.settings import MariadbCdcConfig
from strandline.cdc.mariadb.snapshot import MariadbSnapshot
from strandline.cdc.mariadb.tables import MariadbTables
from strandline.cdc.names import TopicNames
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.records import Batch, SourceOffsets, SourcePosition
from strandline.connect.source import Source
from strandline.runtime.fault_points import fault_point

_LOG: Final = logging.getLogger(__name__)
WAIT_S: Final = 0.2
"""How often a source that waits for changes looks whether it is to stop."""
POSITION_S: Final = 10.0
"""How often a position is stored while only other tables change."""
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024


class MariadbCdcSource(Source):
    """Captures changes of MariaDB by its row binlog, in Debezium's envelope."""

    Config: ClassVar = MariadbCdcConfig
    config: MariadbCdcConfig

    def __init__(self, config: MariadbCdcConfig) -> None:
        super().__init__(config)
        self._partition = config.partition
        self._names = TopicNames(config)
        self._maker = EventMaker(config, self._names, MARIADB_SOURCE)
        self._tables = MariadbTables(config)
        self._heartbeat_s = time.monotonic()
        self._stored_s = time.monotonic()
        self._stored: Mapping[str, Any] = {}
        self._is_part_open = False
        """Whether parts of a large transaction were given, but not its last one."""
        self._open: MariadbSnapshot | BinlogStream | None = None

    def open(self) -> None:
        """Check the server's settings."""
        connection = connect(self.config)
        try:
            with explained(self.config):
                check_server(connection, self.config)
        finally:
            close(connection)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    async def committed(self, positions: Sequence[SourcePosition]) -> None:
        """Do nothing: the server keeps no position of a reader. A plain method would wait for `read`."""

    def read(self, offsets: SourceOffsets) -> Iterator[Batch]:
        """Yield the snapshot if there has to be one, and then changes for ever."""
        stored = offsets.get(self._partition)
        try:
            start = stored
            if self._needs_snapshot(stored):
                start = yield from self._snapshot()
                if self.config.snapshot_mode == "initial_only":
                    return
            try:
                yield from self._stream(start)
            except BinlogGone as error:
                if self.config.snapshot_mode != "when_needed":
                    raise
                _LOG.warning("%s: a new snapshot begins", error)
                start = yield from self._snapshot()
                yield from self._stream(start)
        finally:
            self.close()

    def _needs_snapshot(self, stored: Mapping[str, Any] | None) -> bool:
        mode = self.config.snapshot_mode
        if mode == "never":
            return False
        if stored is None or mode == "always":
            return True
        if "snapshot" in stored:
            _LOG.warning("the last snapshot of %s was not finished: it begins again", self.config.topic_prefix)
            return True
        return False

    def _snapshot(self) -> Generator[Batch, None, Mapping[str, Any]]:
        """Yield the snapshot's batches. Return the offset where the stream goes on."""
        if self.config.snapshot_delay_ms and self.stopping.wait(self.config.snapshot_delay_ms / 1000):
            return {}
        snapshot = self._open = MariadbSnapshot(self.config, self._tables, self._names)
        try:
            offset = snapshot.position.offset
            for records, is_last in snapshot.batches(has_rows=self.config.snapshot_mode != "no_data"):
                if self.stopping.is_set():
                    return offset
                # Only the last batch has the offset of a snapshot that is whole: a crash before begins it again.
                yield Batch(records, self._partition, offset if is_last else {**offset, "snapshot": "INITIAL"})
                fault_point("mariadb-cdc-snapshot")
            return offset
        finally:
            snapshot.close()

    def _stream(self, start: Mapping[str, Any] | None) -> Iterator[Batch]:
        """Yield changes behind an offset: whole transactions, or parts of one that are open but for the last."""
        position = self._position(start)
        changes = BinlogChanges(self.config, self._tables, self._names, position, start or {})
        stream = self._open = BinlogStream(self.config, position)
        size = 0
        while not self.stopping.is_set():
            # With records at hand only what has come already is added to them.
            event = stream.next(0 if changes.records and not changes.is_in_transaction else WAIT_S)
            if event is not None:
                changes.add(event)
                size += len(event.body)
            is_full = len(changes.records) >= self.config.max_batch_size or size >= BATCH_BYTES_MAX
            if changes.is_in_transaction:
                if is_full and changes.records and changes.may_be_taken:
                    yield Batch(changes.take(), is_open=True)
                    self._is_part_open, size = True, 0
            elif is_full or event is None or self._is_due(changes):
                batch = self._batch(changes)
                size = 0
                if batch is not None:
                    yield batch

    def _is_due(self, changes: BinlogChanges) -> bool:
        """Return whether there is something to write although changes come without a pause."""
        now = time.monotonic()
        return self._is_heartbeat_due(now) or (bool(changes.offset) and now - self._stored_s >= POSITION_S)

    def _is_heartbeat_due(self, now: float) -> bool:
        interval_ms = self.config.heartbeat_interval_ms
        return interval_ms > 0 and now - self._heartbeat_s >= interval_ms / 1000

    def _batch(self, changes: BinlogChanges) -> Batch | None:
        """Return what was read between transactions; None if it need not be stored yet."""
        now = time.monotonic()
        records = changes.take()
        if self._is_heartbeat_due(now):
            self._heartbeat_s = now
            self._heartbeat_action()
            records.append(self._maker.heartbeat())
        is_old = changes.offset != self._stored and now - self._stored_s >= POSITION_S
        if not records and not is_old and not self._is_part_open:
            return None
        self._stored_s, self._stored, self._is_part_open = now, changes.offset, False
        return Batch(records, self._partition, changes.offset or None)

    def _heartbeat_action(self) -> None:
        if self.config.heartbeat_action_query is not None:
            connection = connect(self.config)
            try:
                with explained(self.config):
                    query(connection, self.config.heartbeat_action_query)
            finally:
                close(connection)

    def _position(self, start: Mapping[str, Any] | None) -> GtidPosition:
        if start is None:
            # Without a snapshot the stream begins now.
            connection = connect(self.config)
            try:
                with explained(self.config):
                    check_none_prepared(connection)
                    ((now,),) = query(connection, "select @@global.gtid_binlog_pos")
            finally:
                close(connection)
            return GtidPosition.parse(now or "")
        return position_of(start)

    @classmethod
    def only_partition(cls, config: MariadbCdcConfig) -> Mapping[str, Any]:
        return config.partition

    @classmethod
    def check_offsets(cls, config: Any, offsets: Sequence[SourcePosition]) -> None:
        super().check_offsets(config, offsets)
        for _, offset in offsets:
            if offset is not None:
                position_of(offset)


def position_of(offset: Mapping[str, Any]) -> GtidPosition:
    """Return the GTID position of an offset. Raise InvalidConnectorConfig if it has none."""
    gtids = offset.get("gtids")
    if not isinstance(gtids, str):
        raise InvalidConnectorConfig(f"the offset {dict(offset)} of a MariaDB has no field `gtids` with a text")
    try:
        return GtidPosition.parse(gtids)
    except ValueError as error:
        raise InvalidConnectorConfig(f"the offset {dict(offset)} of a MariaDB is wrong: {error}") from None
