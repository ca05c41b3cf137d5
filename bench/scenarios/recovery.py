"""A clean stop and a start after kill -9, with many partitions whose logs hold records that must be read again.

The logs are written by the engine, without a broker, because 20 GB through clients would take longer than all the rest.
They have no recovery point, so recovery reads every byte of them, as it does after a crash of a busy node. A socket
asks for the metadata, and then for the offsets of all partitions, until every one is served. The stop is that of a
node which has written one unflushed record to each partition.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from bench.brokers import STRANDLINE, Broker, BrokerFailed
from bench.client_process import run_measured
from bench.clients.large_log import BATCH_BYTES, RECORDS, template
from bench.figures import Figure, Samples, at_most
from bench.stage import ASYNC_FLUSH, Stage, beside_kafka

NAME = "recovery"
SUMMARY = "4,000 partitions and 20 GB: a clean stop, and a start after kill -9"
PARTITIONS = 4_000
SIZE_BYTES = 20_000_000_000
RECOVERY_S_MAX = 900.0


def run(stage: Stage) -> list[Figure]:
    partitions = stage.scaled(PARTITIONS, 60)
    size_bytes = stage.scaled(SIZE_BYTES, 150_000_000)
    stage.put_shared_pair_away()
    samples = Samples()
    broker = stage.start(STRANDLINE, settings=ASYNC_FLUSH)
    try:
        measured = lived_through(broker, partitions, size_bytes)
        stage.say(f"  {STRANDLINE:10} {measured}")
        samples.add(STRANDLINE, measured)
    finally:
        stage.discard(broker)
    size = f"{partitions:,} partitions, {size_bytes / 1e9:g} GB"
    return [
        beside_kafka(samples, "stop_s", f"clean stop of {partitions:,} partitions", "s", at_most(3)),
        beside_kafka(samples, "metadata_s", "kill -9 to the first answer to Metadata", "s", at_most(2), size),
        beside_kafka(samples, "first_s", "to the first partition that is served", "s", None),
        beside_kafka(samples, "all_s", "to the last one", "s", None),
        beside_kafka(samples, "longest_answer_s", "longest wait for an answer meanwhile", "s", at_most(0.5)),
    ]


def lived_through(broker: Broker, partitions: int, size_bytes: int) -> dict[str, float]:
    broker.create_topic(NAME, partitions)
    run_measured(broker, [("every_partition", {"topic": NAME, "partitions": partitions})])
    began = time.perf_counter()
    broker.stop()
    stop_s = time.perf_counter() - began
    if not (broker.data / ".kafka_cleanshutdown").exists():
        raise BrokerFailed(f"the stop was not clean: {broker.last_words()}")
    for index in range(partitions):
        fill(broker.data / f"{NAME}-{index}", size_bytes // partitions)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (broker.data / name).unlink()
    os.sync()
    again = broker.started_again()
    broker.process = again.process
    metadata_s = time.perf_counter() - again.started_at
    return {"stop_s": stop_s, "metadata_s": metadata_s} | watched(again, partitions)


def fill(directory: Path, size_bytes: int) -> None:
    """Append whole batches behind the record that is there, as an engine that was killed leaves them."""
    (log,) = directory.glob("*.log")
    batch = template()
    with log.open("ab") as file:
        for number in range(size_bytes // BATCH_BYTES):
            file.write((1 + number * RECORDS).to_bytes(8, "big"))
            file.write(memoryview(batch)[8:])


def watched(broker: Broker, partitions: int) -> dict[str, float]:
    """Ask for all partitions again and again until each of them is served."""
    first_s = longest_s = 0.0
    with broker.connect(timeout_s=60) as connection:
        while True:
            asked = time.perf_counter()
            served = connection.serving_partitions(NAME, partitions)
            now = time.perf_counter()
            longest_s = max(longest_s, now - asked)
            if served and not first_s:
                first_s = now - broker.started_at
            if served == partitions:
                return {"first_s": first_s, "all_s": now - broker.started_at, "longest_answer_s": longest_s}
            if broker.process.poll() is not None or now - broker.started_at > RECOVERY_S_MAX:
                broker.process.send_signal(signal.SIGKILL)
                raise BrokerFailed(f"{served:,} of {partitions:,} partitions are served: {broker.last_words()}")
            time.sleep(0.02)
