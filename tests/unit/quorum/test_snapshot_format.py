"""Snapshots of the metadata log: what is written is read, and what is damaged or unfinished is not believed."""

from __future__ import annotations

import uuid

import pytest

from strandline.codec.columns import columns_of
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.codec.messages.voters_record import Endpoint, Voter, VotersRecord
from strandline.errors import CorruptLog
from strandline.quorum.image.snapshot_format import (
    RECORDS_PER_BATCH,
    SnapshotReader,
    bootstrap_snapshot,
    encode_snapshot,
    header_timestamp_ms,
)
from strandline.quorum.raft.raft_log import SnapshotId

NOON_MS = 1_700_000_000_000
VOTERS = VotersRecord(
    voters=[
        Voter(
            voter_id=number,
            voter_directory_id=uuid.UUID(int=number),
            endpoints=[Endpoint(name="CONTROLLER", host=f"host-{number}", port=9000 + number)],
        )
        for number in (1, 2, 3)
    ]
)
RECORDS = [TopicRecord(name=f"topic-{number}", topic_id=uuid.UUID(int=number)) for number in range(600)]


def whole(kraft_version: int = 1) -> bytes:
    return encode_snapshot(
        SnapshotId(1234, 7),
        RECORDS,
        now_ms=NOON_MS,
        last_timestamp_ms=NOON_MS - 5,
        kraft_version=kraft_version,
        voters=VOTERS if kraft_version else None,
    )


def read(data: bytes) -> list[object]:
    return [record for batch in SnapshotReader(data).batches() for record in batch]


def test_what_is_written_is_read() -> None:
    data = whole()
    reader = SnapshotReader(data)
    assert [record for batch in reader.batches() for record in batch] == RECORDS
    assert reader.voters == VOTERS
    assert reader.kraft_version == 1
    assert reader.last_timestamp_ms == header_timestamp_ms(data) == NOON_MS - 5


def test_batches_are_bounded_and_numbered_from_zero() -> None:
    batches = list(columns_of(whole()))
    assert [batch.is_control for batch in batches] == [True, False, False, False, True]
    assert max(len(batch.offsets) for batch in batches) == RECORDS_PER_BATCH
    offsets = [record.offset for batch in batches for record in batch]
    assert offsets == list(range(3 + len(RECORDS) + 1))
    assert {batch.header.leader_epoch for batch in batches} == {7}


def test_a_quorum_without_versions_has_no_voters_in_its_snapshots() -> None:
    reader = SnapshotReader(whole(kraft_version=0))
    list(reader.batches())
    assert (reader.kraft_version, reader.voters) == (0, None)


@pytest.mark.parametrize("cut", [1, 60, 100, 5000])
def test_a_snapshot_that_was_not_finished_is_refused(cut: int) -> None:
    with pytest.raises(CorruptLog):
        read(whole()[:-cut])


def test_no_bit_may_flip() -> None:
    sound = whole()
    for position in range(16, len(sound), 997):
        damaged = bytearray(sound)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptLog):
            read(bytes(damaged))


def test_records_without_a_header_are_no_snapshot() -> None:
    data = whole()
    first_size = next(columns_of(data)).header.size_bytes
    with pytest.raises(CorruptLog, match="offset 3 in the place of 0"):
        read(data[first_size:])
    with pytest.raises(CorruptLog, match="ends in its header"):
        header_timestamp_ms(data[: first_size - 1])


def test_what_follows_the_footer_is_no_snapshot() -> None:
    with pytest.raises(CorruptLog):
        read(whole() + whole())
    with pytest.raises(CorruptLog):
        read(whole() + b"\0" * 20)


def test_the_bootstrap_snapshot_names_voters_and_features() -> None:
    data = bootstrap_snapshot(VOTERS, {"group.version": 1, "metadata.version": 25, "share.version": 0}, 1, now_ms=1)
    reader = SnapshotReader(data)
    assert [record for batch in reader.batches() for record in batch] == [
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="group.version", feature_level=1),
    ]
    assert reader.voters == VOTERS
