"""`python -m tests.chaos.bit_flips --count 1000`: single bits of `.log` files are changed; who notices, who is served?

A broker gets a directory in which one bit of each log has changed since it was stopped. A reader asks it for every
offset, by plain Fetch requests, and holds what it gets against what was written; then the broker is asked to scrub.
Half of the logs are compacted, with gaps and in several codecs. A bit counts as found when the scrub tells of it, and
as served when a single byte that a reader got is not what was written. The exit code is 1 if one is not found, or is
served.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from confluent_kafka import Producer

import strandline
from strandline.cli.common.conversation import Conversation
from strandline.codec.messages.compact_partitions_request import CompactPartitionsRequest, CompactTopic
from strandline.codec.messages.compact_partitions_response import CompactPartitionsResponse
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.fetch_response import FetchResponse
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.codec.messages.scrub_partitions_request import ScrubPartitionsRequest, ScrubTopic
from strandline.codec.messages.scrub_partitions_response import ScrubPartitionsResponse
from strandline.codec.record_batch import HEADER_SIZE, parse_header
from strandline.errors import ErrorCode
from strandline.testing import EmbeddedBroker

PLAIN, COMPACTED = "plain", "compacted"
PARTITIONS = 50
"""Of each of the two topics; so twice as many bits are tried with one start of a broker."""
RECORDS = 60
PATIENCE_S = 120.0
PLACES = ((0, "base offset"), (8, "length"), (12, "epoch"), (16, "magic"), (17, "CRC"), (21, "header"), (61, "records"))

Batches = dict[int, bytes]
"""By base offset."""


class Flip(NamedTuple):
    topic: str
    partition: int
    file: str
    bit: int
    place: str


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.bit_flips", description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="bits to change")
    parser.add_argument("--seed", type=int, default=None, help="which ones; printed if not given")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as directory:
        outcome = run(Path(directory), options.count, random.Random(seed))
    print(outcome.table())
    return 0 if outcome.is_good else 1


class Outcome:
    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self.misses: list[str] = []

    @property
    def is_good(self) -> bool:
        return not self.misses

    def note(self, flip: Flip, *, is_found: bool, refused: int, wrong: int) -> None:
        self.tried[flip.place] += 1
        self.found[flip.place] += is_found
        self.refused[flip.place] += refused > 0
        self.served[flip.place] += wrong > 0
        if not is_found or wrong or not refused:
            self.misses.append(f"{flip}: found {is_found}, refused {refused} times, served wrong {wrong} times")

    def table(self) -> str:
        lines = [f"{'where':<12} {'flipped':>8} {'found':>8} {'refused':>8} {'served':>8}"]
        for _, place in PLACES:
            counts = (self.tried, self.found, self.refused, self.served)
            lines.append(f"{place:<12} " + " ".join(f"{count[place]:>8}" for count in counts))
        totals = (self.tried.total(), self.found.total(), self.refused.total(), self.served.total())
        lines.append(f"{'all':<12} " + " ".join(f"{total:>8}" for total in totals))
        return "\n".join([*lines, *self.misses[:20]])


def run(directory: Path, count: int, rng: random.Random) -> Outcome:
    outcome = Outcome()
    template = directory / "template"
    with strandline.embedded(data=template) as broker:
        prepare(broker, rng)
    truth = {key: dict(batches_in(template / f"{key[0]}-{key[1]}")) for key in partitions()}
    while outcome.tried.total() < count:
        data = directory / "data"
        shutil.copytree(template, data)
        wanted = rng.sample(list(partitions()), min(count - outcome.tried.total(), 2 * PARTITIONS))
        flips = [flip_one(data, topic, partition, rng) for topic, partition in wanted]
        with strandline.embedded(data=data) as broker:
            read = {flip: read_all(broker, flip, truth[flip.topic, flip.partition]) for flip in flips}
            found = scrub(broker)
        for flip in flips:
            refused, wrong = read[flip]
            outcome.note(flip, is_found=(flip.topic, flip.partition) in found, refused=refused, wrong=wrong)
        shutil.rmtree(data)
        print(f"{outcome.tried.total()} of {count}", file=sys.stderr, flush=True)
    return outcome


def partitions() -> Iterator[tuple[str, int]]:
    return ((topic, partition) for topic in (PLAIN, COMPACTED) for partition in range(PARTITIONS))


def prepare(broker: EmbeddedBroker, rng: random.Random) -> None:
    """Logs of several segments, those of one topic compacted and read through once."""
    small = {"internal_segment_bytes": 4_000, "index_interval_bytes": 500}
    broker.create_topic(PLAIN, PARTITIONS, **small)
    broker.create_topic(COMPACTED, PARTITIONS, cleanup_policy="compact", **small)
    for codec in ("none", "lz4", "zstd", "gzip", "snappy"):
        settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "batch.size": 600}
        producer = Producer(settings)
        for _ in range(RECORDS // 5):
            for topic, partition in partitions():
                key = b"%d" % rng.randrange(25)
                producer.produce(topic, rng.randbytes(rng.randrange(20, 200)), key, partition=partition)
        assert producer.flush(PATIENCE_S) == 0
    every = list(range(PARTITIONS))
    with Conversation("127.0.0.1", broker.port, PATIENCE_S) as conversation:
        request = CompactPartitionsRequest(topics=[CompactTopic(COMPACTED, every)])
        compacted = conversation.ask(request, CompactPartitionsResponse)
        assert compacted is not None
        assert all(each.error_code == 0 for each in compacted.partitions), compacted
    assert scrub(broker) == set(), "nothing has changed yet"


def batches_in(directory: Path) -> Iterator[tuple[int, bytes]]:
    for path in sorted(directory.glob("*.log")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            header = parse_header(content, at)
            yield header.base_offset, content[at : at + header.size_bytes]
            at += header.size_bytes


def flip_one(data: Path, topic: str, partition: int, rng: random.Random) -> Flip:
    """Change one bit of the log; every second one in a header, for they are small among the records."""
    files = [path for path in sorted((data / f"{topic}-{partition}").glob("*.log")) if path.stat().st_size]
    path = rng.choices(files, [each.stat().st_size for each in files])[0]
    content = bytearray(path.read_bytes())
    starts, at = [], 0
    while at < len(content):
        starts.append(at)
        at += parse_header(content, at).size_bytes
    if rng.random() < 0.5:
        position = rng.choice(starts) + rng.randrange(HEADER_SIZE)
    else:
        position = rng.randrange(len(content))
    within = position - max(start for start in starts if start <= position)
    place = [name for begin, name in PLACES if begin <= within][-1]
    bit = 8 * position + rng.randrange(8)
    content[position] ^= 1 << bit % 8
    path.write_bytes(content)
    return Flip(topic, partition, path.name, bit, place)


def read_all(broker: EmbeddedBroker, flip: Flip, truth: Batches) -> tuple[int, int]:
    """Ask for every offset: how often that was refused, and how many batches were not what was written."""
    refused = wrong = 0
    end = max(parse_header(batch).last_offset for batch in truth.values()) + 1
    with Conversation("127.0.0.1", broker.port, PATIENCE_S) as conversation:
        topic_id = id_of(conversation, flip.topic)
        offset = 0
        while offset < end:
            partition = FetchPartition(flip.partition, fetch_offset=offset, partition_max_bytes=2_000)
            topic = FetchTopic(topic_id=topic_id, partitions=[partition])
            answer = conversation.ask(FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[topic]), FetchResponse)
            assert answer is not None
            got = answer.responses[0].partitions[0]
            after = offset + 1
            if got.error_code:
                assert got.error_code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR), got
                refused += 1
            else:
                content, at = bytes(got.records or b""), 0
                expected = [base for base in truth if parse_header(truth[base]).last_offset >= offset]
                while len(content) - at >= HEADER_SIZE:
                    header = parse_header(content, at)
                    batch = content[at : at + max(HEADER_SIZE, header.size_bytes)]
                    if len(batch) < header.size_bytes:
                        break
                    # Each one as it was written, and none of those between left out.
                    wrong += not expected or expected.pop(0) != header.base_offset or truth[header.base_offset] != batch
                    after = max(after, header.last_offset + 1)
                    at += len(batch)
            offset = min(after, end) if after > offset else offset + 1
    return refused, wrong


def id_of(conversation: Conversation, topic: str) -> UUID:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    answer = conversation.ask(request, MetadataResponse)
    assert answer is not None
    return answer.topics[0].topic_id


def scrub(broker: EmbeddedBroker) -> set[tuple[str, int]]:
    """The partitions of which the broker says that they are damaged, or cannot be opened."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in partitions():
        topics[topic].append(partition)
    request = ScrubPartitionsRequest(topics=[ScrubTopic(topic, indexes) for topic, indexes in topics.items()])
    with Conversation("127.0.0.1", broker.port, PATIENCE_S) as conversation:
        answer = conversation.ask(request, ScrubPartitionsResponse)
    assert answer is not None
    assert len(answer.partitions) == 2 * PARTITIONS
    return {(each.topic, each.partition) for each in answer.partitions if each.damages or each.error_code}


if __name__ == "__main__":
    sys.exit(main())
