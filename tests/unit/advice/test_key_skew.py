"""Heaviest keys and skew of partitions, from samples."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from strandline.advice.key_skew import PartitionKeys, judge_keys, key_words

Key = bytes | None


def slice_of(counts: dict[Key, int], size_bytes: int = 100) -> tuple[Counter[Key], Counter[Key]]:
    return Counter(counts), Counter({key: number * size_bytes for key, number in counts.items()})


def partition(index: int, *counts: dict[Key, int], offsets: int = 1000, is_whole: bool = False) -> PartitionKeys:
    return PartitionKeys(index, offsets, is_whole, [slice_of(each) for each in counts])


def many(index: int, number: int = 200) -> dict[Key, int]:
    return {f"k{index}-{key}".encode(): 1 for key in range(number)}


def test_partitions_are_weighed_by_what_they_hold_not_by_what_was_sampled() -> None:
    small = partition(0, {b"a": 100}, offsets=1_000)
    large = partition(1, {b"b": 100}, offsets=9_000)
    judged = judge_keys("t", [small, large], top=5)
    assert [(each.key, round(each.records_share, 3)) for each in judged.keys] == [(b"b", 0.9), (b"a", 0.1)]
    assert [round(each.records_share, 3) for each in judged.partitions] == [0.1, 0.9]
    assert judged.skew == pytest.approx(1.8)


def test_a_whole_partition_counts_its_records_not_its_offsets() -> None:
    """Compaction leaves gaps in the offsets."""
    compacted = partition(0, {b"a": 100}, offsets=9_900, is_whole=True)
    other = partition(1, {b"b": 100}, offsets=100, is_whole=True)
    judged = judge_keys("t", [compacted, other], top=5)
    assert {each.records_share for each in judged.keys} == {0.5}
    assert judged.is_whole
    assert all(each.margin == 0 for each in judged.keys)


def test_a_key_that_is_heavy_by_bytes_only_is_named() -> None:
    records = Counter({f"k{number}".encode(): 10 for number in range(20)})
    size_bytes = Counter(dict.fromkeys(records, 100))
    records[b"large"], size_bytes[b"large"] = 1, 1_000_000
    judged = judge_keys("t", [PartitionKeys(0, 201, True, [(records, size_bytes)])], top=3)
    assert judged.keys[0].key == b"large"
    assert judged.keys[0].bytes_share > 0.99 > 0.01 > judged.keys[0].records_share


def test_one_key_above_a_partitions_part_is_told_that_partitions_do_not_help() -> None:
    hot: dict[Key, int] = {b"hot": 600}
    judged = judge_keys("t", [partition(0, hot | many(0), offsets=800), partition(1, many(1), offsets=200)], top=3)
    (first, *_) = judged.findings
    assert "key 'hot' has 60% of the topic" in first
    assert "more partitions do not help" in first
    assert any("partition 0 has 1.6 times the mean, 75% of it by key 'hot'" in each for each in judged.findings)


def test_a_key_in_two_partitions_is_told_as_lost_order() -> None:
    judged = judge_keys("t", [partition(0, {b"x": 9} | many(0)), partition(1, {b"x": 9} | many(1))], top=3)
    assert any("key 'x' lies in the partitions 0, 1" in each for each in judged.findings)


def test_records_without_a_key_are_no_finding() -> None:
    judged = judge_keys("t", [partition(0, {None: 300}), partition(1, {None: 300})], top=3)
    assert judged.findings == ["nothing to do: no key has more than 0.0%, and the partitions are alike"]


def test_too_few_keys_are_named_as_the_cause_of_skew() -> None:
    keys: dict[Key, int] = {f"shop{number}".encode(): 10 for number in range(30)}
    judged = judge_keys(
        "t", [partition(0, keys, offsets=900), *(partition(each, {b"b": 1}, offsets=10) for each in range(1, 5))], top=3
    )
    assert any("are too few to spread" in each for each in judged.findings)


def test_too_few_records_are_not_judged() -> None:
    assert "too few to judge" in judge_keys("t", [partition(0, {b"a": 99})], top=3).findings[0]
    assert judge_keys("t", [], top=3).findings
    assert judge_keys("t", [partition(0)], top=3).keys == []


def test_the_margin_holds_the_true_share() -> None:
    """Keys come in runs, as they do in logs: a margin for independent records would be too small."""
    random = Random(4)
    log: list[Key] = []
    while len(log) < 200_000:
        log += [b"hot" if random.random() < 0.3 else f"k{random.randrange(500)}".encode()] * random.randrange(1, 400)
    true_share = log.count(b"hot") / len(log)
    held = 0
    for _ in range(60):
        starts = [random.randrange(number * 12_500, (number + 1) * 12_500 - 600) for number in range(16)]
        slices = [dict(Counter(log[start : start + 600])) for start in starts]
        (hot,) = (
            each
            for each in judge_keys("t", [partition(0, *slices, offsets=len(log))], top=1).keys
            if each.key == b"hot"
        )
        held += abs(hot.records_share - true_share) <= hot.margin
    assert held >= 50, f"{held} of 60 margins hold the true share"


def test_keys_are_shown_as_text_or_base64_and_never_raw() -> None:
    assert key_words(None) == "null"
    assert key_words(b"\x1b[2J") == "'\\x1b[2J'"
    assert key_words(b"\xff\xfe") == "base64 //4="
