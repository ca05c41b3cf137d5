"""Which keys of a topic are heaviest, which partitions have more than their part, and what to do about it.

Judged from samples. A share comes with a margin: 95 of 100 samples would name a share that is nearer than that to the
true one. It is taken from how much the slices of a sample differ, because records of one place are often alike.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, Final

SKEWED_FROM: Final = 1.5
"""A partition is skewed if it has so many times the mean."""
HEAVY_FROM: Final = 0.5
"""A key is heavy if it fills so much of what one partition should have."""
FEW_KEYS_PER_PARTITION: Final = 10
SAMPLED_MIN: Final = 100
"""Records of a topic below which nothing is judged."""
_TWO_SIDED_95: Final = 1.96

KeyCounts = tuple[Counter[bytes | None], Counter[bytes | None]]
"""Records and bytes of keys, in one slice."""


@dataclass
class PartitionKeys:
    """The keys that were counted in one partition, slice by slice."""

    partition: int
    offsets: int
    """The offsets that the sample stands for."""
    is_whole: bool
    slices: list[KeyCounts] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(records.total() for records, _ in self.slices)

    @property
    def size_bytes(self) -> int:
        return sum(size_bytes.total() for _, size_bytes in self.slices)


@dataclass
class KeyShare:
    """A key and its estimated share of the topic."""

    key: bytes | None
    records_share: float
    bytes_share: float
    margin: float
    """Of the share of records, up and down."""
    partitions: list[int]
    """Where it was seen."""
    sampled: int

    def as_object(self) -> dict[str, Any]:
        text, base64 = _key_text(self.key)
        return {
            "key": text,
            "key_base64": base64,
            "records_share": round(self.records_share, 4),
            "bytes_share": round(self.bytes_share, 4),
            "margin": round(self.margin, 4),
            "partitions": self.partitions,
            "records_sampled": self.sampled,
        }


@dataclass
class PartitionShare:
    """A partition, its part of the topic, and the heaviest key in it."""

    partition: int
    offsets: int
    records_share: float
    bytes_share: float
    sampled: int
    is_whole: bool
    top_key: bytes | None
    top_share: float

    def as_object(self) -> dict[str, Any]:
        return {
            "partition": self.partition,
            "offsets": self.offsets,
            "records_share": round(self.records_share, 4),
            "bytes_share": round(self.bytes_share, 4),
            "records_sampled": self.sampled,
            "is_whole": self.is_whole,
            "top_key": _key_text(self.top_key)[0],
            "top_key_share": round(self.top_share, 4),
        }


@dataclass
class KeySkew:
    """The judgement of a topic."""

    topic: str
    keys: list[KeyShare]
    partitions: list[PartitionShare]
    distinct_sampled: int
    sampled: int
    is_whole: bool
    skew: float
    """Bytes of the fullest partition, as a multiple of the mean."""
    findings: list[str] = field(default_factory=list)

    def as_object(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "records_sampled": self.sampled,
            "is_whole": self.is_whole,
            "distinct_keys_sampled": self.distinct_sampled,
            "skew": round(self.skew, 2),
            "keys": [each.as_object() for each in self.keys],
            "partitions": [each.as_object() for each in self.partitions],
            "findings": self.findings,
        }


def judge_keys(topic: str, samples: Sequence[PartitionKeys], *, top: int) -> KeySkew:
    """Return the `top` heaviest keys by records and by bytes, the skew of partitions, and what to do about them."""
    weights = _weights(samples)
    records: defaultdict[bytes | None, float] = defaultdict(float)
    size_bytes: defaultdict[bytes | None, float] = defaultdict(float)
    sampled: Counter[bytes | None] = Counter()
    seen: defaultdict[bytes | None, list[int]] = defaultdict(list)
    for sample in samples:
        counted, bytes_counted = _together(sample)
        sampled.update(counted)
        for key, number in counted.items():
            records[key] += number * weights[sample.partition]
            size_bytes[key] += bytes_counted[key] * weights[sample.partition]
            seen[key].append(sample.partition)
    records_all, bytes_all = sum(records.values()) or 1.0, sum(size_bytes.values()) or 1.0
    chosen = dict.fromkeys(sorted(records, key=records.__getitem__, reverse=True)[:top])
    chosen |= dict.fromkeys(sorted(size_bytes, key=size_bytes.__getitem__, reverse=True)[:top])
    keys = [
        KeyShare(
            key,
            records[key] / records_all,
            size_bytes[key] / bytes_all,
            _margin(key, samples, weights, records_all),
            sorted(seen[key]),
            sampled[key],
        )
        for key in chosen
    ]
    keys.sort(key=lambda each: max(each.records_share, each.bytes_share), reverse=True)
    partitions = [_partition_share(each, weights[each.partition], records_all, bytes_all) for each in samples]
    judged = KeySkew(
        topic,
        keys,
        partitions,
        distinct_sampled=len(sampled),
        sampled=sampled.total(),
        is_whole=all(each.is_whole for each in samples),
        skew=max((each.bytes_share for each in partitions), default=0.0) * max(1, len(partitions)),
    )
    judged.findings = _findings(judged)
    return judged


def _weights(samples: Sequence[PartitionKeys]) -> dict[int, float]:
    """For each partition how many records one that was counted stands for.

    Offsets stand for records: markers and compaction leave gaps, which a partition that was read whole does not count.
    """
    return {
        each.partition: 1.0 if each.is_whole else each.offsets / each.records if each.records else 0.0
        for each in samples
    }


def _together(sample: PartitionKeys) -> KeyCounts:
    records: Counter[bytes | None] = Counter()
    size_bytes: Counter[bytes | None] = Counter()
    for counted, bytes_counted in sample.slices:
        records.update(counted)
        size_bytes.update(bytes_counted)
    return records, size_bytes


def _margin(
    key: bytes | None, samples: Sequence[PartitionKeys], weights: dict[int, float], records_all: float
) -> float:
    variance = 0.0
    for sample in samples:
        if sample.is_whole or not sample.records:
            continue
        shares = [counted[key] / counted.total() for counted, _ in sample.slices if counted]
        part = weights[sample.partition] * sample.records / records_all
        if len(shares) < 2:
            # One slice says nothing of how slices differ, so its records are taken for independent.
            share = shares[0]
            variance += part**2 * share * (1 - share) / sample.records
            continue
        mean = sum(shares) / len(shares)
        spread = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1)
        variance += part**2 * spread / len(shares)
    return _TWO_SIDED_95 * sqrt(variance)


def _partition_share(sample: PartitionKeys, weight: float, records_all: float, bytes_all: float) -> PartitionShare:
    counted, _ = _together(sample)
    top_key, top_count = counted.most_common(1)[0] if counted else (None, 0)
    return PartitionShare(
        sample.partition,
        sample.offsets,
        sample.records * weight / records_all,
        sample.size_bytes * weight / bytes_all,
        sample.records,
        sample.is_whole,
        top_key,
        top_count / sample.records if sample.records else 0.0,
    )


# What it means


def _findings(judged: KeySkew) -> list[str]:
    if judged.sampled < SAMPLED_MIN:
        return [f"only {judged.sampled} records were found: too few to judge; look again when there are more"]
    found = [*_of_heavy_keys(judged), *_of_several_partitions(judged), *_of_partitions(judged)]
    heaviest = max(
        (max(each.records_share, each.bytes_share) for each in judged.keys if each.key is not None), default=0
    )
    return found or [f"nothing to do: no key has more than {heaviest:.1%}, and the partitions are alike"]


def _of_heavy_keys(judged: KeySkew) -> list[str]:
    count = len(judged.partitions)
    found = []
    for each in judged.keys:
        share = max(each.records_share, each.bytes_share)
        if each.key is None or count < 2 or share < HEAVY_FROM / count:
            continue
        words = f"key {key_words(each.key)} has {share:.0%} of the topic"
        if share > 1 / count:
            words += ", more than one partition's part: more partitions do not help, because one key stays in one"
        found.append(
            f"{words}; split it ({key_words(each.key)}-0, -1, ...) if its order may be given up, or sum up before "
            "producing"
        )
    return found


def _of_several_partitions(judged: KeySkew) -> list[str]:
    spread = [each for each in judged.keys if each.key is not None and len(each.partitions) > 1]
    if not spread:
        return []
    first = spread[0]
    where = ", ".join(map(str, first.partitions))
    return [
        f"key {key_words(first.key)} lies in the partitions {where}, so its records have no common order: partitions "
        "were added, or producers differ in partitioner (librdkafka: set partitioner=murmur2_random, as Java has it)"
    ]


def _of_partitions(judged: KeySkew) -> list[str]:
    count = len(judged.partitions)
    fullest = max(judged.partitions, key=lambda each: each.bytes_share)
    if count < 2 or judged.skew < SKEWED_FROM:
        return []
    words = f"partition {fullest.partition} has {judged.skew:.1f} times the mean"
    if fullest.top_share >= HEAVY_FROM:
        return [f"{words}, {fullest.top_share:.0%} of it by key {key_words(fullest.top_key)}"]
    if judged.distinct_sampled < FEW_KEYS_PER_PARTITION * count:
        return [
            f"{words}: about {judged.distinct_sampled} keys for {count} partitions are too few to spread; choose a "
            "finer key, or fewer partitions"
        ]
    return [f"{words}, and no single key is the cause: look at how producers choose the partition"]


def key_words(key: bytes | None) -> str:
    """Return a key as people are shown it; control characters are escaped, so that a terminal is safe."""
    text, base64 = _key_text(key)
    return "null" if key is None else repr(text) if text is not None else f"base64 {base64}"


def _key_text(key: bytes | None) -> tuple[str | None, str | None]:
    """Return a key as text, or in base64 if it is none."""
    if key is None:
        return None, None
    try:
        return key.decode(), None
    except UnicodeDecodeError:
        return None, b64encode(key).decode()
