"""The records of offsets that are written by hand are those of the compiled codec."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from strandline.codec.internal_records import encode_coordinator_key, encode_coordinator_value
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.coordinators.groups.group_records import offset_commit_record, offset_tombstone

NAMES = st.text(st.characters(codec="utf-8"), max_size=60)
INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES = st.builds(
    OffsetCommitValue,
    offset=INT64,
    leader_epoch=st.integers(-(2**31), 2**31 - 1),
    metadata=st.one_of(NAMES, st.integers(120, 130).map(lambda size: "m" * size), st.just("é" * 63)),
    commit_timestamp=INT64,
    topic_id=st.one_of(st.just(UUID(int=0)), st.uuids()),
)


@given(NAMES, NAMES, st.integers(0, 2**31 - 1), VALUES)
def test_offset_records(group: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
    key = encode_coordinator_key(OffsetCommitKey(group=group, topic=topic, partition=partition))
    assert offset_commit_record(group, topic, partition, value) == (key, encode_coordinator_value(value, 4))
    assert offset_tombstone(group, topic, partition) == (key, None)


def test_an_offset_with_an_expiry_is_written_in_version_1() -> None:
    value = OffsetCommitValue(offset=4, commit_timestamp=5, expire_timestamp=6)
    assert offset_commit_record("g", "t", 0, value).value == encode_coordinator_value(value, 1)
