"""`strandline serve --brokers 2` beside one process: what a second broker process costs, and what it gains."""

from __future__ import annotations

from bench.brokers import STRANDLINE, Broker
from bench.figures import Figure, ratio_at_least
from bench.measure import MB
from bench.scenarios.one_record import BARE, CONNECTIONS, one_record
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import ASYNC_FLUSH, Stage

NAME = "serve-brokers"
SUMMARY = "`strandline serve --brokers 2` beside one process: records per CPU-second of the brokers, wall time"
BROKERS = 2
TWO = f"{BROKERS} processes"
VALUE_BYTES = 1024


def run(stage: Stage) -> list[Figure]:
    if stage.kafka_twice:
        stage.remarks.append(f"{NAME} is not run: it is about Strandline's processes")
        return []
    stage.put_shared_pair_away()
    large, small = f"{NAME}-large", f"{NAME}-small"
    records, requests = stage.scaled(250_000, 10_000), stage.scaled(64_000, 3_200)
    pair = [stage.start_brokers(TWO, BROKERS, settings=ASYNC_FLUSH), stage.start(STRANDLINE, settings=ASYNC_FLUSH)]
    try:
        for broker in pair:
            broker.create_topic(large, PARTITIONS)
            broker.create_topic(small, CONNECTIONS)

        def work(broker: Broker) -> dict[str, float]:
            batches = produced(broker, topic=large, count=records, value_bytes=VALUE_BYTES)
            single = one_record(broker, BARE, topic=small, count=requests, idempotent=False)
            return {
                "batches_per_cpu_s": MB / VALUE_BYTES * 1e3 / batches["ms_per_mb"],
                "batches_s": records * VALUE_BYTES / MB / batches["mb_per_s"],
                "single_per_cpu_s": 1e6 / single["us"],
                "single_s": requests / single["per_s"],
            }

        samples = stage.take_turns(pair, work)
    finally:
        for broker in pair:
            stage.discard(broker)

    def beside_one(metric: str, name: str, unit: str, note: str, bound: float | None = None) -> Figure:
        two, one = samples.of(TWO, metric), samples.of(STRANDLINE, metric)
        return Figure(name, unit, two, one, "1 process", target=ratio_at_least(bound) if bound else None, note=note)

    batches, single = f"librdkafka, {records:,} records", f"bare sockets, {requests:,} records"
    return [
        beside_one("batches_per_cpu_s", "produced by 2 brokers, 1 KiB", "rec/CPU-s", batches, 0.95),
        beside_one("batches_s", "wall time of it, 1 KiB", "s", batches),
        beside_one("single_per_cpu_s", "produced by 2 brokers, one record per request", "rec/CPU-s", single, 0.95),
        beside_one("single_s", "wall time of it, one record per request", "s", single),
    ]
