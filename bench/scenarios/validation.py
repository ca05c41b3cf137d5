"""What validation by schema costs a broker: the same Avro records to a topic without it, by id, and strict, in turn.

One broker has all three topics. The schema is written to `_schemas` as a registry writes it; no registry runs.
"""

from __future__ import annotations

import json
from itertools import permutations

from bench.brokers import STRANDLINE, Broker
from bench.clients.produce import AVRO_ID, AVRO_SCHEMA
from bench.figures import Figure, Samples, ratio_at_most
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import ASYNC_FLUSH, Stage
from bench.warm_up import warm_up

NAME = "validation"
SUMMARY = "CPU of produce with validation by schema, by CPU without"
ROUNDS_FACTOR = 6
"""Three percent are less than what one round differs from the next: it takes more of them."""
SIZES = {100: "100 B", 1024: "1 KiB"}
PLAIN, BY_ID, STRICT = "plain", "id", "strict"
VALIDATED = {"confluent.value.schema.validation": "true"}
TOPICS = {PLAIN: {}, BY_ID: VALIDATED, STRICT: VALIDATED | {"strandline.schema.validation": "strict"}}
TARGETS = {BY_ID: 1.03, STRICT: 2.0}


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    broker = stage.start(STRANDLINE, settings={**ASYNC_FLUSH, "http.listener": "off"})
    try:
        for kind, settings in TOPICS.items():
            broker.create_topic(_topic(kind), PARTITIONS, settings)
        register(broker)
        warm_up([broker], rounds=stage.warm_rounds, quick=stage.quick, say=stage.say)
        samples = _measure(stage, broker)
    finally:
        stage.discard(broker)
    return [
        Figure(
            f"CPU of produce, validated {'by id' if kind == BY_ID else 'strictly'}, {words}",
            "ms/MB",
            samples.of(kind, words),
            samples.of(PLAIN, words),
            beside_name="not validated",
            target=ratio_at_most(target),
            note="librdkafka, Avro, uncompressed",
        )
        for words in SIZES.values()
        for kind, target in TARGETS.items()
    ]


def register(broker: Broker) -> None:
    """Write the schema of the records for both topics that validate them."""
    from confluent_kafka import Producer

    broker.create_topic("_schemas", 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    for kind in TARGETS:
        subject = f"{_topic(kind)}-value"
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        value = {"subject": subject, "version": 1, "id": AVRO_ID, "schema": json.dumps(AVRO_SCHEMA), "deleted": False}
        producer.produce("_schemas", json.dumps(value), json.dumps(key, separators=(",", ":")), partition=0)
    if producer.flush(30):
        raise SystemExit("the schema could not be written")


def _measure(stage: Stage, broker: Broker) -> Samples:
    samples = Samples()
    orders = list(permutations(TOPICS))
    for number in range(stage.warm_rounds + stage.rounds * ROUNDS_FACTOR):
        # The first one finds the machine as the last one of the round before has left it.
        for kind in orders[number % len(orders)]:
            measured = {
                words: produced(
                    broker,
                    topic=_topic(kind),
                    count=stage.scaled(102_400_000 // size_bytes, 5_000),
                    value_bytes=size_bytes,
                    values="avro",
                )["ms_per_mb"]
                for size_bytes, words in SIZES.items()
            }
            stage.say(f"  round {number + 1} {kind:6}  " + "  ".join(f"{k} {v:.4g}" for k, v in measured.items()))
            if number >= stage.warm_rounds:
                samples.add(kind, measured)
    return samples


def _topic(kind: str) -> str:
    return f"{NAME}-{kind}"
