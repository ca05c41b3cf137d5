"""HttpSink and a real HTTP server: requests, their order, repeats, and what each answer means."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.authority import Authority
from tests.connect.http_target import HttpTarget, Reply, Request
from tests.connect.sink_records import PLACE, batch, opened, record

from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure
from strandline.connect.sinks import http as http_sink
from strandline.connect.sinks import http_client
from strandline.connect.sinks.http import HttpSink


@pytest.fixture
def target() -> Iterator[HttpTarget]:
    with HttpTarget() as server:
        yield server


@pytest.fixture
def sinks(target: HttpTarget) -> Iterator[Any]:
    made = []

    def make(path: str = "/in", **more: str) -> Any:
        named = {name.replace("_", "."): value for name, value in more.items()}
        made.append(opened(HttpSink, {"url": target.url + path, "timeout.ms": "5000"} | named))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_each_record_is_a_request_with_a_key_of_its_own(target: HttpTarget, sinks: Any) -> None:
    sink = sinks(authorization="Bearer abc", headers="X-Team: red|X-B: 2", max_in_flight="1")
    sink.write(batch(record(4, {"ä": 1}, "a"), record(5, "text", "a"), record(6, b"\xff", "b", partition=3)))
    assert target.bodies == ['{"ä":1}'.encode(), b"text", b"\xff"]
    assert [each.headers["Idempotency-Key"] for each in target.requests] == ["orders-0-4", "orders-0-5", "orders-3-6"]
    first = target.requests[0]
    assert (first.method, first.path) == ("POST", "/in")
    assert first.headers["Authorization"] == "Bearer abc"
    assert first.headers["X-Team"] == "red"
    assert first.headers["Content-Type"] == "application/json"
    assert len({each.connection for each in target.requests}) == 1
    assert "abc" not in repr(sink.config.authorization)


def test_parts_of_a_url_are_encoded(target: HttpTarget, sinks: Any) -> None:
    sink = sinks("/t/${topic}/${key}?q=${field:a.b}&n=${key:x}", method="PUT")
    sink.write(batch(record(0, {"a": {"b": "ü &?#"}}, {"x": "../../etc"})))
    assert (
        target.requests[0].path == "/t/orders/%7B%22x%22%3A%22..%2F..%2Fetc%22%7D?q=%C3%BC%20%26%3F%23&n=..%2F..%2Fetc"
    )
    by_key = sinks("/users/${key}")
    by_key.write(batch(record(1, "v", b"\xff/\r\n")))
    assert target.requests[1].path == "/users/%FF%2F%0D%0A"
    for bad in ("..", ".", "", None):
        with pytest.raises(RecordFailed, match="orders-0 at offset 2"):
            by_key.write(batch(record(2, "v", bad)))
    assert len(target.requests) == 2


def test_batches_as_an_array_and_as_lines(target: HttpTarget, sinks: Any) -> None:
    records = batch(*(record(each, {"n": each}, "k") for each in range(5)))
    sinks(batch_size="2").write(records)
    assert [json.loads(each) for each in target.bodies] == [[{"n": 0}, {"n": 1}], [{"n": 2}, {"n": 3}], [{"n": 4}]]
    target.requests.clear()
    sinks(batch_size="10", batch_format="ndjson", request_body="record").write(records)
    (request,) = target.requests
    assert request.headers["Content-Type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in request.body.splitlines()]
    assert [line["offset"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[1] == {
        "topic": "orders",
        "partition": 0,
        "offset": 1,
        "timestamp": None,
        "key": "k",
        "value": {"n": 1},
    }


def test_the_key_of_a_batch_names_exactly_its_records(target: HttpTarget, sinks: Any) -> None:
    for offsets in ([0, 1, 3], [0, 2, 3], [0, 1, 3]):
        sinks(batch_size="10").write(batch(*(record(each, each, "k") for each in offsets)))
    first, second, third = (each.headers["Idempotency-Key"] for each in target.requests)
    assert first == third != second


def test_a_tombstone_is_ignored_deleted_or_fails(target: HttpTarget, sinks: Any) -> None:
    target.answer = lambda request: Reply(404) if request.path == "/gone" else None
    sinks("/${key}").write(batch(record(0, None, "a")))
    assert target.requests == []
    sink = sinks("/${key}", behavior_on_null_values="delete", batch_size="10", max_in_flight="1")
    sink.write(batch(record(0, 1, "a"), record(1, None, "a"), record(2, None, "gone"), record(3, 2, "a")))
    assert [(each.method, each.path, each.body) for each in target.requests] == [
        ("POST", "/a", b"[1]"),
        ("DELETE", "/a", b""),
        ("DELETE", "/gone", b""),
        ("POST", "/a", b"[2]"),
    ]
    with pytest.raises(RecordFailed, match="offset 4 has no value"):
        sinks(behavior_on_null_values="fail").write(batch(record(4, None, "a")))


def test_keys_keep_their_order_while_others_run_beside_them(target: HttpTarget, sinks: Any) -> None:
    together = threading.Barrier(2, timeout=60)

    def answer(request: Request) -> None:
        if request.body.endswith(b":0"):
            together.wait()

    target.answer = answer
    sink = sinks(max_in_flight="4")
    # Keys of two lanes: both first requests are under way at once, or the barrier breaks.
    sink.write(batch(*(record(each, f"{key}:{each // 2}", key) for each, key in enumerate("ad" * 20))))
    for key in "ad":
        mine = [body for body in target.bodies if body.startswith(key.encode())]
        assert mine == [f"{key}:{each}".encode() for each in range(20)]
    assert target.running_max == 2


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_server_is_retriable_and_what_it_has_is_not_sent_again(
    target: HttpTarget, sinks: Any, status: int
) -> None:
    target.answer = lambda request: Reply(status, b"busy") if request.body == b"2" else None
    sink = sinks(max_in_flight="1")
    records = batch(*(record(each, str(each), "k") for each in range(4)))
    with pytest.raises(RetriableFailure, match=f"offset 2 with status {status}: busy"):
        sink.write(records)
    target.answer = lambda _: None
    sink.write(records)
    assert target.bodies == [b"0", b"1", b"2", b"2", b"3"]
    assert [each.headers["Idempotency-Key"] for each in target.requests][2:4] == ["orders-0-2"] * 2
    # What is read again after a rebalance is sent again.
    sink.resume([PLACE])
    sink.write(batch(records[0]))
    assert target.bodies[-1] == b"0"


def test_retry_after_is_respected(target: HttpTarget, sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target.answer = lambda _: Reply(429, headers={"Retry-After": "30"})
    sink = sinks()
    with pytest.raises(RetriableFailure) as caught:
        sink.write(batch(record(0, "v", "k")))
    assert caught.value.retry_after_s == 30
    with pytest.raises(RetriableFailure, match="asked to wait") as caught:
        sink.write(batch(record(0, "v", "k")))
    assert caught.value.retry_after_s is not None
    assert 0 < caught.value.retry_after_s <= 30
    assert len(target.requests) == 1
    sink._not_before -= 30
    target.answer = lambda _: None
    sink.write(batch(record(0, "v", "k")))
    assert len(target.requests) == 2


def test_retry_after_may_be_a_date_or_nonsense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "time", lambda: 1_600_000_000.0)
    assert http_client._seconds("Sun, 13 Sep 2020 12:26:50 GMT") == 10
    assert http_client._seconds("Sun, 13 Sep 2020 12:00:00 GMT") == 0
    assert http_client._seconds("999999999") == http_client.RETRY_AFTER_MAX_S
    assert http_client._seconds("soon") is None


def test_a_record_that_the_server_refuses_fails_alone(target: HttpTarget, sinks: Any) -> None:
    target.answer = lambda request: Reply(422, b"no\n such thing " + b"x" * 999) if b"bad" in request.body else None
    poison = record(1, "bad", "k")
    with pytest.raises(RecordFailed) as caught:
        sinks().write(batch(record(0, "good", "k"), poison))
    assert caught.value.record is poison
    assert "orders-0 at offset 1 with status 422: no such thing xx" in str(caught.value)
    assert len(str(caught.value)) < 400
    sink = sinks(batch_size="10")
    with pytest.raises(RecordFailed) as caught:
        sink.write(batch(record(0, "good", "k"), poison))
    assert caught.value.record is None
    sink.write(batch(record(0, "good", "k")))
    with pytest.raises(RecordFailed) as caught:
        sink.write(batch(poison))
    assert caught.value.record is poison


def test_a_wrong_token_is_not_the_records_fault(target: HttpTarget, sinks: Any) -> None:
    target.answer = lambda _: Reply(401, b"who are you")
    with pytest.raises(ConnectFailed, match="status 401: who are you") as caught:
        sinks().write(batch(record(0, "v", "k")))
    assert not isinstance(caught.value, RecordFailed | RetriableFailure)


def test_redirects_leave_neither_the_host_nor_the_method(target: HttpTarget, sinks: Any) -> None:
    with HttpTarget() as other:
        for status, location in (
            (307, f"{other.url}/in"),
            (302, "/elsewhere"),
            (308, f"https://127.0.0.1:{target.port}/"),
        ):
            target.answer = lambda _, code=status, to=location: Reply(code, headers={"Location": to})  # type: ignore[misc]
            with pytest.raises(ConnectFailed, match="which is not followed"):
                sinks().write(batch(record(0, "v", "k")))
        assert other.requests == []
    target.requests.clear()
    target.answer = lambda request: Reply(307, headers={"Location": "/new?a=b"}) if request.path == "/in" else None
    sinks().write(batch(record(0, "v", "k")))
    assert [(each.method, each.path, each.body) for each in target.requests][1:] == [("POST", "/new?a=b", b"v")]
    target.answer = lambda _: Reply(307, headers={"Location": "/in"})
    with pytest.raises(ConnectFailed, match="more than 3 times"):
        sinks().write(batch(record(0, "v", "k")))


def test_a_server_that_goes_and_comes_back(target: HttpTarget, sinks: Any) -> None:
    sink = sinks()
    target.answer = lambda _: Reply(closes=True)
    sink.write(batch(record(0, "0", "k")))
    # The server has closed the idle connection; the next request opens another one.
    sink.write(batch(record(1, "1", "k")))
    target.stop()
    for _ in range(2):
        with pytest.raises(RetriableFailure, match="cannot be reached"):
            sink.write(batch(record(2, "2", "k")))
    target.start()
    sink.write(batch(record(2, "2", "k")))
    assert target.bodies == [b"0", b"1", b"2"]


def test_a_slow_server_is_retriable(target: HttpTarget, sinks: Any) -> None:
    go_on = threading.Event()
    target.answer = lambda _: Reply(200 if go_on.wait(10) else 500)
    with pytest.raises(RetriableFailure, match="timed out"):
        sinks(timeout_ms="50").write(batch(record(0, "v", "k")))
    go_on.set()


def test_a_certificate_is_checked(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with HttpTarget(certificate=authority.issue("server")) as secure:
        stranger = opened(HttpSink, {"url": secure.url})
        with pytest.raises(ConnectFailed, match="is not trusted") as caught:
            stranger.write(batch(record(0, "v", "k")))
        assert not isinstance(caught.value, RetriableFailure)
        sink = opened(HttpSink, {"url": secure.url, "tls.ca.file": str(authority.trusted)})
        sink.write(batch(record(0, "v", "k"), record(1, "w", "k")))
        assert secure.bodies == [b"v", b"w"]
        for each in (stranger, sink):
            each.close()


def test_a_long_batch_is_sent_in_several_goes(target: HttpTarget, sinks: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sinks(max_in_flight="1")
    records = batch(*(record(each, str(each), "k") for each in range(3)))
    target.answer = lambda request: sink.stopping.set() if request.body == b"1" else None
    with pytest.raises(RetriableFailure, match="every request of the batch yet"):
        sink.write(records)
    assert target.bodies == [b"0", b"1"]
    sink.stopping.clear()
    monkeypatch.setattr(http_sink, "WRITE_S_MAX", -1.0)
    with pytest.raises(RetriableFailure, match="every request of the batch yet"):
        sink.write(records)
    monkeypatch.undo()
    target.answer = lambda _: None
    sink.write(records)
    assert target.bodies == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"url": "ftp://x"}, "url"),
        ({"url": "http://${field:host}/"}, "url"),
        ({"url": "http://user:pw@host/"}, "url"),
        ({"url": "http://host/a b"}, "url"),
        ({"url": "http://host/${nonsense}"}, "url"),
        ({"url": "http://host/all", "behavior.on.null.values": "delete"}, "url"),
        ({"url": "http://host/", "headers": "Authorization: x"}, "headers"),
        ({"url": "http://host/", "headers": "X: a\nY: b"}, "headers"),
        ({"url": "http://host/", "headers": "Host: evil"}, "headers"),
        ({"url": "http://host/", "authorization": "a\r\nb"}, "authorization"),
        ({"url": "http://host/", "method": "GET"}, "method"),
    ],
)
def test_wrong_settings_are_named(properties: dict[str, str], name: str) -> None:
    assert list(HttpSink.Config.errors_of(properties)) == [name]
