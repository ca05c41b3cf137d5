"""`strandline outbox relay` and `strandline outbox status`."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from tests.cli.conftest import CommandLine
from tests.outbox.relays import relaying, values_of, wait_until
from tests.outbox.test_relay import insert

from strandline import EmbeddedBroker, outbox
from strandline.cli.common.failures import ExitCode


@pytest.mark.slow
def test_a_relay_sends_what_is_there_and_says_what_it_parked(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("commanded", 1)
    cli = CommandLine(broker.bootstrap)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
        outbox.add(connection, "commanded", "k", "k:1")
        insert(connection, 7, "no topic!", None, b"")
        outbox.add(connection, "commanded", "k", "k:2")
    look = ("outbox", "status", "--database", postgres)
    found = cli.run(*look)
    assert found.status == ExitCode.OK
    assert "waiting   3 rows, the oldest for" in found.stdout.decode()
    assert "none works" in found.stdout.decode()

    ended = cli.run("outbox", "relay", "--database", postgres, "--once")
    assert ended.status == ExitCode.ERROR
    assert "00000000-0000-0000-0000-000000000007" in ended.stderr
    ended = cli.run("outbox", "relay", "--database", postgres, "--once", "--invalid", "park", "--json")
    assert ended.status == ExitCode.OK, ended.stderr
    assert json.loads(ended.stdout) == {"table": "outbox", "sent": 1, "parked": 1, "batches": 1}
    assert values_of(broker.bootstrap, "commanded") == ["k:1", "k:2"]

    found = cli.run(*look, "--json")
    assert found.status == ExitCode.UNHEALTHY
    told = json.loads(found.stdout)
    assert (told["waiting"], told["oldest_s"], told["is_relayed"], told["parked"]) == (0, None, False, 1)
    assert told["parked_rows"][0]["id"] == "00000000-0000-0000-0000-000000000007"
    with relaying(postgres, broker.bootstrap) as relay:
        assert relay.is_active.wait(60)
        assert json.loads(cli.run(*look, "--json").stdout)["is_relayed"] is True
        beside = cli.run("outbox", "relay", "--database", postgres, "--once")
        assert (beside.status, "another relay" in beside.stderr) == (ExitCode.UNREACHABLE, True)


def test_the_status_of_a_sqlite_file_tells_whether_a_relay_works(tmp_path: Path, broker: EmbeddedBroker) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    cli = CommandLine(broker.bootstrap)
    connection = sqlite3.connect(tmp_path / "shop.db")
    look = ("outbox", "status", "--database", url, "--table", "events/new", "--json")
    missing = cli.run(*look)
    assert (missing.status, "no table events/new" in missing.stderr) == (ExitCode.ERROR, True)
    outbox.create(connection, table="events/new")
    outbox.add(connection, "t", "k", "v", table="events/new")
    connection.execute("UPDATE \"events/new\" SET failed = 'because', id = x'ff'")
    outbox.add(connection, "t", "k", "v", table="events/new")
    connection.commit()
    told = json.loads(cli.run(*look).stdout)
    assert (told["waiting"], told["parked"], told["is_relayed"]) == (1, 1, False)
    assert told["oldest_s"] < 600
    with relaying(url, broker.bootstrap, table="events/new") as relay:
        assert relay.is_active.wait(60)
        assert json.loads(cli.run(*look).stdout)["is_relayed"] is True
    connection.close()


@pytest.mark.parametrize("given", [("--after", "keep"), ("--batch-rows", "0"), ("--table", ".x"), ("--invalid", "no")])
def test_options_are_checked(broker: EmbeddedBroker, given: tuple[str, str]) -> None:
    ended = CommandLine(broker.bootstrap).run("outbox", "relay", "--database", "sqlite:///x", *given)
    assert ended.status == ExitCode.USAGE


def test_a_relay_works_until_sigterm(postgres: str, broker: EmbeddedBroker) -> None:
    broker.create_topic("served", 1)
    with psycopg.connect(postgres) as connection:
        outbox.create(connection)
    command = [sys.executable, "-m", "strandline", "outbox", "relay", "--bootstrap", broker.bootstrap]
    # The URL may have a password, which a command line would show.
    environ = os.environ | {"STRANDLINE_DATABASE": postgres}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            with psycopg.connect(postgres) as connection:
                outbox.add(connection, "served", "k", "k:1")
            wait_until(lambda: values_of(broker.bootstrap, "served") == ["k:1"], "it is sent")
            process.send_signal(signal.SIGTERM)
            stdout, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, stdout) == (0, "1 event sent, 0 rows parked\n"), stderr
