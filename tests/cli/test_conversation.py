"""The few requests that the command line writes itself."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation, converse
from strandline.cli.common.failures import CommandFailed, Unreachable
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import MetadataResponse


@contextmanager
def answering(*answers: bytes) -> Iterator[tuple[str, int]]:
    """A server that reads a request and gives the next of `answers`, then closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                for answer in answers:
                    size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0]
                    connection.recv(size, socket.MSG_WAITALL)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()
        finally:
            thread.join()


def framed(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


API_VERSIONS_0 = struct.pack(">hi", 0, 1) + struct.pack(">hhh", 18, 0, 3)
REFUSED_0 = struct.pack(">hi", 35, 1) + struct.pack(">hhh", 18, 0, 0)


def test_a_broker_tells_what_it_offers(bootstrap: str) -> None:
    conversation = converse(Cluster(bootstrap, {}))
    assert conversation is not None
    with conversation:
        assert conversation.offered.versions[18][0] == 0
        answer = conversation.ask(MetadataRequest(topics=[]), MetadataResponse)
        assert answer is not None
        assert answer.brokers


def test_an_old_broker_is_asked_in_its_own_version() -> None:
    answers = (framed(1, REFUSED_0), framed(2, REFUSED_0), framed(3, API_VERSIONS_0))
    with answering(*answers) as (host, port), Conversation(host, port, 5.0) as conversation:
        assert conversation.offered.versions == {18: (0, 3)}
        assert conversation.ask(MetadataRequest(topics=[]), MetadataResponse) is None


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "does not speak the Kafka protocol"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "does not speak the Kafka protocol"),
        (struct.pack(">i", -5), "does not speak the Kafka protocol"),
        (framed(1, b"\x00\x00\x7f"), "an answer that is none"),
        (b"\x00\x00", "closed"),
        (b"", "closed"),
    ],
)
def test_what_is_no_broker_is_told(answer: bytes, complaint: str) -> None:
    with answering(answer) as (host, port), pytest.raises(CommandFailed, match=complaint):
        Conversation(host, port, 5.0)


def test_only_plain_listeners_are_talked_to() -> None:
    assert converse(Cluster("127.0.0.1:1", {"security.protocol": "SASL_SSL"})) is None


def test_the_next_bootstrap_server_is_tried(bootstrap: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        refusing = f"127.0.0.1:{bound.getsockname()[1]}"
        conversation = converse(Cluster(f"{refusing},{bootstrap}", {}))
        assert conversation is not None
        conversation.__exit__(None, None, None)
        with pytest.raises(Unreachable):
            converse(Cluster(refusing, {}))
