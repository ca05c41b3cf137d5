"""`strandline dev --nodes` and `strandline serve --brokers`: several real processes, from first line to last."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cli.conftest import TIMEOUT_S, CommandLine
from tests.clients.broker import existing_bootstrap

pytestmark = pytest.mark.skipif(existing_bootstrap() is not None, reason="tests another cluster, not our node")


def line_of(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=TIMEOUT_S)
    return line


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until_up(cli: CommandLine, nodes: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        (status,) = cli.ok("cluster", "status", "--json").objects
        if [row["state"] for row in status["nodes"]] == ["up"] * nodes:
            return
        assert time.monotonic() < deadline, status
        time.sleep(0.2)


def test_dev_runs_a_cluster_and_a_node_that_dies_stays_dead(lonely_cli: CommandLine) -> None:
    dev = lonely_cli.start("dev", "--nodes", "3", "--port", "0", "--json", "--no-registry", "--no-console")
    facts = json.loads(line_of(dev))
    assert len(facts["nodes"]) == 3
    assert facts["bootstrap"] == ",".join(node["address"] for node in facts["nodes"])
    cli = CommandLine(facts["bootstrap"])
    (status,) = cli.ok("cluster", "status", "--json").objects
    assert [(row["node"], row["state"]) for row in status["nodes"]] == [(1, "up"), (2, "up"), (3, "up")]
    os.kill(facts["nodes"][2]["pid"], signal.SIGKILL)
    told = json.loads(line_of(dev))
    assert told == {"event": "was killed by SIGKILL, and stays dead", "node": 3}
    first_port = facts["nodes"][0]["address"].rpartition(":")[2]
    for node, where in ((3, ("--port", first_port)), (2, ("--data", facts["data"]))):
        assert lonely_cli.ok("dev", "restart", str(node), *where).lines == [f"node {node} is started again"]
        assert json.loads(line_of(dev)) == {"event": "is started again", "node": node}
    wait_until_up(cli, 3)
    assert "there is no node 9" in lonely_cli.run("dev", "restart", "9", "--data", facts["data"]).stderr
    assert lonely_cli.run("dev", "again").status == 2
    dev.send_signal(signal.SIGTERM)
    rest, errors = dev.communicate(timeout=TIMEOUT_S)
    assert (dev.returncode, rest) == (0, b""), errors
    assert not any(is_alive(node["pid"]) for node in facts["nodes"])
    assert not Path(facts["data"]).exists()
    assert "no `strandline dev --nodes` runs" in lonely_cli.run("dev", "restart", "3", "--data", facts["data"]).stderr


@pytest.mark.slow
def test_dev_starts_a_node_again_and_finds_its_cluster_again(lonely_cli: CommandLine, tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        dev = lonely_cli.start(
            "dev",
            "-n",
            "3",
            "--port",
            "0",
            "--json",
            "--no-registry",
            "--no-console",
            "--restart",
            "--data",
            str(tmp_path),
        )
        facts = json.loads(line_of(dev))
        (status,) = CommandLine(facts["bootstrap"]).ok("cluster", "status", "--json").objects
        ids.append(status["cluster_id"])
        os.kill(facts["nodes"][0]["pid"], signal.SIGKILL)
        assert "started again in" in json.loads(line_of(dev))["event"]
        assert json.loads(line_of(dev)) == {"event": "is started again", "node": 1}
        dev.send_signal(signal.SIGINT)
        _, errors = dev.communicate(timeout=TIMEOUT_S)
        assert dev.returncode == 0, errors
    assert ids[0] == ids[1]
    assert (tmp_path / "node-2.log").exists()


def test_a_port_of_the_row_that_is_taken_is_told(lonely_cli: CommandLine) -> None:
    with ExitStack() as stack:
        # Two ports side by side, of which the second is taken.
        while True:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            second = stack.enter_context(socket.socket())
            try:
                second.bind(("127.0.0.1", port + 1))
                second.listen()
            except OSError:
                continue
            break
        first.close()
        ended = lonely_cli.run("dev", "--nodes", "2", "--port", str(port))
    assert ended.status == 1
    assert f"port {port + 1} cannot be used" in ended.stderr


@pytest.mark.slow
def test_serve_runs_a_broker_for_each_core(lonely_cli: CommandLine, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    listen = f"127.0.0.1:{port}"
    serve = lonely_cli.start("serve", "--brokers", "2", "--data", str(tmp_path), "--listen", listen)
    word, addresses = line_of(serve).decode().split()
    assert (word, addresses) == ("ready", f"127.0.0.1:{port},127.0.0.1:{port + 1}")
    (status,) = CommandLine(addresses).ok("cluster", "status", "--json").objects
    assert [row["roles"] for row in status["nodes"]] == [["broker", "controller"], ["broker"]]
    serve.send_signal(signal.SIGTERM)
    rest, errors = serve.communicate(timeout=TIMEOUT_S)
    assert (serve.returncode, rest) == (0, b""), errors


def test_serve_needs_a_directory(lonely_cli: CommandLine) -> None:
    ended = lonely_cli.run("serve", "--brokers", "2")
    assert ended.status == 2
    assert "say where the logs live" in ended.stderr


def test_brokers_of_one_file_do_not_lose_its_listeners(lonely_cli: CommandLine, tmp_path: Path) -> None:
    for listeners in ("SSL://127.0.0.1:9092", "A://127.0.0.1:9092,B://127.0.0.1:9094"):
        file = tmp_path / "server.properties"
        file.write_text(f"log.dirs={tmp_path}\nlisteners={listeners}\n")
        ended = lonely_cli.run("serve", "--brokers", "2", "--config", str(file))
        assert ended.status != 0
        assert "expected that, or a file and a process for each node" in ended.stderr
