"""From process start to the first acknowledged record, on an empty data directory.

Kafka's directory is formatted beforehand, outside the span; Strandline formats its own inside it. A bare socket knocks
every 2 ms, because a client library's reconnect backoff is longer than what is measured.
"""

from __future__ import annotations

import time

from bench.brokers import START_TIMEOUT_S, Broker, BrokerFailed
from bench.figures import Figure, Samples, ratio_at_most
from bench.stage import ASYNC_FLUSH, Stage, beside_kafka
from bench.wire import OneRecordProduce, PeerClosed

NAME = "startup"
SUMMARY = "process start to first acknowledged record"
KNOCK_INTERVAL_S = 0.002


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    samples = Samples()
    warm = 1  # The first start of each reads its program from the disk.
    for number in range(warm + stage.rounds):
        for name in stage.starters():
            broker = stage.start(name, settings=ASYNC_FLUSH, wait=False)
            try:
                first_ack_s = seconds_to_first_ack(broker)
                cpu_s = broker.cpu_seconds()
            finally:
                stage.discard(broker)
            stage.say(f"  round {number + 1} {name:10} {first_ack_s:.3f} s")
            if number >= warm:
                samples.add(name, {"seconds": first_ack_s, "cpu_s": cpu_s})
    return [
        beside_kafka(samples, "seconds", "start to first acknowledged record", "s", ratio_at_most(0.25)),
        beside_kafka(samples, "cpu_s", "CPU until then", "s", None),
    ]


def seconds_to_first_ack(broker: Broker) -> float:
    request = OneRecordProduce(NAME, 0, b"first")
    while time.perf_counter() - broker.started_at < START_TIMEOUT_S:
        try:
            with broker.connect(timeout_s=5.0) as connection:
                connection.ask_for_topic(NAME)
                while request.error_of(connection.exchange(request.request)) != 0:
                    connection.ask_for_topic(NAME)
                    time.sleep(KNOCK_INTERVAL_S)
                return time.perf_counter() - broker.started_at
        except (OSError, PeerClosed):
            if broker.process.poll() is not None:
                break
            time.sleep(KNOCK_INTERVAL_S)
    raise BrokerFailed(f"{broker.name} acknowledged nothing: {broker.last_words()}")
