"""Writes half a day of the shop to a log within a minute, and shows what an example makes of it.

    python examples/feed.py examples/windows.py

It is a stock Kafka client and knows nothing of Spark. Without a file it only writes.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parent))  # So that it runs from anywhere.

from shop import HOURS, Record, half_day

PARTITIONS = 2
COMPACTED = ("customers", "rates")
QUIET = {"log_level": 0}
PATIENCE_S = 60.0
SHOWN_MAX = 8
"""Records of each topic that are shown as they are; then they are counted."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="feed.py", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("example", nargs="?", help="the file of a pipeline whose output is shown")
    parser.add_argument("--bootstrap", default=_log_here(), help="the log to write to (%(default)s)")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long half a day takes (%(default)s)")
    parser.add_argument("--seed", type=int, default=6, help="another half day (%(default)s)")
    asked = parser.parse_args()
    outputs = _outputs(asked.example) if asked.example else []
    try:
        create_topics(asked.bootstrap)
    except KafkaException:
        print(f"feed: no log answers at {asked.bootstrap}: start the pipeline first, or say --bootstrap")
        return 1
    print(f"feed: writing to {asked.bootstrap}")
    show = Shown(asked.bootstrap, outputs)
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS)
    written, lost = 0, list[str]()
    for record in paced(half_day(random.Random(asked.seed), begin), begin, asked.seconds, asked.bootstrap, lost):
        written += 1
        if written % 500 == 0:
            print(f"        {written:,} records written; in the shop it is {record.written:%H:%M}")
        show.what_came()
    if lost:
        print(f"feed: the log does not take records any more ({lost[0]}): has the pipeline ended, and its log with it?")
        show.close()
        return 1
    print(f"        {written:,} records written; the shop closes")
    show.until_quiet()
    show.close()
    return 0


def paced(
    records: Iterator[Record], begin: datetime, seconds: float, bootstrap: str, lost: list[str]
) -> Iterator[Record]:
    """Each record when it was written, a shop's half day in so many seconds; until one is `lost`, with the reason."""

    def answered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            lost.append(error.str())

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "message.timeout.ms": 10_000, **QUIET})
    started, speed = time.monotonic(), timedelta(hours=HOURS).total_seconds() / max(seconds, 0.001)
    for record in records:
        due = started + (record.written - begin).total_seconds() / speed
        time.sleep(max(0.0, due - time.monotonic()))
        producer.produce(record.topic, key=record.key, value=record.value, on_delivery=answered)
        producer.poll(0)
        if lost:
            return
        yield record
    producer.flush()


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000, **QUIET})
    there = admin.list_topics(timeout=5).topics
    wanted = [
        NewTopic(topic, PARTITIONS, 1, config={"cleanup.policy": "compact"} if topic in COMPACTED else {})
        for topic in ("orders", "clicks", "events", *COMPACTED)
        if topic not in there
    ]
    for outcome in admin.create_topics(wanted).values() if wanted else ():
        outcome.result()


def _log_here() -> str:
    """The log that a pipeline has started in this directory, else the usual address."""
    try:
        return str(json.loads(Path(".strandline", "node.json").read_text())["bootstrap"])
    except (OSError, ValueError, KeyError):
        return "localhost:9092"


def _outputs(path: str) -> list[str]:
    """The topics that a pipeline writes."""
    from strandline import pipeline

    loaded = pipeline.load(Path(path))
    dead = [source.dead_letters for source in loaded.sources.values() if source.dead_letters]
    return [dataset.topic for dataset in loaded.written] + dead


class Shown:
    """The committed records of some topics, printed as they come."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self.counts = dict.fromkeys(topics, 0)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"feed-{random.SystemRandom().randrange(10**9)}",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1000,
                **QUIET,
            }
        )
        if topics:
            self._consumer.subscribe(topics)

    def what_came(self, wait_s: float = 0.0) -> int:
        messages = self._consumer.consume(500, wait_s) if self.counts else []
        records = [message for message in messages if message.error() is None]
        for record in records:
            topic = record.topic()
            self.counts[topic] += 1
            if self.counts[topic] <= SHOWN_MAX:
                print(f"{topic:>24}  {_text(record.key())}  {_text(record.value())}")
            elif self.counts[topic] == SHOWN_MAX + 1:
                print(f"{topic:>24}  ... and so on")
        return len(records)

    def until_quiet(self) -> None:
        quiet_since = time.monotonic()
        while self.counts and time.monotonic() < quiet_since + (10 if any(self.counts.values()) else PATIENCE_S):
            if self.what_came(1.0):
                quiet_since = time.monotonic()
        for topic, count in self.counts.items():
            print(f"{topic:>24}  {count:,} records")
        if self.counts and not any(self.counts.values()):
            print("feed: nothing came out: does the pipeline run? `strandline pipeline status` tells how far it is")

    def close(self) -> None:
        self._consumer.close()


def _text(of: bytes | None) -> str:
    if of is None:
        return "-"
    text = of.decode("utf-8", "replace")
    try:
        return json.dumps(json.loads(text)) if text.startswith("{") else text
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(main())
