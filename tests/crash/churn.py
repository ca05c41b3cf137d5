"""Clients that keep the metadata busy while the broker dies: one makes and drops topics, one takes producer ids."""

from __future__ import annotations

import socket
import struct

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from strandline.testing.client_threads import QUICK_RETRIES, ClientThread
from strandline.testing.history import GivenProducerId, Op, Outcome
from strandline.testing.recorder import Recorder

REQUEST_TIMEOUT_S = 5.0


class TopicChurn(ClientThread):
    """Creates topics and deletes every other one, and remembers which must exist, which must not, and which may."""

    def __init__(self, recorder: Recorder, bootstrap: str) -> None:
        super().__init__(recorder, "topic-churn")
        self.bootstrap = bootstrap
        self.present: set[str] = set()
        self.absent: set[str] = set()

    def work(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUICK_RETRIES})
        number = 0
        while not self.stopping.is_set():
            name = f"churn-{number}"
            number += 1
            if self._create(admin, name) and number % 2:
                self._delete(admin, name)
            # A few topics per second are enough; a thousand directories would only slow each recovery down.
            self.stopping.wait(0.03)

    def _create(self, admin: AdminClient, name: str) -> bool:
        topic = NewTopic(name, num_partitions=2, replication_factor=1)
        future = admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[name]
        try:
            future.result()
        except KafkaException as error:
            # Unknown outcome; but a retry that finds its own work done is an answer.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                return False
        self.present.add(name)
        return True

    def _delete(self, admin: AdminClient, name: str) -> None:
        self.present.discard(name)
        future = admin.delete_topics([name], request_timeout=REQUEST_TIMEOUT_S)[name]
        try:
            future.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                return
        self.absent.add(name)

    def check_against(self, topics: set[str]) -> None:
        """What was acknowledged holds: created topics are there, deleted ones are not."""
        assert self.present <= topics, f"acknowledged and missing: {sorted(self.present - topics)}"
        assert not self.absent & topics, f"deleted and back: {sorted(self.absent & topics)}"


class ProducerIdTaker(ClientThread):
    """Asks for producer ids by hand, because librdkafka does not tell which one it was given."""

    def __init__(self, recorder: Recorder, host: str, port: int) -> None:
        super().__init__(recorder, "producer-id-taker")
        self.address = (host, port)
        self.given: list[int] = []

    def work(self) -> None:
        while not self.stopping.is_set():
            try:
                with socket.create_connection(self.address, timeout=REQUEST_TIMEOUT_S) as connection:
                    self._take_until_it_breaks(connection)
            except OSError:
                # The broker is down just now. An answer that was lost on the way counts for nothing.
                self.stopping.wait(0.02)

    def _take_until_it_breaks(self, connection: socket.socket) -> None:
        while not self.stopping.is_set():
            process = self.recorder.new_process()
            invoked_ns = self.recorder.now_ns()
            error, producer_id, epoch = init_producer_id(connection)
            completed_ns = self.recorder.now_ns()
            outcome: Outcome = "ok" if error == 0 else "fail"
            mops = (GivenProducerId(producer_id, epoch),) if error == 0 else ()
            self.recorder.add(
                Op(process, outcome, "init_producer_id", mops, invoked_ns, completed_ns, error=str(error or ""))
            )
            if error == 0:
                self.given.append(producer_id)
            self.stopping.wait(0.005)


def init_producer_id(connection: socket.socket) -> tuple[int, int, int]:
    """One InitProducerId request, version 0, without a transactional id: (error code, producer id, epoch)."""
    # API key 22, version 0, correlation id 7, client id "taker", no transactional id, timeout.
    request = struct.pack(">hhih5shi", 22, 0, 7, 5, b"taker", -1, 60_000)
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size_bytes,) = struct.unpack(">i", _receive(connection, 4))
    answer = _receive(connection, size_bytes)
    correlation_id, _throttle_ms, error, producer_id, epoch = struct.unpack(">iihqh", answer)
    assert correlation_id == 7
    return error, producer_id, epoch


def _receive(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        piece = connection.recv(size_bytes - len(received))
        if not piece:
            raise ConnectionResetError("the broker closed the connection")
        received += piece
    return received
