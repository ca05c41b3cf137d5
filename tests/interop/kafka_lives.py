"""What a node of Apache Kafka left on its disk, live or as it was recorded.

`python -m tests.interop.kafka_lives` lets a node of Kafka write, kills it, lets it write more and stops it, and records
both directories in `recorded`. It needs Java and Maven.
"""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.brokers import start_kafka
from bench.kafka_jars import KAFKA_VERSION
from tests.interop.conversation import Ledger, Sent, write, write_interleaved, write_transactions

RECORDED: Final = Path(__file__).parent / "recorded" / f"kafka_lives_{KAFKA_VERSION}.tar.xz"
# Small files by Kafka's own means: an index that is full ends its segment.
TOPIC_SETTINGS = {"index.interval.bytes": "200", "segment.index.bytes": "240"}
KAFKA_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.enable": "false",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True)
class KafkaLives:
    """The same node twice: what a kill -9 left, and what a clean stop left after more had been written."""

    killed: Path
    killed_ledger: Ledger
    clean: Path
    clean_ledger: Ledger


@contextmanager
def live(home: Path) -> Iterator[KafkaLives]:
    broker = start_kafka(home / "node", settings=KAFKA_SETTINGS)
    try:
        ledger = Ledger()
        broker.create_topic("orders", 2, TOPIC_SETTINGS)
        broker.create_topic("payments", 1)
        write(broker.bootstrap, "orders", ledger, rounds=60)
        write_transactions(broker.bootstrap, "payments", ledger)
        broker.create_topic("settlements", 1, TOPIC_SETTINGS)
        write_interleaved(broker.bootstrap, "settlements", ledger, rounds=40)
        broker.process.kill()
        broker.process.wait()
        killed = home / "killed"
        shutil.copytree(broker.data, killed)
        killed_ledger = Ledger({name: dict(records) for name, records in ledger.records.items()})
        broker = broker.started_again()
        write(broker.bootstrap, "orders", ledger, rounds=10)
        broker.stop()
        yield KafkaLives(killed, killed_ledger, broker.data, ledger)
    finally:
        broker.discard()


def recorded(home: Path) -> KafkaLives:
    """Return what was recorded, unpacked below a directory."""
    with tarfile.open(RECORDED) as archive:
        archive.extractall(home, filter="data")
    ledgers = [_ledger_of(json.loads((home / f"{life}.json").read_text())) for life in ("killed", "clean")]
    return KafkaLives(home / "killed", ledgers[0], home / "clean", ledgers[1])


def record(lives: KafkaLives) -> None:
    """Write the recording. Kafka's own topics are left out: tests look at those of clients."""
    RECORDED.parent.mkdir(exist_ok=True)
    with tarfile.open(RECORDED, "w:xz") as archive:
        for life in ("killed", "clean"):
            data: Path = getattr(lives, life)
            archive.add(data, life, filter=_of_clients)
            content = json.dumps(_json_of(getattr(lives, f"{life}_ledger"))).encode()
            entry = tarfile.TarInfo(f"{life}.json")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def _of_clients(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return None if "/__" in entry.name else entry


def _json_of(ledger: Ledger) -> list[Any]:
    return [
        (*name, offset, each.timestamp_ms, _text(each.key), _text(each.value), _headers_of(each))
        for name, records in ledger.records.items()
        for offset, each in records.items()
    ]


def _headers_of(sent: Sent) -> list[tuple[str, str | None]]:
    return [(name, _text(value)) for name, value in sent.headers]


def _ledger_of(rows: list[Any]) -> Ledger:
    ledger = Ledger()
    for topic, index, offset, timestamp_ms, key, value, headers in rows:
        sent = Sent(timestamp_ms, _bytes(key), _bytes(value), tuple((name, _bytes(each)) for name, each in headers))
        ledger.records.setdefault((topic, index), {})[offset] = sent
    return ledger


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="strandline-kafka-") as directory, live(Path(directory)) as lives:
        record(lives)
