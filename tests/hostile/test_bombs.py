"""Decompression bombs of every codec, on every path that opens what strangers compressed: refused within 64 MiB."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.batches import RECORDS_AT, batch, now_ms, produce, with_fields
from tests.hostile.bombs import BOMBS
from tests.hostile.peer import Peer
from tests.hostile.process import MIB, forget_peak, peak_resident_bytes, resident_bytes
from tests.hostile.stage import stage

from strandline.codec import compression
from strandline.codec.messages.get_telemetry_subscriptions_request import GetTelemetrySubscriptionsRequest
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.push_telemetry_request import PushTelemetryRequest
from strandline.errors import BatchTooLarge, CorruptBatch, ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

REFUSED_WITHIN_BYTES = 64 * MIB
CLIENT_METRICS = 16
COMPACTED, ZSTD, GZIP, PLAIN, CHECKED = "compacted", "becomes-zstd", "becomes-gzip", "plain", "checked"
LARGE = {"max.message.bytes": str(8 * MIB)}
CONFIGS = {
    COMPACTED: {"cleanup.policy": "compact"} | LARGE,
    ZSTD: {"compression.type": "zstd"} | LARGE,
    GZIP: {"compression.type": "gzip"} | LARGE,
    PLAIN: {"strandline.validate.records": "off"} | LARGE,
    CHECKED: {"strandline.validate.records": "all"} | LARGE,
}
PEAK = (
    "import pathlib\n"
    "def peak():\n"
    "    status = pathlib.Path('/proc/self/status').read_text()\n"
    "    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith('VmHWM'))\n"
)
REFUSALS = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.TELEMETRY_TOO_LARGE,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with stage(dict.fromkeys(CONFIGS, 1), configs=CONFIGS) as log:
        with Peer(log.port) as peer:
            # Somebody wants the metrics of every client.
            subscription = AlterConfigsResource(
                resource_type=CLIENT_METRICS,
                resource_name="all",
                configs=[AlterableConfig(name="metrics", value="*")],
            )
            answer = peer.ask(IncrementalAlterConfigsRequest(resources=[subscription]), 1)
            assert answer.responses[0].error_code == 0
        yield log


def bomb_batch(name: str) -> bytes:
    """A batch around a bomb, of one record as far as its header knows."""
    codec, make = BOMBS[name]
    payload = make()
    whole = batch()[:RECORDS_AT] + payload
    return with_fields(whole, length=len(whole) - 12, attributes=codec)


class Memory:
    """What a broker's memory grew by, at the most."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._pid = broker.pid
        self._before = resident_bytes(self._pid)
        forget_peak(self._pid)

    def check(self, sent_bytes: int) -> None:
        grown = peak_resident_bytes(self._pid) - self._before
        print(f"{sent_bytes} bytes were sent, memory grew by {grown / MIB:.1f} MiB")
        assert grown < REFUSED_WITHIN_BYTES + sent_bytes


@pytest.mark.parametrize("name", BOMBS)
def test_the_decompressor_refuses_it(name: str) -> None:
    """In a process of its own, whose peak is known."""
    codec, make = BOMBS[name]
    program = PEAK + (
        "import sys\n"
        "from strandline.codec import compression\n"
        "from strandline.errors import BatchTooLarge, CorruptBatch\n"
        "codec, payload = int(sys.argv[1]), sys.stdin.buffer.read()\n"
        "compression.decompress(codec, compression.compress(codec, bytes(100)))\n"
        "before = peak()\n"
        "try:\n"
        "    compression.decompress(codec, payload)\n"
        "except (BatchTooLarge, CorruptBatch) as error:\n"
        "    print(peak() - before, type(error).__name__)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, str(int(codec))], input=make(), stdout=subprocess.PIPE, check=True
    )
    grown, _, refusal = child.stdout.decode().strip().partition(" ")
    print(f"{int(grown) / MIB:.1f} MiB, {refusal}")
    assert refusal in (BatchTooLarge.__name__, CorruptBatch.__name__)
    assert int(grown) < REFUSED_WITHIN_BYTES


