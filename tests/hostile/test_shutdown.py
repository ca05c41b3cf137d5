"""SIGTERM under load: what was acknowledged is there, what was under way is answered, the next start is a quick one."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.batches import batch, produce
from tests.hostile.peer import ROUTES, Closed, Peer, answer_of, request
from tests.hostile.process import MIB

import strandline
from strandline.codec.columns import columns_of
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.local.embedded_broker import EmbeddedBroker

TOPIC = "orders"
PIPELINES = 8
IN_FLIGHT = 5


class Pipeline(threading.Thread):
    """A producer with five requests in flight at all times; remembers which values were acknowledged where."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(name=f"pipeline-{number}")
        self.number = number
        self.peer = Peer(port)
        self.acknowledged: dict[int, bytes] = {}
        self.refused: list[int] = []
        self.failure: BaseException | None = None
        self.running = threading.Event()

    def run(self) -> None:
        try:
            sent: dict[int, bytes] = {}
            turn = 0
            while True:
                while len(sent) < IN_FLIGHT:
                    value = b"%d:%d " % (self.number, turn) + b"x" * 500
                    self.peer.send(request(produce(TOPIC, batch([value]), partition=0), 9, correlation_id=turn))
                    sent[turn] = value
                    turn += 1
                content = self.peer.receive_answer()
                (correlation_id,) = struct.unpack_from(">i", content)
                value = sent.pop(correlation_id)
                result = answer_of(ROUTES[0], 9, content).responses[0].partition_responses[0]
                if result.error_code:
                    self.refused.append(result.error_code)
                else:
                    self.acknowledged[result.base_offset] = value
                if len(self.acknowledged) == 50:
                    self.running.set()
        except (Closed, OSError):
            pass  # The broker stopped; what it did not answer is unknown.
        except BaseException as error:
            self.failure = error
        finally:
            self.running.set()
            self.peer.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with strandline.embedded(data=tmp_path / "data") as log:
        log.create_topic(TOPIC, internal_segment_bytes=200_000)
        yield log


def read_all(port: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    with Peer(port) as peer:
        while True:
            partition = FetchPartition(fetch_offset=len(found), partition_max_bytes=10 * MIB)
            fetch = FetchRequest(max_bytes=10 * MIB, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])
            answer = peer.ask(fetch, 11).responses[0].partitions[0]
            assert answer.error_code == 0
            if not answer.records:
                assert answer.high_watermark == len(found)
                return found
            for columns in columns_of(answer.records):
                found.update((record.offset, record.value or b"") for record in columns)


def flip_a_byte(data: Path) -> None:
    """Damage a record of the last segment. Recovery, which checks every CRC there, could not overlook it."""
    path = max(path for path in (data / f"{TOPIC}-0").glob("*.log") if path.stat().st_size > 100)
    with path.open("r+b") as file:
        file.seek(100)
        (byte,) = file.read(1)
        file.seek(100)
        file.write(bytes((byte ^ 1,)))


@pytest.mark.slow
def test_a_clean_stop_under_load(broker: EmbeddedBroker) -> None:
    pipelines = [Pipeline(broker.port, number) for number in range(PIPELINES)]
    with Peer(broker.port) as waiting:
        # A fetch that waits for ever must not hold the broker up.
        asked = FetchPartition(fetch_offset=0, partition_max_bytes=MIB)
        fetch = FetchRequest(
            max_wait_ms=2**31 - 1, min_bytes=1 << 30, topics=[FetchTopic(topic=TOPIC, partitions=[asked])]
        )
        waiting.send(request(fetch, 11))
        for pipeline in pipelines:
            pipeline.start()
        for pipeline in pipelines:
            assert pipeline.running.wait(30)
        # The status is checked here: anything but 0 raises.
        broker.stop()
        assert waiting.is_closed()
    for pipeline in pipelines:
        pipeline.join(30)
        assert pipeline.failure is None, pipeline.failure
        assert pipeline.refused == []
    mark = broker.data / ".kafka_cleanshutdown"
    assert json.loads(mark.read_text())["version"] == 0
    assert "stopped" in broker.stderr_text()

    flip_a_byte(broker.data)
    broker.start()
    assert not mark.exists(), "a crash from now on would be taken for a clean stop"
    assert "offline" not in broker.stderr_text(), "the start after a clean stop recovered"
    flip_a_byte(broker.data)
    found = read_all(broker.port)
    acknowledged = {offset: value for pipeline in pipelines for offset, value in pipeline.acknowledged.items()}
    assert len(acknowledged) >= 50 * PIPELINES
    assert {offset: found.get(offset) for offset in acknowledged} == acknowledged
    print(f"{len(acknowledged)} acknowledged, {len(found)} there")
    assert len(found) - len(acknowledged) <= PIPELINES * IN_FLIGHT, "more there than was ever under way"

    # The damage would have been noticed: after a crash it is.
    broker.kill()
    flip_a_byte(broker.data)
    broker.start()
    assert f"{TOPIC}-0 is offline" in broker.stderr_text()


