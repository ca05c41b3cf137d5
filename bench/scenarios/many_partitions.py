"""4,000 partitions with at most 4,096 open files: create them, write to each, read each back.

The broker runs under the limit, the client does not. Kafka keeps every active segment open and may not live through it:
then the report says so and goes on.
"""

from __future__ import annotations

import time

from bench.brokers import Broker, BrokerFailed
from bench.client_process import ClientFailed, run_measured
from bench.figures import Figure, Samples, at_least
from bench.measure import open_files
from bench.stage import ASYNC_FLUSH, Stage, beside_kafka
from bench.wire import PeerClosed, ServerRefused

NAME = "many-partitions"
SUMMARY = "4,000 partitions with `ulimit -n 4096`: create, produce to all, fetch all"
PARTITIONS = 4_000
OPEN_FILES_MAX = 4_096


def run(stage: Stage) -> list[Figure]:
    partitions = stage.scaled(PARTITIONS, 400)
    stage.put_shared_pair_away()
    samples = Samples()
    for name in stage.starters():
        broker = stage.start(name, settings=ASYNC_FLUSH, open_files_max=OPEN_FILES_MAX)
        try:
            measured = lived_through(broker, partitions)
            stage.say(f"  {name:10} {measured}")
            samples.add(name, measured)
        except (BrokerFailed, ClientFailed, ServerRefused, PeerClosed, OSError) as failure:
            stage.remarks.append(f"{NAME}: {name} did not manage {partitions:,} partitions: {failure}")
            samples.add(name, {"read_back": 0})
        finally:
            stage.discard(broker)
    note = f"`ulimit -n {OPEN_FILES_MAX}`"
    return [
        beside_kafka(
            samples, "read_back", "partitions written and read back", "partitions", at_least(partitions), note
        ),
        beside_kafka(samples, "create_s", f"create {partitions:,} partitions", "s", None),
        beside_kafka(samples, "produce_s", "one record to each", "s", None, "librdkafka"),
        beside_kafka(samples, "fetch_s", "fetch each", "s", None, "librdkafka"),
        beside_kafka(samples, "open_files", "open files afterwards", "files", None),
        beside_kafka(samples, "rss_mb", "memory afterwards (RSS)", "MB", None),
    ]


def lived_through(broker: Broker, partitions: int) -> dict[str, float]:
    start = time.perf_counter()
    broker.create_topic(NAME, partitions)
    create_s = time.perf_counter() - start
    _, _, (result,) = run_measured(broker, [("every_partition", {"topic": NAME, "partitions": partitions})])
    return {
        "create_s": create_s,
        "produce_s": result["produce_s"],
        "fetch_s": result["fetch_s"],
        "read_back": result["read_back"],
        "open_files": open_files(broker.pid),
        "rss_mb": broker.resident_mb(),
    }
