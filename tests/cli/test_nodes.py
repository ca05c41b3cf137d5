"""`strandline serve` and `strandline dev`: real processes, from their first line to their last."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from tests.cli.conftest import TIMEOUT_S, CommandLine
from tests.clients.broker import existing_bootstrap

pytestmark = pytest.mark.skipif(existing_bootstrap() is not None, reason="tests another cluster, not our node")


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_serve_is_ready_in_one_line_and_leaves_with_0(
    lonely_cli: CommandLine, tmp_path: Path, end: signal.Signals
) -> None:
    node = lonely_cli.start(
        "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0", "-X", "num.partitions=2"
    )
    assert node.stdout is not None
    word, address = node.stdout.readline().split()
    assert word == b"ready"
    cli = CommandLine(address.decode())
    cli.ok("topic", "create", "orders")
    (described,) = cli.ok("topic", "describe", "orders", "--json").objects
    assert len(described["partitions"]) == 2
    node.send_signal(end)
    rest, errors = node.communicate(timeout=TIMEOUT_S)
    assert (node.returncode, rest) == (0, b""), errors


def test_records_outlive_the_node(lonely_cli: CommandLine, tmp_path: Path) -> None:
    for start in (0, 5):
        node = lonely_cli.start("serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0")
        assert node.stdout is not None
        cli = CommandLine(node.stdout.readline().split()[1].decode())
        cli.ok(
            "produce",
            "orders",
            "--auto-create",
            "-p",
            "0",
            stdin=b"".join(b"%d\n" % n for n in range(start, start + 5)),
        )
        assert cli.ok("consume", "orders").lines == [str(n) for n in range(start + 5)]
        node.send_signal(signal.SIGTERM)
        node.communicate(timeout=TIMEOUT_S)
        assert node.returncode == 0


def test_dev_prints_what_to_paste_and_cleans_up(lonely_cli: CommandLine) -> None:
    node = lonely_cli.start("dev", "--port", "0", "--json")
    assert node.stdout is not None
    facts = json.loads(node.stdout.readline())
    assert CommandLine(facts["bootstrap"]).ok("topic", "list").status == 0
    assert Path(facts["data"]).is_dir()
    delay = CommandLine(facts["bootstrap"]).ok("config", "get", "group.initial.rebalance.delay.ms", "--broker", "1")
    assert delay.lines[-1].split()[1] == "0", "one reader does not wait for others"
    # It is told before it answers, so that `dev` does not wait for it.
    wait_for(lambda: status_of(f"{facts['registry']}/subjects") == 200)
    node.send_signal(signal.SIGINT)
    rest, errors = node.communicate(timeout=TIMEOUT_S)
    assert (node.returncode, rest) == (0, b""), errors
    assert not Path(facts["data"]).exists()
    assert status_of(f"{facts['registry']}/subjects") is None


@pytest.mark.slow
def test_dev_that_is_killed_leaves_no_service(lonely_cli: CommandLine) -> None:
    node = lonely_cli.start("dev", "--port", "0", "--json")
    assert node.stdout is not None
    facts = json.loads(node.stdout.readline())
    services = facts["registry"], facts["console"]
    for url in services:
        wait_for(lambda url=url: status_of(f"{url}/livez") == 200)
    node.kill()
    node.communicate(timeout=TIMEOUT_S)
    for url in services:
        wait_for(lambda url=url: status_of(f"{url}/livez") is None)


def status_of(url: str) -> int | None:
    """Return the status of an answer; None if there is none."""
    try:
        with urlopen(url, timeout=TIMEOUT_S) as answer:
            status: int = answer.status
            return status
    except HTTPError as error:
        return error.code
    except OSError:
        return None


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)


def test_dev_keeps_the_data_it_was_given_and_says_where(lonely_cli: CommandLine, tmp_path: Path) -> None:
    node = lonely_cli.start("dev", "--no-registry", "--no-console", "--port", "0", "--data", str(tmp_path / "kept"))
    assert node.stdout is not None
    shown = b""
    while b"Ctrl-C stops it." not in shown:
        line = node.stdout.readline()
        assert line, shown
        shown += line
    assert b"bootstrap.servers" in shown
    assert str(tmp_path / "kept").encode() in shown
    node.send_signal(signal.SIGINT)
    node.communicate(timeout=TIMEOUT_S)
    assert node.returncode == 0
    assert (tmp_path / "kept" / "meta.properties").exists()


def test_dev_names_a_port_that_is_taken(lonely_cli: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = lonely_cli.run("dev", "--port", str(taken.getsockname()[1]))
    assert ended.status == 1
    assert "--port 0" in ended.stderr


def test_serve_says_in_a_sentence_why_it_cannot_start(lonely_cli: CommandLine, tmp_path: Path) -> None:
    a_file = tmp_path / "file"
    a_file.touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refusals = {
            ("--data", f"{tmp_path}/a", "--listen", f"127.0.0.1:{port}"): f"127.0.0.1:{port}: address already in use;",
            ("--data", str(a_file), "--listen", "127.0.0.1:0"): f"{a_file} is a file; --data",
            ("--data", f"{tmp_path}/b", "-X", "num.partitons=3"): "did you mean num.partitions?",
            ("--data", f"{tmp_path}/b", "--listen", "9092"): "--listen 9092: expected HOST:PORT",
            ("--data", f"{tmp_path}/b", "--listen", "127.0.0.1:99999"): "expected HOST:PORT with a port up to 65535",
            ("--data", f"{tmp_path}/b", "--listen", "0.0.0.0:0"): "expected advertised.listeners=PLAINTEXT://HOST",
        }
        for arguments, words in refusals.items():
            ended = lonely_cli.run("serve", *arguments, "-X", "http.listener=off")
            assert ended.status == 1
            assert words in ended.stderr
            assert "Errno" not in ended.stderr
        assert "there is no authentication" in ended.stderr, "the last one listens everywhere"
