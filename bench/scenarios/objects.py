"""Object topics on versitygw, an S3 server on this machine: rate, requests and latency, each beside the store alone.

The peer of the rate is obstore alone, which writes objects of the same size to the same server, as many at a time. All
of them share the machine: the server, the broker, and the producers.
"""

from __future__ import annotations

import time
from typing import Final

from bench.brokers import STRANDLINE, Broker, Server
from bench.client_process import ClientProcess, run_measured
from bench.figures import Figure, Samples, at_most, ratio_at_least, ratio_at_most
from bench.measure import MB
from bench.scenarios.one_record import BARE, one_record
from bench.stage import Stage
from bench.store_server import Store, metrics, running_store, started

NAME = "objects"
SUMMARY = (
    "object topics on an S3 server: MB/s beside obstore alone, PUTs an interval, p50, and ack=wal beside a local topic"
)
PRODUCERS: Final = 2
PARTITIONS: Final = 4
VALUE_BYTES: Final = 16 * 1024
"""Smaller ones cost the producers, which share the machine, more than all the rest."""
INTERVAL_S: Final = 0.25
OBJECT_BYTES: Final = 8 << 20
IN_FLIGHT: Final = 4
"""Uploads at a time, of the broker and of obstore alone."""
SETTINGS: Final = {"strandline.storage": "object"}
WAL: Final = {**SETTINGS, "strandline.object.ack": "wal"}
RATE_PER_S: Final = 200
PACED_S: Final = 5.0
IDLE_S: Final = 3.0
SPREAD_EVERY_S: Final = 0.25
OWN_MS: Final = 20.0
"""What the broker may add to an interval and the store."""
ALONE: Final = "store"


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    with running_store(stage) as store:
        broker, port = started(stage, STRANDLINE, store.settings("objects"))
        try:
            figures = [
                *_throughput(stage, store, broker),
                *_requests(stage, store, broker, port),
                *_latency(stage, store, broker),
                *_wal(stage, broker, "one node"),
            ]
        finally:
            stage.discard(broker)
        cluster = stage.start_cluster(STRANDLINE, settings=store.settings("cluster"))
        try:
            return [*figures, *_wal(stage, cluster, "three nodes")]
        finally:
            stage.discard(cluster)


def _throughput(stage: Stage, store: Store, broker: Broker) -> list[Figure]:
    count, objects = stage.scaled(10_000, 1_000), stage.scaled(32, 2)
    samples = Samples()
    for number in range(1 + min(stage.rounds, 3)):
        sent = [(f"alone/{number}/{each}", OBJECT_BYTES) for each in range(objects)]
        alone = store.alone(broker, action="put", objects=sent, requests_in_flight=IN_FLIGHT)
        store.clear("alone")
        topic = f"{NAME}-{number}"
        broker.create_topic(topic, PARTITIONS, SETTINGS)
        task = {"topic": topic, "count": count, "value_bytes": VALUE_BYTES}
        cpu_s, seconds, results = run_measured(broker, [("produce", task)] * PRODUCERS)
        size_mb = sum(each["bytes"] for each in results) / MB
        ours = {"mb_per_s": size_mb / seconds, "ms_per_mb": cpu_s * 1e3 / size_mb}
        broker.delete_topic(topic)
        stage.say(
            f"  round {number + 1}  store alone {alone['mb_per_s']:.0f} MB/s  produced {ours['mb_per_s']:.0f} MB/s, "
            f"{ours['ms_per_mb']:.2f} ms of the broker's CPU per MB"
        )
        if number:
            samples.add(ALONE, alone)
            samples.add(STRANDLINE, ours)
    note = f"{PRODUCERS} librdkafka processes, 16 KiB; alone: {IN_FLIGHT} PUTs of 8 MiB at a time"
    ours, theirs = (samples.of(name, "mb_per_s") for name in (STRANDLINE, ALONE))
    return [
        Figure("produced to an object topic, acknowledged", "MB/s", ours, theirs, ALONE, ratio_at_least(0.7), note),
        Figure("broker CPU per MB of an object topic", "ms/MB", samples.of(STRANDLINE, "ms_per_mb")),
    ]


