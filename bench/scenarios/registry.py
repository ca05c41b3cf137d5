"""The schema registry over HTTP, with 10,000 subjects: registrations, reads by id beside a bare route, and its start.

The topic is filled by a producer, in the form in which the registry writes it. Requests go over bare sockets.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from bench.brokers import STRANDLINE, Broker
from bench.client_process import run_measured
from bench.clients.http_requests import schema_text
from bench.figures import Figure, Samples, at_least, at_most, ratio_at_least, ratio_at_most
from bench.http_servers import HttpServer, served
from bench.stage import Stage
from strandline.schemas.records import SchemaContent, SchemaVersion, schema_record

NAME = "registry"
SUMMARY = "registrations, reads by id beside a bare route, p99 of both with 10,000 subjects, a start with 100,000"
SUBJECTS = 10_000
SCHEMAS = 100_000
WRITERS = 16
READERS = 8
RATE = 1_000
"""Requests a second of the mixture whose p99 has a target."""
BARE = "bare route"


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    broker = stage.start(STRANDLINE)
    subjects, schemas = stage.scaled(SUBJECTS, 500), stage.scaled(SCHEMAS, 2_000)
    bodies = stage.root / "bodies.json"
    try:
        for topic, count in (("_schemas", subjects), ("_large", schemas)):
            broker.create_topic(topic, 1, {"cleanup.policy": "compact"})
            fill(broker, topic, count)
        with registry(broker, "_schemas") as ours:
            save_bodies(ours, subjects, bodies)
            with bare_route(bodies) as bare:
                samples = measured(stage, ours, bare, subjects)
        starts = [start_s(broker, "_large") for _ in range(1 + stage.rounds)][1:]
    finally:
        stage.discard(broker)
    return figures(samples, starts)


def measured(stage: Stage, ours: HttpServer, bare: HttpServer, subjects: int) -> Samples:
    samples = Samples()
    reads, writes = stage.scaled(8_000, 200), stage.scaled(1_000, 40)
    fresh = subjects
    for number in range(stage.warm_rounds + stage.rounds):
        taken: dict[str, dict[str, float]] = {}
        for server in (ours, bare) if number % 2 else (bare, ours):
            taken[server.name] = requested(server, "read", reads, READERS, subjects)
        registered = requested(ours, "register", writes, WRITERS, subjects, first=fresh + 1)
        mixed = requested(ours, "mix", reads // 2, READERS, subjects, first=fresh + writes + 1)
        fresh += writes + reads // 2
        paced = requested(ours, "mix", reads // 2, WRITERS, subjects, first=fresh + 1, rate=RATE)
        fresh += reads // 2
        taken[ours.name] |= {f"write_{name}": value for name, value in registered.items()}
        taken[ours.name] |= {f"mix_{name}": value for name, value in mixed.items()}
        taken[ours.name] |= {f"paced_{name}": value for name, value in paced.items()}
        for name, values in taken.items():
            stage.say(f"  round {number + 1} {name:10} " + "  ".join(f"{k} {v:.4g}" for k, v in values.items()))
            if number >= stage.warm_rounds:
                samples.add(name, values)
    return samples


def requested(
    server: HttpServer, what: str, count: int, connections: int, subjects: int, *, first: int = 0, rate: int = 0
) -> dict[str, float]:
    """Send requests, `rate` a second or as many as the connections take."""
    task = {"what": what, "count": count, "connections": connections, "subjects": subjects, "first": first}
    task["rate"] = rate
    cpu_s, _, (result,) = run_measured(server, [("http_requests", task)])  # type: ignore[arg-type]  # of it, what is used
    return {
        "per_s": result["requests"] / result["seconds"],
        "us": cpu_s * 1e6 / result["requests"],
        "p50_ms": result["p50_ms"],
        "p99_ms": result["p99_ms"],
    }


def figures(samples: Samples, starts: Sequence[float]) -> list[Figure]:
    of = samples.of
    one_each = f"{READERS} connections, one request in flight on each"
    mix = "65 % by id, 20 % latest, 10 % look-ups, 5 % registrations"
    flat_out = f"{mix}, {one_each}"
    return [
        Figure("reads by id", "1/s", of(NAME, "per_s"), of(BARE, "per_s"), BARE, ratio_at_least(0.5), one_each),
        Figure("CPU per read by id", "us", of(NAME, "us"), of(BARE, "us"), BARE, ratio_at_most(2.0), one_each),
        Figure("registrations", "1/s", of(NAME, "write_per_s"), target=at_least(300), note=f"{WRITERS} connections"),
        Figure("p99 of a registration", "ms", of(NAME, "write_p99_ms"), note=f"{WRITERS} connections"),
        Figure(f"p99, {RATE:,} requests/s", "ms", of(NAME, "paced_p99_ms"), target=at_most(20), note=mix),
        Figure(f"p50, {RATE:,} requests/s", "ms", of(NAME, "paced_p50_ms"), note=mix),
        Figure("p99, flat out", "ms", of(NAME, "mix_p99_ms"), note=flat_out),
        Figure("p50, flat out", "ms", of(NAME, "mix_p50_ms"), note=flat_out),
        Figure("start with 100,000 schemas", "s", starts, target=at_most(5), note="from the process to `ready`"),
    ]


def fill(broker: Broker, topic: str, count: int) -> None:
    """Write subjects with a schema each, as a registry would."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 0})
    for number in range(1, count + 1):
        version = SchemaVersion(f"s{number}-value", 1, number, SchemaContent("AVRO", schema_text(number)))
        record = schema_record(version)
        producer.produce(topic, key=record.key, value=record.value, partition=0)
        producer.poll(0)
    assert producer.flush(120) == 0


@contextmanager
def registry(broker: Broker, topic: str) -> Iterator[HttpServer]:
    command = ["strandline", "registry", "serve", "-b", broker.bootstrap, "--listen", "127.0.0.1:0", "--topic", topic]
    with served(NAME, command) as server:
        yield server


@contextmanager
def bare_route(bodies: Path) -> Iterator[HttpServer]:
    with served(BARE, ["bench.bare_starlette", str(bodies)]) as server:
        yield server


def save_bodies(server: HttpServer, count: int, path: Path) -> None:
    """Write what the registry answers for each id, a line each."""
    connection = http.client.HTTPConnection(server.bootstrap)
    with path.open("wb") as file:
        for schema_id in range(1, count + 1):
            connection.request("GET", f"/schemas/ids/{schema_id}")
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == 200
            assert b"\n" not in body
            file.write(body + b"\n")
    connection.close()


def start_s(broker: Broker, topic: str) -> float:
    began = time.perf_counter()
    with registry(broker, topic):
        return time.perf_counter() - began
