"""Names of share partitions, and the partitions of `__share_group_state` that Kafka keeps them in."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.coordinators.shares.coordinator_key import coordinator_key, parse_coordinator_key, partition_of_share
from strandline.coordinators.shares.share_state import SharePartitionKey
from strandline.errors import RequestError

TOPIC_ID = uuid.UUID(bytes=b"\xfb\xff" + bytes(14))


def test_a_name_is_the_group_the_topic_id_and_the_partition() -> None:
    assert coordinator_key(SharePartitionKey("a:b", TOPIC_ID, 7)) == "a:b:-_8AAAAAAAAAAAAAAAAAAA:7"


@given(st.text(min_size=1), st.uuids(), st.integers(0, 2**31 - 1))
def test_names_are_read_as_they_are_written(group_id: str, topic_id: uuid.UUID, partition: int) -> None:
    key = SharePartitionKey(group_id, topic_id, partition)
    assert parse_coordinator_key(coordinator_key(key)) == key


@pytest.mark.parametrize(
    "text",
    [
        "",
        "::",
        "a:b",
        "a:b:0",
        ":AAAAAAAAAAAAAAAAAAAAAQ:0",
        "a:AAAAAAAAAAAAAAAAAAAAAQ:",
        "a:AAAAAAAAAAAAAAAAAAAAAQ:x",
        "a:AAAAAAAAAAAAAAAAAAAAAQ:2147483648",
        "a:AAAAAAAAAAAAAAAAAAAAA:0",
    ],
)
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="Invalid key format"):
        parse_coordinator_key(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("polygenelubricants", 0),  # Java's lowest hash
        ("a", 97 % 50),
        ("workers:AAAAAAAAAAAAAAAAAAAAAQ:0", 47),  # a negative hash
        ("workers:AAAAAAAAAAAAAAAAAAAAAQ:1", 46),
    ],
)
def test_partitions_are_kafkas(text: str, expected: int) -> None:
    assert partition_of_share(text, partition_count=50) == expected
