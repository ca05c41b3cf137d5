"""Produces `count` records of `value_bytes` as fast as librdkafka takes them, acks=all, and waits for every ack."""

from __future__ import annotations

import random
import time

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.turn import finish, task, wait_for_sign

CHUNK = 1000
QUEUED_MAX = 90_000
"""Below librdkafka's default limit, so that no record is refused for a full queue."""


def random_values(value_bytes: int) -> list[bytes]:
    source = random.Random(1)
    return [source.randbytes(value_bytes) for _ in range(CHUNK)]


def order_values(value_bytes: int) -> list[bytes]:
    """JSON lines that compress about as well as an order feed does."""
    source = random.Random(1)
    cities = ["Lisboa", "Bergen", "Aarhus", "Galway", "Nantes", "Gdansk"]
    orders = (
        f'{{"order":{source.randrange(10**9)},"customer":"c-{source.randrange(10**5)}","city":"{source.choice(cities)}",'
        f'"cents":{source.randrange(10**5)},"sku":"{source.randrange(16**6):06x}"}}'.ljust(value_bytes)
        for _ in range(CHUNK)
    )
    return [order.encode()[:value_bytes] for order in orders]


AVRO_ID = 1
AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "city", "type": {"type": "enum", "name": "City", "symbols": ["LISBOA", "BERGEN", "AARHUS"]}},
        {"name": "cents", "type": "int"},
        {"name": "paid", "type": ["null", "boolean"]},
        {"name": "rate", "type": "double"},
        {"name": "skus", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": "string"},
    ],
}


def avro_values(value_bytes: int) -> list[bytes]:
    """Orders in Avro behind the id of their schema, as a serializer of Confluent's writes them."""
    source = random.Random(1)

    def number(value: int) -> bytes:
        value = value << 1
        found = bytearray()
        while value >= 0x80:
            found.append(value & 0x7F | 0x80)
            value >>= 7
        return bytes((*found, value))

    def text(value: str) -> bytes:
        return number(len(value)) + value.encode()

    values = []
    for _ in range(CHUNK):
        skus = [f"{source.randrange(16**6):06x}" for _ in range(2)]
        begin = b"\0" + AVRO_ID.to_bytes(4, "big") + number(source.randrange(10**9))
        begin += text(f"c-{source.randrange(10**5):05}") + number(source.randrange(3)) + number(source.randrange(10**5))
        begin += b"\x02\x01" + source.randbytes(8) + number(len(skus)) + b"".join(map(text, skus)) + b"\0"
        left = value_bytes - len(begin)
        # The length of the note takes a byte or two itself.
        note = "x" * (left - 1 if left <= 64 else left - 2)
        values.append(begin + text(note))
    assert {len(value) for value in values} == {value_bytes}
    return values


VALUES = {"random": random_values, "orders": order_values, "avro": avro_values}


def main() -> None:
    options = task()
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "acks": "all",
            # Only failures come back into Python: a call per record would make the client the bottleneck.
            "delivery.report.only.error": True,
            **options.get("config", {}),
        }
    )
    producer.list_topics(options["topic"], timeout=30)
    values = VALUES[options.get("values", "random")](options["value_bytes"])
    records = [{"value": value} for value in values]
    wait_for_sign()

    start = time.perf_counter()
    for _ in range(options["count"] // CHUNK):
        while len(producer) > QUEUED_MAX:
            producer.poll(0.001)
        queued = producer.produce_batch(options["topic"], records, on_delivery=on_delivery)
        if queued != CHUNK:
            raise SystemExit(f"librdkafka took only {queued} of {CHUNK} records")
    left = producer.flush(120)
    seconds = time.perf_counter() - start
    if left or failures:
        raise SystemExit(f"{left} records without an ack, {len(failures)} failed: {failures[:1]}")
    count = options["count"] // CHUNK * CHUNK
    finish(seconds=seconds, records=count, bytes=count * options["value_bytes"])


if __name__ == "__main__":
    main()
