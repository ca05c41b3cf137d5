"""A snapshot of the metadata log as bytes: `<end offset>-<epoch>.checkpoint`, as Kafka writes it.

    control batch   SnapshotHeader (type 3), then KRaftVersion (5) and Voters (6) where the quorum has them
    batches         the records of the image, a few hundred each
    control batch   SnapshotFooter (4)

A file without its footer was never finished, and says nothing. Offsets count from 0 and mean nothing either; every
batch carries the epoch of the snapshot. A control record's key is two int16: version 0 and the type.

The snapshot of offset 0 and epoch 0 is special. It is not made from a log: `strandline format` writes it to give a node
the voters and the features of a new cluster. It is never sent to another node; the first leader writes its content into
the log.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from strandline.codec.columns import Record, columns_of, encode_batch
from strandline.codec.internal_records import decode_metadata_record, encode_metadata_record
from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.kraft_version_record import KRaftVersionRecord
from strandline.codec.messages.snapshot_footer_record import SnapshotFooterRecord
from strandline.codec.messages.snapshot_header_record import SnapshotHeaderRecord
from strandline.codec.messages.voters_record import VotersRecord
from strandline.codec.record_batch import PREFIX, PREFIX_SIZE, Buffer
from strandline.errors import CorruptLog, PeerError
from strandline.quorum.image.cluster_image import METADATA_VERSION
from strandline.quorum.raft.raft_log import SnapshotId

RECORDS_PER_BATCH: Final = 256
"""What is decoded, or encoded, in one go."""

LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6
_CONTROL_KEY: Final = struct.Struct(">hh")
_CONTROL_RECORDS: Final[dict[int, type[Message]]] = {
    SNAPSHOT_HEADER: SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: SnapshotFooterRecord,
    KRAFT_VERSION: KRaftVersionRecord,
    KRAFT_VOTERS: VotersRecord,
}


BOOTSTRAP: Final = SnapshotId(0, 0)


def control_record(kind: int, message: Message, timestamp_ms: int) -> Record:
    return Record(timestamp_ms=timestamp_ms, key=_CONTROL_KEY.pack(0, kind), value=encode(message, 0))


def decode_control_record(record: Record) -> Message | None:
    """Return the decoded control record about voters or a snapshot; None for any other type."""
    if record.key is None or record.value is None or len(record.key) < _CONTROL_KEY.size:
        raise CorruptLog(f"metadata log: the control record at {record.offset} has no key or no value")
    cls = _CONTROL_RECORDS.get(_CONTROL_KEY.unpack_from(record.key)[1])
    if cls is None:
        return None
    return decode_exact(cls, 0, record.value)


class SnapshotWriter:
    """Gives the bytes of one snapshot, in order: `begin`, `batch` after `batch`, `end`."""

    def __init__(self, snapshot_id: SnapshotId, *, now_ms: int, last_timestamp_ms: int) -> None:
        self._epoch = snapshot_id.epoch
        self._now_ms = now_ms
        self._last_timestamp_ms = last_timestamp_ms
        self._offset = 0

    def begin(self, *, kraft_version: int, voters: VotersRecord | None) -> bytes:
        header = SnapshotHeaderRecord(last_contained_log_timestamp=self._last_timestamp_ms)
        records = [control_record(SNAPSHOT_HEADER, header, self._now_ms)]
        if kraft_version > 0:
            records.append(control_record(KRAFT_VERSION, KRaftVersionRecord(kraft_version=kraft_version), self._now_ms))
            if voters is not None:
                records.append(control_record(KRAFT_VOTERS, voters, self._now_ms))
        return self._encode(records, control=True)

    def batch(self, records: Iterable[Any]) -> bytes:
        now_ms = self._now_ms
        return self._encode(
            [Record(timestamp_ms=now_ms, value=encode_metadata_record(record)) for record in records], control=False
        )

    def end(self) -> bytes:
        return self._encode([control_record(SNAPSHOT_FOOTER, SnapshotFooterRecord(), self._now_ms)], control=True)

    def _encode(self, records: list[Record], *, control: bool) -> bytes:
        data = encode_batch(records, base_offset=self._offset, leader_epoch=self._epoch, control=control)
        self._offset += len(records)
        return data


class SnapshotReader:
    """Reads a snapshot batch by batch; what its control records say is known once `batches` came to them."""

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self.last_timestamp_ms = 0

    def batches(self) -> Iterator[list[Any]]:
        """Yield the decoded records of each batch; raise CorruptLog if the snapshot is damaged or unfinished."""
        has_header = has_footer = False
        size = next_offset = 0
        epoch: int | None = None
        try:
            for columns in columns_of(self._data):
                header = columns.header
                epoch = header.leader_epoch if epoch is None else epoch
                # Both lie outside of the CRC, so this is the check they get.
                if header.base_offset != next_offset or header.leader_epoch != epoch:
                    raise CorruptLog(f"a snapshot has offset {header.base_offset} in the place of {next_offset}")
                size += header.size_bytes
                next_offset = header.last_offset + 1
                if has_footer or (not has_header and not columns.is_control):
                    raise CorruptLog("a snapshot begins with its header and ends with its footer")
                if columns.is_control:
                    for record in columns:
                        control = decode_control_record(record)
                        has_header = has_header or isinstance(control, SnapshotHeaderRecord)
                        has_footer = has_footer or isinstance(control, SnapshotFooterRecord)
                        self._take(control)
                    continue
                yield [decode_metadata_record(record.value or b"") for record in columns]
        except PeerError as error:
            # It was written by one of us, so what is wrong with it is damage.
            raise CorruptLog(f"a snapshot cannot be read: {error}") from error
        if not has_footer or size != len(self._data):
            raise CorruptLog("a snapshot ends before its footer")

    def _take(self, control: Message | None) -> None:
        if isinstance(control, SnapshotHeaderRecord):
            self.last_timestamp_ms = control.last_contained_log_timestamp
        elif isinstance(control, KRaftVersionRecord):
            self.kraft_version = control.kraft_version
        elif isinstance(control, VotersRecord):
            self.voters = control


def header_timestamp_ms(first_bytes: Buffer) -> int:
    """Return the time of the last record of a snapshot, from its first batch."""
    if len(first_bytes) < PREFIX_SIZE or len(first_bytes) < PREFIX.unpack_from(first_bytes)[1] + PREFIX_SIZE:
        raise CorruptLog("a snapshot ends in its header")
    for columns in columns_of(first_bytes):
        for record in columns:
            header = decode_control_record(record) if columns.is_control else None
            if isinstance(header, SnapshotHeaderRecord):
                return header.last_contained_log_timestamp
        break
    raise CorruptLog("a snapshot begins with its header")


def encode_snapshot(
    snapshot_id: SnapshotId,
    records: Sequence[Any],
    *,
    now_ms: int,
    last_timestamp_ms: int,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> bytes:
    """Encode a whole small snapshot at once."""
    writer = SnapshotWriter(snapshot_id, now_ms=now_ms, last_timestamp_ms=last_timestamp_ms)
    parts = [writer.begin(kraft_version=kraft_version, voters=voters)]
    parts += [writer.batch(records[at : at + RECORDS_PER_BATCH]) for at in range(0, len(records), RECORDS_PER_BATCH)]
    return b"".join([*parts, writer.end()])


def bootstrap_snapshot(
    voters: VotersRecord | None,
    features: Mapping[str, int],
    kraft_version: int,
    *,
    now_ms: int,
    records: Sequence[Any] = (),
) -> bytes:
    """Return the snapshot of offset 0 that `strandline format` writes: voters, first features and other `records`.

    Without voters (a broker that is to join, or voters that stand in its configuration) only the features are written.
    """
    # metadata.version first: it says how to read everything after it.
    names = sorted(features, key=lambda name: (name != METADATA_VERSION, name))
    levels = [FeatureLevelRecord(name=name, feature_level=features[name]) for name in names if features[name]]
    return encode_snapshot(
        BOOTSTRAP,
        [*levels, *records],
        now_ms=now_ms,
        last_timestamp_ms=now_ms,
        kraft_version=kraft_version,
        voters=voters,
    )