@pytest.mark.parametrize("topic", [COMPACTED, ZSTD, GZIP, CHECKED])
@pytest.mark.parametrize("name", BOMBS)
def test_a_topic_that_opens_batches_refuses_it(broker: EmbeddedBroker, name: str, topic: str) -> None:
    codec = BOMBS[name][0]
    if topic in (ZSTD, GZIP) and compression.Compression[topic.removeprefix("becomes-").upper()] is codec:
        return  # It has the topic's codec already and is not opened.
    content = bomb_batch(name)
    memory = Memory(broker)
    with Peer(broker.port) as peer:
        answer = peer.ask(produce(topic, content), 9)
    assert answer.responses[0].partition_responses[0].error_code in REFUSALS
    memory.check(len(content))


@pytest.mark.parametrize("name", BOMBS)
def test_a_look_up_by_time_that_meets_it(broker: EmbeddedBroker, name: str) -> None:
    """Where compressed records are not checked it is stored; the look-up answers with the beginning of the batch."""
    content = bomb_batch(name)
    with Peer(broker.port) as peer:
        stored = peer.ask(produce(PLAIN, content), 9).responses[0].partition_responses[0]
        assert stored.error_code == 0
        memory = Memory(broker)
        asked = ListOffsetsPartition(partition_index=0, timestamp=now_ms() - 60_000)
        answer = peer.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=PLAIN, partitions=[asked])]), 5)
        assert answer.topics[0].partitions[0].error_code == 0
        assert answer.topics[0].partitions[0].offset >= 0
        latest = ListOffsetsPartition(partition_index=0, timestamp=-3)
        answer = peer.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(name=PLAIN, partitions=[latest])]), 7)
        assert answer.topics[0].partitions[0].error_code == 0
        memory.check(len(content))


@pytest.mark.parametrize("name", BOMBS)
def test_metrics_of_a_client(broker: EmbeddedBroker, name: str) -> None:
    codec, make = BOMBS[name]
    content = make()
    with Peer(broker.port) as peer:
        wanted = peer.ask(GetTelemetrySubscriptionsRequest(), 0)
        assert wanted.error_code == 0
        memory = Memory(broker)
        push = PushTelemetryRequest(
            client_instance_id=wanted.client_instance_id,
            subscription_id=wanted.subscription_id,
            compression_type=codec,
            metrics=content,
        )
        assert peer.ask(push, 0).error_code in REFUSALS
    memory.check(len(content))


def test_the_dump_of_a_segment_with_all_of_them(tmp_path: Path) -> None:
    """The command says of each that it is one, and goes on behind it."""
    segment = tmp_path / "bombs-0" / "00000000000000000000.log"
    segment.parent.mkdir()
    segment.write_bytes(batch())
    told, plain_peak = dumped(segment)
    assert told == ["batch", "record"]
    with segment.open("ab") as file:
        for number, name in enumerate(BOMBS, 1):
            file.write(with_fields(bomb_batch(name), base_offset=number))
        file.write(with_fields(batch(), base_offset=len(BOMBS) + 1))
    told, peak = dumped(segment)
    assert told == ["batch", "record", *["batch", "damage"] * len(BOMBS), "batch", "record"]
    print(f"memory grew by {(peak - plain_peak) / MIB:.1f} MiB")
    assert peak - plain_peak < REFUSED_WITHIN_BYTES + segment.stat().st_size


def dumped(segment: Path) -> tuple[list[str], int]:
    """What kinds of lines the command printed, and how much memory it took."""
    program = PEAK + (
        "import atexit, sys\n"
        "atexit.register(lambda: print(peak(), file=sys.stderr))\n"
        "sys.argv[0] = 'strandline'\n"
        "from strandline.cli import main\n"
        "sys.exit(main())\n"
    )
    dump = subprocess.run(
        [sys.executable, "-c", program, "log", "dump", "--json", str(segment)], capture_output=True, check=False
    )
    return [json.loads(line)["kind"] for line in dump.stdout.splitlines()], int(dump.stderr.split()[-1])
