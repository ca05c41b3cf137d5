"""Groups and transactional ids are in the partitions that Kafka computes; in older clusters where they always were."""

from __future__ import annotations

import pytest

from strandline.coordinators.partitioning import (
    KAFKAS_HASH,
    SIGN_CLEARED,
    java_string_hash,
    partition_of_group,
    partition_of_transactional_id,
)

# Said by a Java virtual machine: String.hashCode, and Utils.abs of it modulo 50. The last column is what Strandline
# computed before decision 0055.
JAVA_HASHES = [
    ("", 0, 0, 0),
    ("a", 97, 47, 47),
    ("group", 98629247, 47, 47),
    ("console-consumer-12345", 158455506, 6, 6),
    ("🌊", 1773134, 34, 34),
    ("orders", -1008770331, 31, 17),
    ("polygenelubricants", -(2**31), 0, 0),
]


@pytest.mark.parametrize(("text", "expected", "of_kafka", "before"), JAVA_HASHES)
def test_ids_are_spread_as_java_spreads_them(text: str, expected: int, of_kafka: int, before: int) -> None:
    assert java_string_hash(text) == expected
    for find in (partition_of_group, partition_of_transactional_id):
        assert find(text, partition_count=50, hash_level=KAFKAS_HASH) == of_kafka
        assert find(text, partition_count=50, hash_level=SIGN_CLEARED) == before
