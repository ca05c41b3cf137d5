"""The node of a directory: started when nobody names a cluster, found by others, gone with who started it."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.pipelines.run import local_node
from strandline.pipelines.run.local_node import (
    GroundFailed,
    checkpoints_of,
    cluster_id_of,
    find_ground,
    has_node,
    running_node,
)


@pytest.fixture
def busy_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture(autouse=True)
def port(monkeypatch: pytest.MonkeyPatch, busy_port: int) -> None:
    """The usual port is taken, as it is wherever two of these run."""
    monkeypatch.setattr(local_node, "PORT_DEFAULT", busy_port)


def test_a_cluster_that_is_named_is_taken_and_nothing_is_started(tmp_path: Path) -> None:
    with find_ground("127.0.0.1:9", home=tmp_path) as found:
        assert found.wait_ready() == "127.0.0.1:9"
        assert not found.is_own
    assert list(tmp_path.iterdir()) == []


def test_a_second_command_uses_the_node_of_the_first(tmp_path: Path, busy_port: int) -> None:
    assert not has_node(tmp_path)
    with find_ground(None, home=tmp_path) as first:
        bootstrap = first.wait_ready()
        assert first.is_own
        assert has_node(tmp_path)
        assert not bootstrap.endswith(f":{busy_port}")
        with find_ground(None, home=tmp_path) as second:
            assert second.wait_ready() == bootstrap
            assert not second.is_own
        assert running_node(tmp_path) == bootstrap, "who only used it leaves it running"
        cluster = cluster_id_of(bootstrap)
        assert checkpoints_of(bootstrap, home=tmp_path) == str(tmp_path / "checkpoints" / cluster)
    assert running_node(tmp_path) is None
    # What is in it stays.
    with find_ground(None, home=tmp_path) as again:
        assert cluster_id_of(again.wait_ready()) == cluster


def test_a_node_that_was_killed_is_not_taken_for_running(tmp_path: Path) -> None:
    with find_ground(None, home=tmp_path) as killed:
        killed.wait_ready()
        assert killed.node is not None
        killed.node.kill()
        assert (tmp_path / "node.json").exists()
        assert running_node(tmp_path) is None


@pytest.mark.slow
def test_a_node_that_answers_late_is_not_taken_for_gone(tmp_path: Path) -> None:
    with find_ground(None, home=tmp_path) as first:
        bootstrap = first.wait_ready()
        assert first.node is not None
        os.kill(first.node.pid, signal.SIGSTOP)
        going_on = threading.Timer(6, os.kill, (first.node.pid, signal.SIGCONT))
        going_on.start()
        try:
            assert running_node(tmp_path) == bootstrap
        finally:
            going_on.join()


def test_a_directory_in_use_is_told_in_a_sentence(tmp_path: Path) -> None:
    with find_ground(None, home=tmp_path) as first:
        first.wait_ready()
        # Its address is lost, as if the file were of another machine.
        (tmp_path / "node.json").write_text(json.dumps({"bootstrap": "127.0.0.1:9", "pid": os.getpid()}))
        with find_ground(None, home=tmp_path) as second, pytest.raises(GroundFailed, match="is in use by a node"):
            second.wait_ready()
