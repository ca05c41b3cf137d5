"""RedisSink on a real Valkey: what is written, that it is written once, and who may write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.connect.sink_records import PLACE, TOPIC, batch, opened, record
from tests.connect.valkey_server import ValkeyServer

from strandline.connect.config import Password
from strandline.connect.failures import ConnectFailed, FencedOut, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.records import TopicPosition
from strandline.connect.sinks import redis_script
from strandline.connect.sinks.redis import RedisSink, database_of, with_database

OFFSETS = "strandline:offsets:cache"


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture
def valkey(server: ValkeyServer) -> Iterator[Any]:
    with server.client() as client:
        client.flushall()
        client.config_set("maxmemory", 0)
        yield client


def settings(server: ValkeyServer, **more: str) -> dict[str, str]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"name": "cache", "url": server.url, "timeout.ms": "5000"} | named


@pytest.fixture
def sinks(server: ValkeyServer, valkey: Any) -> Iterator[Any]:
    made = []

    def make(kind: type[RedisSink] = RedisSink, **more: str) -> Any:
        made.append(opened(kind, settings(server, **more)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_value_is_a_string_by_its_key_and_a_tombstone_deletes_it(sinks: Any, valkey: Any) -> None:
    sink = sinks()
    sink.write(batch(record(0, b"\xff\x00", b"\x00\xfe"), record(1, "grün", "schlüssel"), record(2, {"b": 1}, 7)))
    assert valkey.get(b"\x00\xfe") == b"\xff\x00"
    assert valkey.get("schlüssel").decode() == "grün"
    assert json.loads(valkey.get("7")) == {"b": 1}
    sink.write(batch(record(3, None, 7), record(4, None, "never there")))
    assert valkey.exists("7") == 0
    assert valkey.hgetall(OFFSETS) == {b"orders-0": b"5"}


def test_a_tombstone_can_be_ignored_or_fail(sinks: Any, valkey: Any) -> None:
    sinks(behavior_on_null_values="ignore").write(batch(record(0, "kept", "k"), record(1, None, "k")))
    assert valkey.get("k") == b"kept"
    assert valkey.hget(OFFSETS, "orders-0") == b"2"
    with pytest.raises(RecordFailed, match="orders-0 at offset 2 has no value"):
        sinks(behavior_on_null_values="fail").write(batch(record(2, None, "k")))


def test_a_hash_has_the_fields_of_the_last_value_only(sinks: Any, valkey: Any) -> None:
    sink = sinks(value_type="hash", key_format="${topic}:${key:id}")
    sink.write(batch(record(0, {"name": "Ada", "old": 1}, {"id": 5}), record(1, {"name": "Ada", "n": None}, {"id": 5})))
    assert valkey.hgetall("orders:5") == {b"name": b"Ada"}
    odd = {"price": Decimal("1.50"), "at": datetime(2026, 1, 2, tzinfo=UTC), "raw": b"\x01", "list": [1, {"a": None}]}
    sink.write(batch(record(2, odd | {"yes": True}, {"id": 6})))
    assert valkey.hgetall("orders:6") == {
        b"price": b"1.50",
        b"at": b"2026-01-02T00:00:00+00:00",
        b"raw": b"\x01",
        b"list": b'[1,{"a":null}]',
        b"yes": b"true",
    }
    sink.write(batch(record(3, {f"f{each}": each for each in range(5000)}, {"id": 7})))
    assert valkey.hlen("orders:7") == 5000
    with pytest.raises(RecordFailed, match="offset 4 has no fields"):
        sink.write(batch(record(4, "text", {"id": 8})))


def test_json_lists_sets_and_streams(sinks: Any, valkey: Any) -> None:
    sinks(name="a", value_type="json").write(batch(record(0, "text", "json")))
    sinks(name="b", value_type="list").write(batch(record(0, "x", "list"), record(1, "x", "list")))
    sinks(name="c", value_type="set").write(batch(record(0, "x", "set"), record(1, "x", "set")))
    stream = sinks(name="d", value_type="stream")
    stream.write(batch(record(0, {"n": 1, "none": None}, "stream"), record(1, b"\xff", "stream")))
    assert valkey.get("json") == b'"text"'
    assert valkey.lrange("list", 0, -1) == [b"x", b"x"]
    assert valkey.smembers("set") == {b"x"}
    assert [entry for _, entry in valkey.xrange("stream")] == [{b"n": b"1"}, {b"value": b"\xff"}]
    with pytest.raises(RecordFailed, match="has 0 fields"):
        stream.write(batch(record(2, {}, "stream")))


def test_a_stream_is_trimmed(sinks: Any, valkey: Any) -> None:
    sink = sinks(value_type="stream", stream_max_length="10")
    sink.write(batch(*(record(each, {"n": each}, "s") for each in range(1000))))
    assert 10 <= valkey.xlen("s") < 300


@pytest.mark.parametrize("kind", ["string", "hash", "list", "set", "stream"])
def test_a_key_lives_as_long_as_it_may(sinks: Any, valkey: Any, kind: str) -> None:
    sinks(value_type=kind, ttl_seconds="1000").write(batch(record(0, {"a": 1}, "k")))
    assert 0 < valkey.ttl("k") <= 1000


@pytest.mark.parametrize("kind", ["list", "stream"])
def test_a_repeated_batch_is_written_once(sinks: Any, valkey: Any, kind: str) -> None:
    sink = sinks(value_type=kind)
    first = batch(*(record(each, str(each), "k", partition=each % 2) for each in range(10)))
    sink.write(first)
    sink.write(first)
    later = sinks(value_type=kind)
    assert later.resume([PLACE, TopicPosition(TOPIC, 1), TopicPosition(TOPIC, 2)]) == {PLACE: 9, (TOPIC, 1): 10}
    later.write(batch(*first, record(10, "10", "k")))
    found = valkey.lrange("k", 0, -1) if kind == "list" else [each[b"value"] for _, each in valkey.xrange("k")]
    assert found == [str(each).encode() for each in range(11)]


def test_offsets_of_records_that_were_left_out_are_stored(sinks: Any, valkey: Any) -> None:
    class Ending(type(batch())):  # type: ignore[misc]
        ends: Mapping[TopicPosition, int] = {PLACE: 7, TopicPosition(TOPIC, 3): 4}

    sinks().write(Ending([record(5, "v", "k")]))
    assert valkey.hgetall(OFFSETS) == {b"orders-0": b"7", b"orders-3": b"4"}


def test_a_task_that_was_replaced_writes_nothing(sinks: Any, valkey: Any) -> None:
    zombie = sinks(value_type="list")
    zombie.resume([PLACE])
    zombie.write(batch(record(0, "0", "k")))
    successor = sinks(value_type="list")
    assert successor.resume([PLACE]) == {PLACE: 1}
    with pytest.raises(FencedOut, match="another task writes orders-0"):
        zombie.write(batch(record(1, "zombie", "k")))
    successor.write(batch(record(1, "1", "k")))
    with pytest.raises(FencedOut):
        zombie.write(batch(record(2, "zombie", "k")))
    assert valkey.lrange("k", 0, -1) == [b"0", b"1"]


class Killed(BaseException):
    """The process ends here."""


class Mortal(RedisSink):
    """A sink that is killed before or after one of its calls to the server."""

    calls_left = 0
    dies_after = False

    def _call(self, method: Any, *arguments: Any) -> Any:
        type(self).calls_left -= 1
        if self.calls_left == 0 and not self.dies_after:
            raise Killed
        answer = super()._call(method, *arguments)
        if self.calls_left == 0:
            raise Killed
        return answer


@pytest.mark.parametrize("dies_after", [False, True])
def test_killed_at_any_step_each_record_is_there_once(
    sinks: Any, valkey: Any, monkeypatch: pytest.MonkeyPatch, dies_after: bool
) -> None:
    monkeypatch.setattr(redis_script, "CHUNK_COMMANDS_MAX", 3)
    records = [record(each, str(each), "k", partition=each % 2) for each in range(20)]
    places = [PLACE, TopicPosition(TOPIC, 1)]
    for step in range(1, 12):
        valkey.flushall()
        Mortal.calls_left, Mortal.dies_after = step, dies_after
        try:
            mortal = sinks(Mortal, value_type="list")
            mortal.resume(places)
            for first in range(0, 20, 10):
                mortal.write(batch(*records[first : first + 10]))
        except Killed:
            pass
        Mortal.calls_left = 0
        heir = sinks(value_type="list")
        begin = heir.resume(places)
        heir.write(batch(*(each for each in records if each.offset >= begin.get((TOPIC, each.partition), 0))))
        assert valkey.lrange("k", 0, -1) == [str(each).encode() for each in range(20)], f"killed at step {step}"


def test_an_answer_that_was_lost_does_not_double_a_batch(server: ValkeyServer, sinks: Any, valkey: Any) -> None:
    sink = sinks(value_type="list", timeout_ms="100")
    sink.write(batch(record(0, "0", "k")))
    server.freeze()
    try:
        with pytest.raises(RetriableFailure, match="cannot be reached"):
            sink.write(batch(record(1, "1", "k")))
    finally:
        server.thaw()
    # The frozen server had the request in its socket, and has run it by now.
    deadline = time.monotonic() + 60
    while valkey.llen("k") < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    sink.write(batch(record(1, "1", "k"), record(2, "2", "k")))
    assert valkey.lrange("k", 0, -1) == [b"0", b"1", b"2"]


def test_a_server_that_goes_and_comes_back() -> None:
    with ValkeyServer() as own:
        sink = opened(RedisSink, settings(own, value_type="list"))
        sink.write(batch(record(0, "0", "k")))
        own.kill()
        for _ in range(2):
            with pytest.raises(RetriableFailure, match="cannot be reached"):
                sink.write(batch(record(1, "1", "k")))
        own.start()
        sink.write(batch(record(1, "1", "k")))
        with own.client() as client:
            assert client.lrange("k", 0, -1) == [b"0", b"1"]
            # A server without its data, as after a failover to a replica that was behind.
            client.hset(OFFSETS, "orders-0", 1)
            with pytest.raises(ConnectFailed, match="has lost the latest offsets of orders-0"):
                sink.write(batch(record(2, "2", "k")))
            client.flushall()
            with pytest.raises(ConnectFailed, match="has lost the latest offsets of orders-0"):
                sink.write(batch(record(2, "2", "k")))
            assert client.exists("k") == 0
        sink.close()


def test_a_full_server_is_retriable_and_nothing_is_half_written(sinks: Any, valkey: Any) -> None:
    sink = sinks()
    valkey.config_set("maxmemory", 1)
    with pytest.raises(RetriableFailure, match="is full"):
        sink.write(batch(record(0, "v", "a"), record(1, "v", "b")))
    valkey.config_set("maxmemory", 0)
    assert valkey.keys("*") in ([], [b"strandline:owners:cache"])
    sink.write(batch(record(0, "v", "a"), record(1, "v", "b")))
    assert valkey.mget("a", "b") == [b"v", b"v"]


def test_a_key_of_another_type_fails_its_record_and_leaves_the_batch(sinks: Any, valkey: Any) -> None:
    sink = sinks(value_type="list")
    valkey.set("taken", "text")
    poison = record(1, "x", "taken")
    with pytest.raises(RecordFailed, match="offset 1 holds a string in Redis, not a list") as caught:
        sink.write(batch(record(0, "x", "a"), poison, record(2, "x", "b")))
    assert caught.value.record is poison
    assert valkey.exists("a", "b", OFFSETS) == 0
    sink.write(batch(record(0, "x", "a"), record(2, "x", "b")))
    assert valkey.exists("a", "b") == 2
    sink.write(batch(record(3, None, "taken"), record(4, "now a list", "taken")))
    assert valkey.lrange("taken", 0, -1) == [b"now a list"]


def test_bad_keys_and_values_fail_before_anything_is_written(sinks: Any, valkey: Any) -> None:
    sink = sinks()
    for bad, message in (
        (record(1, "v", None), r"orders-0 at offset 1 has no \$\{key\}"),
        (record(1, "v", ""), "or it is empty"),
        (record(1, "v", OFFSETS), "holds offsets"),
        (record(1, {"f": float("nan")}, "k"), "cannot be written as JSON"),
        (record(1, "\ud800", "k"), "not Unicode"),
    ):
        with pytest.raises(RecordFailed, match=message):
            sink.write(batch(record(0, "v", "good"), bad))
    assert valkey.exists("good") == 0


def test_a_password_is_needed_and_not_shown() -> None:
    with ValkeyServer(password="s3cret") as own:
        with pytest.raises(ConnectFailed, match="password") as caught:
            opened(RedisSink, settings(own))
        assert not isinstance(caught.value, RetriableFailure)
        sink = opened(RedisSink, settings(own, password="s3cret"))
        sink.write(batch(record(0, "v", "k")))
        sink.close()
    assert repr(Password("s3cret")) == "[hidden]"


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"url": "http://x"}, "url"),
        ({"url": "redis://:secret@x"}, "url"),
        ({"url": "redis://x", "key.format": "${nonsense}"}, "key.format"),
        ({"url": "redis://x", "value.type": "list", "key.format": "all"}, "behavior.on.null.values"),
        ({"url": "redis://x", "ttl.seconds": "0"}, "ttl.seconds"),
    ],
)
def test_wrong_settings_are_named(properties: dict[str, str], name: str) -> None:
    assert list(RedisSink.Config.errors_of(properties)) == [name]


@pytest.mark.parametrize("kind", ["string", "hash"])
def test_keys_are_compared_with_their_topic(sinks: Any, valkey: Any, kind: str) -> None:
    sink = sinks(value_type=kind, key_format="app*:${key}")
    records = [
        record(0, {"b": 1, "a": 2}, b"\xff"),
        record(1, {"a": "ü", "n": None}, "base64:x"),
        record(2, None, "gone"),
    ]
    sink.write(batch(*records))
    rows = {each.key: each.digest for each in map(sink.expected, records)}
    present = {key: digest for key, digest in rows.items() if digest is not None}
    assert len(present) == 2
    valkey.set("another program's", "x")
    assert sink.digests(list(rows)) == present == dict(sink.scan())
    valkey.delete(b"app*:\xff")
    valkey.rpush(b"app*:\xff", "x")
    assert sink.digests(list(rows)) != present
    valkey.set("app*:surplus", "x")
    assert len(dict(sink.scan())) == 3
    with pytest.raises(InvalidConnectorConfig, match="can be compared"):
        sinks(value_type="list").expected(records[0])


def test_an_empty_string_is_a_row(sinks: Any, valkey: Any) -> None:
    sink = sinks()
    sink.write(batch(record(0, "", "k")))
    expected = sink.expected(record(0, "", "k"))
    assert dict(sink.scan()) == {expected.key: expected.digest} == sink.digests([expected.key])


def test_a_database_is_built_again_beside_the_old_one(server: ValkeyServer, sinks: Any, valkey: Any) -> None:
    sink = sinks(value_type="list", rebuild_database="3")
    sink.write(batch(record(0, "wrong", "k"), record(1, "surplus", "s")))
    for number in range(2):
        fresh = sink.fresh_target()
        fresh.open()
        fresh.resume([PLACE])
        fresh.write(batch(*(record(each, str(each), "k") for each in range(number, 2))))
        if number == 0:
            fresh.close()
    assert valkey.lrange("k", 0, -1) == [b"wrong"]
    fresh.swap()
    assert valkey.lrange("k", 0, -1) == [b"0", b"1"]
    assert valkey.exists("s") == 0
    with pytest.raises(FencedOut):
        sink.write(batch(record(2, "zombie", "k")))
    assert sink.resume([PLACE]) == {PLACE: 2}
    sink.write(batch(record(2, "2", "k")))
    assert valkey.lrange("k", 0, -1) == [b"0", b"1", b"2"]
    with pytest.raises(ConnectFailed, match="drop it first"):
        sink.fresh_target().open()
    fresh.discard()
    valkey.select(3)
    assert valkey.lrange("k", 0, -1) == [b"wrong"]
    sink.drop_old()
    assert valkey.dbsize() == 0
    valkey.set("another program's", "x")
    sink.drop_old()
    with pytest.raises(ConnectFailed, match="is not empty"):
        sink.fresh_target().open()
    valkey.flushdb()
    again = sink.fresh_target()
    again.open()
    again.write(batch(record(0, "x", "k")))
    again.discard()
    assert valkey.dbsize() == 0
    for each in (fresh, again):
        each.close()
    with pytest.raises(InvalidConnectorConfig, match=r"set rebuild\.database"):
        sinks(rebuild_database="0").fresh_target()


def test_a_database_that_other_connectors_use_is_not_exchanged(sinks: Any, valkey: Any) -> None:
    sinks(name="other").write(batch(record(0, "x", "y")))
    with pytest.raises(ConnectFailed, match="also that of other"):
        sinks(rebuild_database="3").fresh_target().open()


def test_offsets_are_set_in_the_server(sinks: Any, valkey: Any) -> None:
    sink = sinks(value_type="list")
    sink.write(batch(*(record(each, str(each), "k") for each in range(3))))
    sinks().set_offsets({PLACE: 2, TopicPosition("orders", 5): 40})
    with pytest.raises(FencedOut):
        sink.write(batch(record(3, "zombie", "k")))
    task = sinks(value_type="list")
    assert task.resume([PLACE, TopicPosition("orders", 5)]) == {PLACE: 2, TopicPosition("orders", 5): 40}
    task.write(batch(*(record(each, "again", "k") for each in range(4))))
    assert valkey.lrange("k", 0, -1) == [b"0", b"1", b"2", b"again", b"again"]
    sinks().set_offsets({PLACE: None})
    assert sinks().resume([PLACE]) == {}


def test_the_database_of_a_url() -> None:
    for url, number in (("redis://h:1/4", 4), ("redis://h", 0), ("unix:///a/b?db=2", 2), ("unix:///5", 0)):
        assert database_of(url) == number
        assert database_of(with_database(url, 7)) == 7
    assert with_database("redis://h:1/4?db=2&protocol=3", 7) == "redis://h:1?protocol=3&db=7"


@pytest.mark.slow
def test_processes_that_are_killed_write_each_record_once(server: ValkeyServer, valkey: Any) -> None:
    program = Path(__file__).parent / "killed_sink.py"
    task = [sys.executable, str(program), "redis:RedisSink", json.dumps(settings(server, value_type="list")), "4000"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for kill in range(4):
        process = subprocess.Popen(task, env=environment)
        while valkey.llen("k") < 700 * (kill + 1) and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(task, env=environment, check=True, timeout=60)
    assert valkey.lrange("k", 0, -1) == [str(each).encode() for each in range(4000)]
