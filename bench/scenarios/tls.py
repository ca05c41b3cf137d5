"""Broker CPU per MB over TLS, produced and fetched in records of 1 KiB, beside bare TLS loops over the same files."""

from __future__ import annotations

from bench.bare_tls import RECEIVE, SEND, cpu_ms_per_mb
from bench.brokers import STRANDLINE, Broker
from bench.client_process import run_measured
from bench.figures import Figure, ratio_at_most
from bench.measure import MB
from bench.secured import certificates
from bench.stage import ASYNC_FLUSH, Stage, beside_kafka

NAME = "tls"
SUMMARY = "broker CPU per MB over TLS, produced and fetched, 1 KiB records"
PARTITIONS = 4


def run(stage: Stage) -> list[Figure]:
    made = certificates(stage.root)
    count = stage.scaled(250_000, 10_000)
    config = made.client_config()
    with stage.fresh_pair(
        settings=ASYNC_FLUSH, both=made.server_settings(), second="SSL", warm=not stage.quick
    ) as brokers:

        def work(broker: Broker) -> dict[str, float]:
            broker.create_topic(NAME, PARTITIONS)
            task = {"topic": NAME, "count": count, "config": {**config, "bootstrap.servers": _address(broker)}}
            cpu_s, _, (sent,) = run_measured(broker, [("produce", {**task, "value_bytes": 1024})])
            measured = {"produced": cpu_s * 1e3 / (sent["bytes"] / MB), "sent": sent["bytes"] / MB / sent["seconds"]}
            cpu_s, _, (read,) = run_measured(broker, [("consume", task)])
            measured |= {"fetched": cpu_s * 1e3 / (read["bytes"] / MB), "read": read["bytes"] / MB / read["seconds"]}
            if broker.name == STRANDLINE:
                files = sorted(broker.data.glob(f"{NAME}-*/*.log"))
                measured["send_floor"] = cpu_ms_per_mb(SEND, files, made)
                measured["receive_floor"] = cpu_ms_per_mb(RECEIVE, files, made)
            broker.delete_topic(NAME)
            return measured

        samples = stage.take_turns(brokers, work)
    note = "librdkafka, TLS 1.3"
    bound = f"{note}; MB/s is bound by the one client"
    floor = "the same files over one TLS connection, nothing else"
    loop = "bare TLS loop"
    sent, fetched, send_floor, receive_floor = (
        samples.of(STRANDLINE, metric) for metric in ("produced", "fetched", "send_floor", "receive_floor")
    )
    return [
        beside_kafka(samples, "produced", "broker CPU per MB produced over TLS", "ms/MB", ratio_at_most(1.0), note),
        beside_kafka(samples, "fetched", "broker CPU per MB fetched over TLS", "ms/MB", ratio_at_most(1.0), note),
        Figure("broker CPU per MB produced over TLS, by the floor", "ms/MB", sent, receive_floor, loop, note=floor),
        Figure("broker CPU per MB fetched over TLS, by the floor", "ms/MB", fetched, send_floor, loop, note=floor),
        beside_kafka(samples, "sent", "produced over TLS", "MB/s", None, bound),
        beside_kafka(samples, "read", "fetched over TLS", "MB/s", None, bound),
    ]


def _address(broker: Broker) -> str:
    return f"localhost:{broker.second_port}"