@pytest.mark.slow
def test_requests_under_way_are_answered(broker: EmbeddedBroker) -> None:
    """What the broker has read when the signal comes is finished, appended, flushed and answered."""
    with Peer(broker.port) as peer:
        count = 200
        peer.send(b"".join(request(produce(TOPIC, batch([b"last words"])), 9, correlation_id=n) for n in range(count)))
        first = peer.receive_answer()
        assert first[:4] == struct.pack(">i", 0)
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        answered = 1
        try:
            while True:
                content = peer.receive_answer()
                assert content[:4] == struct.pack(">i", answered)
                answered += 1
        except Closed:
            pass
        stopping.join(60)
    broker.start()
    assert len(read_all(broker.port)) == answered, "answered and stored are not the same"


@pytest.mark.slow
def test_a_slow_reader_does_not_hold_up_the_stop_for_ever(broker: EmbeddedBroker) -> None:
    broker.create_topic("large")
    with Peer(broker.port) as peer:
        for _ in range(40):
            peer.ask(produce("large", batch([b"x" * 150_000])), 9)
    with Peer(broker.port, receive_buffer_bytes=4096) as slow:
        partition = FetchPartition(partition_max_bytes=50 * MIB)
        fetch = FetchRequest(max_bytes=50 * MIB, topics=[FetchTopic(topic="large", partitions=[partition])])
        slow.send(request(fetch, 11))
        slow.receive(1024)
        # `stop` gives up after 30 s.
        broker.stop()
    assert (broker.data / ".kafka_cleanshutdown").exists()
    broker.start()


@pytest.mark.slow
def test_a_signal_while_clients_connect(broker: EmbeddedBroker) -> None:
    ending = threading.Event()
    failures: list[BaseException] = []

    def connect() -> None:
        while not ending.is_set():
            try:
                with Peer(broker.port, timeout_s=60) as peer:
                    peer.is_served()
            except (OSError, Closed):
                ending.wait(0.001)
            except BaseException as error:
                failures.append(error)

    threads = [threading.Thread(target=connect) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            broker.restart()
    finally:
        ending.set()
        for thread in threads:
            thread.join(30)
    assert failures == []
    assert "Traceback" not in broker.stderr_text()


@pytest.mark.slow
def test_a_client_that_never_stops_asking_does_not_hold_up_the_stop(broker: EmbeddedBroker) -> None:
    """More in flight than may wait at once, so that requests lie unread behind those that were started."""
    in_flight, sent, answered = 600, 0, 0
    with Peer(broker.port) as peer:
        stopping: threading.Thread | None = None
        answered_before = 0
        try:
            while True:
                if sent - answered < in_flight:
                    ask = request(produce(TOPIC, batch([b"more"])), 9)
                    peer.send(ask * (in_flight - (sent - answered)))
                    sent = answered + in_flight
                peer.receive_answer()
                answered += 1
                if answered == 2000:
                    stopping = threading.Thread(target=broker.stop)
                    stopping.start()
                    answered_before = answered
        except Closed:
            pass
        assert stopping is not None
        stopping.join(60)
    # What was started is answered; what lies behind it is not begun any more.
    print(f"{answered - answered_before} answers after the signal")
    assert answered - answered_before < 5 * in_flight
    broker.start()
    assert len(read_all(broker.port)) >= answered
