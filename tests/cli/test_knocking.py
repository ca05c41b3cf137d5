"""Who answers is found at once, whoever else is named; who says nothing does not keep a user waiting."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.cli.conftest import CommandLine

from strandline.client.bootstrap_probe import QUESTION, knock

HOST = "127.0.0.1"


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and says nothing."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def refusing() -> int:
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
    return port


def answering(server: socket.socket, answer: bytes) -> list[bytes]:
    heard: list[bytes] = []

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            heard.append(connection.recv(100))
            connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return heard


@pytest.mark.parametrize("answer", [b"\0\0\0\6\0\0\0\0\0\0", b""], ids=["an answer", "not understood"])
def test_one_that_reacts_is_enough(silent: int, refusing: int, answer: bytes) -> None:
    with socket.create_server((HOST, 0)) as server:
        heard = answering(server, answer)
        began_s = time.monotonic()
        assert knock([(HOST, silent), (HOST, refusing), (HOST, server.getsockname()[1])], 600.0) == []
        assert time.monotonic() - began_s < 300, "the silent one was not waited for"
        assert heard == [QUESTION]


def test_why_nobody_answers(silent: int, refusing: int) -> None:
    assert knock([(HOST, refusing)], 600.0) == ["connection refused"]
    assert knock([(HOST, refusing), (HOST, silent)], 0.2) == [
        "connection refused",
        "connected, but no answer within 0.2 s",
    ]
    assert len(knock([("no.such.host.invalid", 9092)], 600.0)) == 1


def test_a_command_says_so_and_ends(silent: int) -> None:
    ended = CommandLine().run("topic", "list", "-b", f"{HOST}:{silent}", "--timeout", "0.5")
    assert ended.status == 4
    assert ended.stderr.startswith(
        f"error: cannot reach {HOST}:{silent} (connected, but no answer within 0.5 s): is a node running?"
    )
