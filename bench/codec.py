"""Message codec beside kio: `python -m bench.codec`.

Prints microseconds of CPU per message, the best of several rounds of each, interleaved. CPU and not wall-clock time,
because all of it is computing and the machine may be busy. The figures in
docs/decisions/0002-own-message-compiler.md come from here.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kio.index import load_entity_schema
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from strandline.codec.message import Message
from strandline.codec.message_codec import decode_exact, encode
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

PARTITIONS = 1_000


def metadata_response() -> MetadataResponse:
    partitions = [
        MetadataResponsePartition(0, index, index % 3, 5, [index % 3, 1, 2], [index % 3, 1, 2], [])
        for index in range(PARTITIONS)
    ]
    topic = MetadataResponseTopic(0, "orders", uuid.UUID(int=77), False, partitions)
    brokers = [MetadataResponseBroker(node, "broker.example", 9092) for node in range(3)]
    return MetadataResponse(brokers=brokers, cluster_id="lkc-1", controller_id=1, topics=[topic])


def offset_commit() -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(0, 123_456, 3, "")
    topic = OffsetCommitRequestTopic("orders", partitions=[partition])
    return OffsetCommitRequest("payments", 7, "consumer-1-3f0d", None, -1, [topic])


def fetch_request() -> FetchRequest:
    partitions = [FetchPartition(index, 3, 1_000_000, -1, -1, 1 << 20) for index in range(10)]
    topic = FetchTopic(topic_id=uuid.UUID(int=77), partitions=partitions)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


CASES: list[tuple[str, str, EntityType, int, Message]] = [
    ("Metadata response, 1,000 partitions", "metadata", EntityType.response, 12, metadata_response()),
    ("OffsetCommit request, 1 partition", "offset_commit", EntityType.request, 9, offset_commit()),
    ("Fetch request, 10 partitions", "fetch", EntityType.request, 16, fetch_request()),
    (
        "Heartbeat request",
        "heartbeat",
        EntityType.request,
        4,
        HeartbeatRequest("payments", 7, "consumer-1-3f0d-8a4e-4c13", None),
    ),
    ("ApiVersions request", "api_versions", EntityType.request, 3, ApiVersionsRequest("librdkafka", "2.6.0")),
]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the message codec beside kio.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    print(f"Python {sys.version.split()[0]}, CPU microseconds per message, best of {arguments.rounds} rounds")
    print(f"{'message':38} {'encode':>9} {'kio':>9} {'decode':>9} {'kio':>9} {'bytes':>7}")
    for title, name, entity_type, version, message in CASES:
        row = measure_case(name, entity_type, version, message, arguments.rounds)
        figures[title] = row
        print(
            f"{title:38} {row['encode_us']:9.2f} {row['kio_encode_us']:9.2f}"
            f" {row['decode_us']:9.2f} {row['kio_decode_us']:9.2f} {row['size_bytes']:7.0f}"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure_case(name: str, entity_type: EntityType, version: int, message: Message, rounds: int) -> dict[str, float]:
    theirs = load_entity_schema(name, version, entity_type)
    read, write = entity_reader(theirs), entity_writer(theirs)
    encoded = encode(message, version)
    parsed, _ = read(encoded, 0)
    cls = type(message)

    def kio_encode() -> bytes:
        out = io.BytesIO()
        write(out, parsed)
        return out.getvalue()

    assert kio_encode() == encoded
    assert decode_exact(cls, version, encoded) == message
    work: dict[str, Callable[[], Any]] = {
        "encode_us": lambda: encode(message, version),
        "kio_encode_us": kio_encode,
        "decode_us": lambda: decode_exact(cls, version, encoded),
        "kio_decode_us": lambda: read(encoded, 0),
    }
    best = dict.fromkeys(work, float("inf"))
    # The rounds of the four are interleaved, so that a noisy moment of the machine does not hit one of them alone.
    for _ in range(rounds):
        for key, run in work.items():
            best[key] = min(best[key], microseconds(run))
    return {**best, "size_bytes": len(encoded)}


def microseconds(run: Callable[[], Any]) -> float:
    """The mean of about 20 ms of calls."""
    run()
    began = time.process_time()
    run()
    count = max(3, int(0.02 / max(time.process_time() - began, 1e-7)))
    gc.disable()
    try:
        began = time.process_time()
        for _ in range(count):
            run()
        return (time.process_time() - began) / count * 1e6
    finally:
        gc.enable()


if __name__ == "__main__":
    main()
