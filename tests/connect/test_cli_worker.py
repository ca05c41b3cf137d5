"""`strandline connect` against a worker with its REST API: states, changes, lag, and targets that are compared."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import CommandLine
from tests.clients.broker import shared_broker
from tests.connect.running import wait_until
from tests.connect.running_worker import running_worker
from tests.connect.sink_records import batch, record
from tests.connect.valkey_server import ValkeyServer

from strandline.cli.connect.local_connector import local_connector
from strandline.connect.records import TopicPosition

pytestmark = pytest.mark.lengthy("starts a broker and a worker, and runs connectors")

WORKER = {"plugin.modules": "tests.connect.plugins"}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with shared_broker() as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module")
def url(bootstrap: str) -> Iterator[str]:
    with running_worker(bootstrap, WORKER) as url:
        yield url


@pytest.fixture
def cli(bootstrap: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    command_line = CommandLine(bootstrap)
    command_line.environ["STRANDLINE_CONNECT_URL"] = url
    # The machine may be busy.
    command_line.options = ("--timeout", "60")
    return command_line


@pytest.fixture
def name() -> str:
    return f"c{uuid.uuid4().hex[:8]}"


def source_file(name: str, **settings: str) -> str:
    Path("in.txt").write_text("one\ntwo\n")
    config = {"connector.class": "FileSource", "file": str(Path("in.txt").absolute()), "topic": f"{name}-lines"}
    Path("source.json").write_text(json.dumps({"name": name, "config": config | settings}))
    return "source.json"


def sink_file(name: str, **settings: str) -> str:
    config = {
        "connector.class": "SqliteSink",
        "topics": name,
        "connection.url": str(Path("target.db").absolute()),
        "key.converter": "StringConverter",
    }
    Path("sink.json").write_text(json.dumps({"name": name, "config": config | settings}))
    return "sink.json"


def produce(bootstrap: str, topic: str, pairs: Sequence[tuple[str | None, Any]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in pairs:
        producer.produce(topic, key=key, value=value if isinstance(value, bytes | None) else json.dumps(value))
    assert producer.flush(60) == 0


def query(statement: str) -> list[Any]:
    connection = sqlite3.connect("target.db", timeout=30)
    try:
        found = connection.execute(statement).fetchall()
        connection.commit()
        return found
    finally:
        connection.close()


def state_of(cli: CommandLine, name: str) -> list[str]:
    return [each["state"] for each in cli.run("connect", "status", name, "--json").objects]


def committed(cli: CommandLine, name: str) -> int:
    """The offsets that a sink has committed in all partitions."""
    found = cli.ok("connect", "offsets", name, "--json").objects
    return sum(each["offset"]["kafka_offset"] for each in found)


def running_sink(cli: CommandLine, name: str, pairs: Sequence[tuple[str | None, Any]], **settings: str) -> str:
    """Create a sink, and wait until it has written these records. Return its file."""
    assert cli.bootstrap is not None
    produce(cli.bootstrap, name, pairs)
    file = sink_file(name, **settings)
    cli.ok("connect", "apply", file, "--yes")
    wait_until(lambda: committed(cli, name) == len(pairs), "the sink has written everything")
    return file


# The worker


def test_no_worker_is_said_with_what_to_do(cli: CommandLine) -> None:
    ended = cli.run("connect", "list", "--url", "http://127.0.0.1:1")
    assert ended.status == 4
    assert "is `strandline connect serve` running?" in ended.stderr


def test_url_of_something_else_is_said_to_be_no_worker(cli: CommandLine) -> None:
    assert cli.run("connect", "list", "--url", "ftp://x").status == 2
    assert cli.run("connect", "list", "--url", "http://127.0.0.1:99999").status == 2


def test_connector_lives_from_apply_to_delete(cli: CommandLine, name: str) -> None:
    file = source_file(name)
    refused = cli.run("connect", "apply", file)
    assert refused.status == 2
    assert f"{name} is created" in refused.stderr
    assert cli.ok("connect", "apply", file, "--yes").lines == [f"{name}: created"]
    assert cli.ok("connect", "apply", file).lines == [f"{name}: unchanged"]
    wait_until(lambda: state_of(cli, name) == ["RUNNING", "RUNNING"], "it runs")
    (listed,) = [each for each in cli.ok("connect", "list", "--json").objects if each["name"] == name]
    assert listed["type"] == "source"
    assert (listed["tasks"], listed["running"], listed["failed"]) == (1, 1, 0)
    slip = cli.run("connect", "status", f"{name}x")
    assert slip.status == 3
    assert f"did you mean '{name}'?" in slip.stderr
    wait_until(lambda: bool(cli.ok("connect", "offsets", name, "--json").objects), "it has a position")
    (position,) = cli.ok("connect", "offsets", name, "--json").objects
    assert position["partition"]["filename"].endswith("in.txt")
    assert "position=8" in cli.ok("connect", "offsets", name).lines[1]
    (told,) = cli.ok("connect", "lag", name, "--json").objects
    assert (told["type"], told["offset"]["position"]) == ("source", 8)
    assert cli.ok("connect", "restart", name, "--tasks", "--failed").lines == [f"{name} has nothing to restart"]
    assert cli.ok("connect", "restart", name, "--json").objects == [{"connector": name, "restarted": ["connector"]}]
    assert cli.ok("connect", "pause", name).lines == [f"{name} is PAUSED"]
    assert state_of(cli, name) == ["PAUSED", "PAUSED"]
    assert cli.ok("connect", "resume", name).lines == [f"{name} is RUNNING"]
    assert cli.ok("connect", "stop", name).lines == [f"{name} is STOPPED"]
    assert state_of(cli, name) == ["STOPPED"]
    assert cli.run("connect", "delete", name).status == 2
    cli.ok("connect", "delete", name, "--yes")
    assert cli.run("connect", "status", name).status == 3
    assert cli.run("connect", "pause", name).status == 3


def test_apply_shows_what_changes(cli: CommandLine, name: str) -> None:
    cli.ok("connect", "apply", source_file(name), "--yes")
    ended = cli.ok("connect", "apply", source_file(name, **{"batch.size": "7"}), "--yes")
    assert ended.lines == [f"{name}: changed"]
    assert "batch.size: 7" in ended.stderr
    assert "file:" not in ended.stderr


def test_apply_changes_nothing_if_one_config_is_wrong(cli: CommandLine, name: str) -> None:
    good = json.loads(Path(source_file(name)).read_text())
    bad = {"name": f"{name}-bad", "config": good["config"] | {"batch.size": "many"}}
    Path("both.json").write_text(json.dumps([good, bad]))
    ended = cli.run("connect", "apply", "both.json", "--yes")
    assert ended.status == 1
    assert f"{name}-bad: Invalid value many for configuration batch.size" in ended.stderr
    assert "nothing was changed" in ended.stderr
    assert cli.run("connect", "status", name).status == 3


def test_validate_asks_the_worker(cli: CommandLine, url: str, name: str) -> None:
    assert cli.ok("connect", "validate", source_file(name), "--url", url).lines == [f"source.json: {name} is valid"]
    ended = cli.run("connect", "validate", source_file(name, folow="true"), "--url", url)
    assert ended.status == 5
    assert "did you mean follow?" in ended.lines[0]


def test_failed_task_is_exit_code_5_with_one_sentence_and_is_restarted(cli: CommandLine, name: str) -> None:
    file = source_file(name, format="csv")
    Path("in.txt").write_bytes(b'a,b\n"\xff\n')
    cli.ok("connect", "apply", file, "--yes")
    wait_until(lambda: "FAILED" in state_of(cli, name), "the task fails")
    ended = cli.run("connect", "status", name)
    assert ended.status == 5
    assert f"restart {name} --tasks --failed" in ended.stderr
    (failed,) = [each for each in cli.run("connect", "status", name, "--json").objects if each["state"] == "FAILED"]
    assert failed["task"] == 0
    assert failed["reason"]
    assert "\n" not in failed["reason"]
    Path("in.txt").write_text("a,b\n1,2\n")
    assert cli.ok("connect", "restart", name).lines == [f"{name} restarts: connector, task 0"]
    wait_until(lambda: state_of(cli, name) == ["RUNNING", "RUNNING"], "it runs again")


# How far it is


@pytest.mark.slow
def test_lag_of_a_sink_is_that_of_its_group(cli: CommandLine, name: str) -> None:
    running_sink(cli, name, [("a", {"n": 1}), ("b", {"n": 2})])
    (caught_up,) = cli.ok("connect", "lag", name, "--json").objects
    assert (caught_up["group"], caught_up["lag"], caught_up["verdict"]) == (f"connect-{name}", 0, "ok")
    cli.ok("connect", "stop", name)
    assert cli.bootstrap is not None
    produce(cli.bootstrap, name, [("c", {"n": 3})])
    (behind,) = cli.ok("connect", "lag", name, "--json").objects
    assert behind["lag"] == 1
    lines = cli.ok("connect", "lag", name).lines
    assert lines[0] == f"connector  {name} (sink)"
    assert any(line.startswith("verdict") and "caught up" not in line for line in lines)


# What a sink would get


def test_preview_of_a_sink_shows_records_and_bad_ones_and_joins_no_group(cli: CommandLine, name: str) -> None:
    assert cli.bootstrap is not None
    produce(cli.bootstrap, name, [("a", {"n": 1}), ("b", b"{no json"), ("c", None)])
    lines = cli.ok("connect", "preview", sink_file(name)).lines
    assert lines[0] == f'{name}-0 at offset 0  key "a"  value {{"n": 1}}'
    assert lines[1].startswith(f"{name}-0 at offset 1  bad: converting the value of {name}-0 at offset 1 failed")
    assert lines[2].endswith("value null (a tombstone)")
    (last,) = cli.ok("connect", "preview", "sink.json", "--max", "1", "--json").objects
    assert (last["offset"], last["value"]) == (2, None)
    (first,) = cli.ok("connect", "preview", "sink.json", "--max", "1", "--from", "earliest", "--json").objects
    assert (first["offset"], first["key"]) == (0, "a")
    groups = {each["group"] for each in cli.ok("group", "list", "--json").objects}
    assert not {f"connect-{name}", "strandline-cli"} & groups


# Targets


def test_sink_is_compared_with_its_topic_and_rebuilt(cli: CommandLine, name: str) -> None:
    pairs: list[tuple[str | None, Any]] = [(str(number % 8), {"n": number, "text": "é"}) for number in range(40)]
    file = running_sink(cli, name, [*pairs, ("7", None)])
    (same,) = cli.ok("connect", "verify", file, "--json").objects
    assert (same["differences"], same["rows"], same["records"]) == (0, 7, 41)
    assert "has the 7 rows" in cli.ok("connect", "verify", name).lines[0]

    query(f"update \"{name}\" set n = -1 where id = '1'")
    query(f"delete from \"{name}\" where id = '2'")
    query(f"insert into \"{name}\" (id, n) values ('7', 1), ('never', 1)")
    ended = cli.run("connect", "verify", name, "--json")
    assert ended.status == 5
    (found,) = ended.objects
    assert [found[each] for each in ("different", "missing", "not_deleted", "surplus")] == [1, 1, 1, 1]
    by_key = {each["key"][0]: each for each in found["first"]}
    assert by_key["1"]["record"] == f"{name}-0 at offset 33"
    assert by_key["2"]["in_target"] == "no row"
    assert by_key["7"]["in_topic"] == "deleted"
    assert by_key["never"]["record"] is None

    asked = cli.run("connect", "rebuild", file)
    assert asked.status == 2
    assert "differs in 4 of the 7 rows" in asked.stderr
    assert "nothing was swapped" in asked.stderr
    ended = cli.ok("connect", "rebuild", file, "--yes")
    assert "7 rows" in ended.lines[0]
    assert "going on with the target of an earlier rebuild" in ended.stderr
    assert query(f'select count(*), sum(n) from "{name}"') == [(7, sum(range(32, 39)))]
    assert query(f"select n from \"{name}__old_1\" where id = '1'") == [(-1,)]
    # The connector goes on in the new target.
    produce(cli.bootstrap or "", name, [("new", {"n": 1000})])
    wait_until(lambda: query(f"select n from \"{name}\" where id = 'new'") == [(1000,)], "it goes on")
    cli.ok("connect", "verify", name)
    cli.ok("connect", "rebuild", file, "--drop", "--yes")
    assert query(f"select count(*) from sqlite_master where name = '{name}__old_1'") == [(0,)]


@pytest.mark.slow
def test_verify_finds_nothing_while_the_sink_writes(cli: CommandLine, name: str) -> None:
    assert cli.bootstrap is not None
    running_sink(cli, name, [(str(number % 50), {"n": number}) for number in range(200)])
    producer = Producer({"bootstrap.servers": cli.bootstrap})
    until = time.monotonic() + 2
    number = 0
    while time.monotonic() < until:
        for _ in range(300):
            number += 1
            value = None if not number % 17 else json.dumps({"n": number})
            producer.produce(name, key=str(number % 60), value=value)
        producer.flush(30)
        (found,) = cli.ok("connect", "verify", name, "--json").objects
        assert found["differences"] == 0


def test_verify_of_what_cannot_be_compared_says_why(cli: CommandLine, name: str) -> None:
    ended = cli.run("connect", "verify", source_file(name))
    assert ended.status == 2
    assert "is a source" in ended.stderr
    assert cli.run("connect", "verify", f"{name}-none").status == 3
    produce(cli.bootstrap or "", name, [("a", {"n": 1})])
    never_ran = cli.run("connect", "verify", sink_file(name))
    assert never_ran.status == 3
    assert "has written nothing yet" in never_ran.stderr
    service = sink_file(name, **{"connector.class": "HttpSink", "url": "http://127.0.0.1:1/"})
    for verb in ("verify", "rebuild"):
        ended = cli.run("connect", verb, service)
        assert ended.status == 2
        assert "cannot be read back or done again" in ended.stderr


@pytest.mark.slow
def test_discard_gives_a_rebuild_up(cli: CommandLine, name: str) -> None:
    file = running_sink(cli, name, [("a", {"n": 1})])
    assert cli.run("connect", "rebuild", file).status == 2
    assert query(f"select count(*) from sqlite_master where name = '{name}__rebuild'") == [(1,)]
    cli.ok("connect", "rebuild", file, "--discard")
    assert query(f"select count(*) from sqlite_master where name = '{name}__rebuild'") == [(0,)]
    assert query(f'select n from "{name}"') == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["sql-sink-committed", "sql-swap-new-renamed", "sql-swap-committed"])
def test_rebuild_that_is_killed_is_begun_again(cli: CommandLine, name: str, point: str) -> None:
    count = 3_000
    file = running_sink(cli, name, [(str(number), {"n": number}) for number in range(count)])
    cli.ok("connect", "stop", name)
    query(f'update "{name}" set n = 0')
    command = [sys.executable, "-m", "strandline", "connect", "rebuild", file, "--yes"]
    killed = subprocess.run(
        command, env=cli.environ | {"STRANDLINE_FAULT": f"{point}:kill:killed"}, capture_output=True, check=False
    )
    assert killed.returncode == -9, killed.stderr
    ended = cli.ok("connect", "rebuild", file, "--yes")
    assert ("going on with" in ended.stderr) == (point != "sql-swap-committed")
    assert query(f'select count(*), sum(n) from "{name}"') == [(count, count * (count - 1) // 2)]
    cli.ok("connect", "verify", file)


@pytest.mark.slow
def test_target_in_postgres_is_compared_and_rebuilt(cli: CommandLine, name: str, postgres: str) -> None:
    import psycopg

    pairs = [(str(number % 3000), {"n": number, "half": number / 2}) for number in range(5000)]
    settings = {"connector.class": "PostgresSink", "connection.url": postgres}
    file = running_sink(cli, name, pairs, **settings)
    cli.ok("connect", "verify", file)
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"update \"{name}\" set half = 0 where id = '2999'")
        assert cli.run("connect", "verify", file).status == 5
        cli.ok("connect", "rebuild", file, "--yes")
        assert connection.execute(f"select half from \"{name}\" where id = '2999'").fetchall() == [(1499.5,)]
    cli.ok("connect", "verify", file)
    cli.ok("connect", "delete", name, "--yes")


LAKE = {"upsert": "true", "key.fields": "id", "commit.interval.ms": "0"}


@pytest.fixture(scope="module")
def valkey() -> Iterator[str]:
    with ValkeyServer() as server:
        yield server.url


def settings_of(kind: str, asked: pytest.FixtureRequest) -> dict[str, str]:
    """Return the settings of a sink whose target is in this directory, or on a server."""
    here = Path.cwd()
    match kind:
        case "RedisSink":
            return {"url": asked.getfixturevalue("valkey"), "value.type": "hash", "rebuild.database": "1"}
        case "SearchSink":
            return {"index.path": str(here / "index"), "text.fields": "text"}
        case "DeltaSink":
            return {"table.url": here.as_uri(), **LAKE}
    catalog = {"catalog.uri": f"sqlite:///{here}/catalog.db", "catalog.warehouse": f"file://{here}/files"}
    return {"catalog.type": "sql", **catalog, **LAKE}


def damage(file: str, wrong: Any, missing: str) -> None:
    """Change one row of a target and delete another, by records of a partition that the topic does not have."""
    found = local_connector(Path(file), None)[0]
    sink = found.make()
    sink.open()
    more = {"topic": found.name, "partition": 7}
    offset = sum((sink.resume([TopicPosition(found.name, 7)]) or {}).values())
    sink.write(batch(record(offset, *wrong, **more), record(offset + 1, None, missing, **more)))
    sink.flush()
    sink.close()


def set_offset(url: str, name: str, offset: int) -> None:
    body = {"partition": {"kafka_topic": name, "kafka_partition": 0}, "offset": {"kafka_offset": offset}}
    request = urllib.request.Request(
        f"{url}/connectors/{name}/offsets",
        json.dumps({"offsets": [body]}).encode(),
        {"Content-Type": "application/json"},
        method="PATCH",
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert "altered" in json.load(answer)["message"]


@pytest.mark.parametrize(
    "kind",
    [
        "RedisSink",
        pytest.param("SearchSink", marks=pytest.mark.slow),
        pytest.param("DeltaSink", marks=pytest.mark.slow),
        pytest.param("IcebergSink", marks=pytest.mark.slow),
    ],
)
def test_any_target_is_compared_rebuilt_and_written_again(
    cli: CommandLine, url: str, name: str, kind: str, request: pytest.FixtureRequest
) -> None:
    pairs: list[tuple[str | None, Any]] = [(str(number % 5), {"n": number, "text": "é"}) for number in range(20)]
    file = running_sink(cli, name, [*pairs, ("4", None)], **{"connector.class": kind, **settings_of(kind, request)})
    (same,) = cli.ok("connect", "verify", name, "--json").objects
    assert (same["differences"], same["rows"], same["records"]) == (0, 4, 21)

    cli.ok("connect", "stop", name)
    damage(file, ({"n": -1, "text": "wrong"}, "1"), "2")
    ended = cli.run("connect", "verify", file, "--json")
    assert ended.status == 5
    assert [ended.objects[0][each] for each in ("different", "missing", "surplus")] == [1, 1, 0]
    assert "differs in 2 of the 4 rows" in cli.run("connect", "rebuild", file).stderr
    ended = cli.ok("connect", "rebuild", file, "--yes")
    assert "going on with the target of an earlier rebuild" in ended.stderr
    cli.ok("connect", "verify", file)
    cli.ok("connect", "rebuild", file, "--drop", "--yes")

    # The offsets in the target are set, too: otherwise nothing would be written again.
    damage(file, ({"n": -1, "text": "wrong"}, "1"), "2")
    set_offset(url, name, 0)
    cli.ok("connect", "resume", name)
    produce(cli.bootstrap or "", name, [("new", {"n": 100, "text": "x"})])
    wait_until(lambda: committed(cli, name) == 22, "it is written again")
    cli.ok("connect", "verify", file)
    cli.ok("connect", "delete", name, "--yes")
