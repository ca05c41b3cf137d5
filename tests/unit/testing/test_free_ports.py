"""Ports of servers that are started later are none that a client may get meanwhile."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from strandline.local import free_ports
from strandline.local.free_ports import bound_socket, free_port


def test_a_port_is_free_and_below_those_of_outgoing_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = tmp_path / "range"
    known.write_text("20000\t60999\n")
    monkeypatch.setattr(free_ports, "EPHEMERAL_RANGE", known)
    for _ in range(20):
        port = free_port()
        assert 10_000 <= port < 20_000
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_that_is_held_is_not_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = tmp_path / "range"
    monkeypatch.setattr(free_ports, "EPHEMERAL_RANGE", known)
    with bound_socket() as held:
        port = held.getsockname()[1]
        monkeypatch.setattr(free_ports, "PORT_MIN", port)
        # It is the only one there is to choose, and then the kernel chooses.
        known.write_text(f"{port + 1} 60999\n")
        assert free_port() != port


@pytest.mark.parametrize("content", [None, "", "nothing", "1024 60999"])
def test_where_no_range_is_known_the_kernel_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    known = tmp_path / "range"
    if content is not None:
        known.write_text(content)
    monkeypatch.setattr(free_ports, "EPHEMERAL_RANGE", known)
    assert free_port() > 0
