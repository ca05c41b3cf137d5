"""What the way from a Fetch to Arrow costs without Spark: `python bench/arrow_reader.py [--records N]`.

One partition of an embedded broker, read whole by the reader that Spark's tasks use: sockets, CRC, codec, scan and
columns. Measures CPU time of the reading process, the best of several rounds. The promise: 3 million records of 100
bytes a CPU second, so that Java's own cost of a row (about 0.8 us) is what is left of a task's time.
"""

from __future__ import annotations

import argparse
import sys
import time

import pyarrow as pa
from confluent_kafka import Producer

from strandline.client.arrow_rows import FIELDS
from strandline.client.cluster_client import LATEST, ClientSettings, ClusterClient
from strandline.client.fetcher import FetchSettings, OffsetRange, read_range
from strandline.ids import TopicPartition
from strandline.testing import embedded

PROMISE_PER_CPU_S = 3_000_000
ROUNDS = 5
CASES = (
    ("100 B", 100, "none", 1),
    ("100 B, lz4", 100, "lz4", 1),
    ("1 KiB", 1024, "none", 10),
)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def fill(bootstrap: str, topic: str, records: int, size: int, codec: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    value = (b'{"order": 1234567, "customer": "c-000981", "state": "paid", "total": 1299}' * 20)[:size]
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, b"k%d" % (number % 1000), partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(120):
        raise SystemExit(f"{topic} could not be filled")


def read(client: ClusterClient, topic: str, records: int, columns: tuple[str, ...]) -> float:
    """CPU seconds of the best round."""
    schema = pa.schema([FIELDS[name] for name in columns])
    where = TopicPartition(topic, 0)
    end = client.list_offsets({where: LATEST})[where]
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        rows = sum(
            batch.num_rows for batch in read_range(client, OffsetRange(topic, 0, 0, end), FetchSettings(), schema)
        )
        best = min(best, time.process_time() - start)
        if rows != records:
            raise SystemExit(f"{topic}: {rows} rows of {records} records")
    return best


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=500_000)
    options = arguments.parse_args()
    is_kept = True
    with embedded() as log:
        client = ClusterClient(ClientSettings(log.bootstrap))
        print(f"{'records':14}{'columns':>9}{'million/CPU-s':>15}{'ns/record':>11}")
        for name, size, codec, fewer in CASES:
            records = options.records // fewer
            topic = f"records-{size}-{codec}"
            log.create_topic(topic, 1)
            fill(log.bootstrap, topic, records, size, codec)
            for columns in (COLUMNS, ("value",)):
                seconds = read(client, topic, records, columns)
                print(f"{name:14}{len(columns):>9}{records / seconds / 1e6:>15.2f}{seconds / records * 1e9:>11.0f}")
                is_kept = is_kept and (size > 100 or records / seconds >= PROMISE_PER_CPU_S)
        client.close()
    print(f"promise: {PROMISE_PER_CPU_S / 1e6:.0f} million a CPU second at 100 B: {'kept' if is_kept else 'not kept'}")
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