def _requests(stage: Stage, store: Store, broker: Broker, port: int) -> list[Figure]:
    partitions, rounds = stage.scaled(1_000, 50), stage.scaled(20, 4)
    topic = f"{NAME}-spread"
    broker.create_topic(topic, partitions, SETTINGS)
    task = {"topic": topic, "partitions": partitions, "rounds": rounds, "every_s": SPREAD_EVERY_S}
    measured = Samples()
    for number in range(2):
        puts, said = store.puts("wal"), metrics(port)["strandline_object_writes_total"]
        start = time.perf_counter()
        run_measured(broker, [("spread", task)])
        # With the first round of each client, which is not measured elsewhere.
        seconds = time.perf_counter() - start
        puts = store.puts("wal") - puts
        said = metrics(port)["strandline_object_writes_total"] - said
        # Ten intervals have eleven ends.
        intervals = seconds // INTERVAL_S + 1
        stage.say(f"  round {number + 1}  {puts} PUTs, {said:g} by the broker's metrics, {intervals:g} intervals")
        measured.add(STRANDLINE, {"puts": puts, "said": said, "intervals": intervals})
    quiet = store.puts("wal")
    time.sleep(IDLE_S)
    quiet = store.puts("wal") - quiet
    broker.delete_topic(topic)
    puts, said, intervals = (measured.of(STRANDLINE, each) for each in ("puts", "said", "intervals"))
    note = f"{partitions:,} partitions, a record to each every {SPREAD_EVERY_S:g} s"
    return [
        Figure("data PUTs, by the server's log", "", puts, intervals, "intervals", ratio_at_most(1.0), note),
        Figure("data PUTs, by the broker's metrics", "", said, puts, "server's log", ratio_at_most(1.0)),
        Figure(f"data PUTs in {IDLE_S:g} s without records", "", [quiet], target=at_most(0)),
    ]


def _latency(stage: Stage, store: Store, broker: Broker) -> list[Figure]:
    topic = f"{NAME}-paced"
    broker.create_topic(topic, PARTITIONS, SETTINGS)
    size_bytes = int(RATE_PER_S * INTERVAL_S * 170)
    samples = Samples()
    for number in range(1 + min(stage.rounds, 3)):
        sent = [(f"alone/small-{number}-{each}", size_bytes) for each in range(stage.scaled(40, 5))]
        alone = store.alone(broker, action="put", objects=sent, requests_in_flight=1)
        felt = paced(broker, topic, seconds=stage.scaled(int(PACED_S), 1))
        bound_ms = INTERVAL_S * 500 + 2 * alone["p50_ms"] + OWN_MS
        stage.say(
            f"  round {number + 1}  p50 {felt['p50_ms']:.1f} ms, p99 {felt['p99_ms']:.1f} ms, bound {bound_ms:.1f} ms"
        )
        if number:
            samples.add(STRANDLINE, {**felt, "round_trip_ms": alone["p50_ms"], "bound_ms": bound_ms})
    broker.delete_topic(topic)
    p50, p99, bound, trip = (samples.of(STRANDLINE, each) for each in ("p50_ms", "p99_ms", "bound_ms", "round_trip_ms"))
    note = f"{RATE_PER_S}/s by bare sockets; bound: half an interval, two PUTs of obstore alone, {OWN_MS:g} ms"
    return [
        Figure("produce to an object topic, p50", "ms", p50, bound, "bound", ratio_at_most(1.0), note),
        Figure("produce to an object topic, p99", "ms", p99),
        Figure("one PUT of obstore alone", "ms", trip, note=f"{size_bytes:,} bytes"),
    ]


def paced(broker: Broker, topic: str, *, seconds: float) -> dict[str, float]:
    """Send one-record requests at a steady rate for a time."""
    task = {"topic": topic, "partitions": PARTITIONS, "connections": PARTITIONS, "rate_per_s": RATE_PER_S}
    with ClientProcess("paced", bootstrap=broker.bootstrap, **task) as client:
        client.wait_ready()
        client.tell()
        time.sleep(seconds)
        client.tell()
        felt = client.result()
    return {"p50_ms": felt["p50_ms"], "p99_ms": felt["p99_ms"]}


def _wal(stage: Stage, broker: Server, where: str) -> list[Figure]:
    topics = {"local": {}, "wal": WAL}
    for name, settings in topics.items():
        broker.create_topic(f"{NAME}-{name}", PARTITIONS, settings)
    samples, count = Samples(), stage.scaled(2_000, 200)
    for number in range(2 + stage.rounds):
        # The second finds the machine as the first has left it: each comes first as often as the other.
        for name in topics if number % 2 else reversed(topics):
            for connections in (1, PARTITIONS):
                measured = one_record(
                    broker,
                    BARE,
                    topic=f"{NAME}-{name}",
                    count=count // (4 if connections == 1 else 1),
                    idempotent=False,
                    partitions=PARTITIONS,
                    connections=connections,
                )
                stage.say(
                    f"  round {number + 1} {where} {name:5} {connections} at a time, p50 {measured['p50_ms']:.3f} ms"
                )
                if number > 1:
                    samples.add(name, {f"{connections}": measured["p50_ms"]})
    for name in topics:
        broker.delete_topic(f"{NAME}-{name}")
    return [
        Figure(
            f"p50 with ack=wal, {where}, {connections} at a time",
            "ms",
            samples.of("wal", f"{connections}"),
            samples.of("local", f"{connections}"),
            "local topic",
            ratio_at_most(1.3),
            "bare sockets, one record a request, default flush.mode",
        )
        for connections in (1, PARTITIONS)
    ]
