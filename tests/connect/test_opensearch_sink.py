"""OpenSearchSink and a stub of the bulk API; `test_opensearch_server` has a real OpenSearch.

The stub is a real HTTP server. It takes `_bulk` as the documentation describes it: actions and sources by lines, ids,
external versions that must be newer than those it has (deletes have versions, too), and a status for each item. It
knows nothing of mappings; a test says which documents it rejects.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.connect.http_target import HttpTarget, Reply, Request
from tests.connect.sink_records import batch, opened, record

from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure
from strandline.connect.records import SinkRecord
from strandline.connect.sinks.opensearch import OpenSearchSink


class BulkStub(HttpTarget):
    """Indexes by name, each with its documents by id."""

    def __init__(self) -> None:
        super().__init__(self.bulk)
        self.versions: dict[tuple[str, str], int] = {}
        self.documents: dict[tuple[str, str], Any] = {}
        self.size_bytes_max = 10_000_000
        self.rejected: Callable[[str, Any], tuple[int, str] | None] = lambda name, source: None
        """Returns the status and the kind of error of a document, by its id and source."""

    def bulk(self, request: Request) -> Reply:
        assert request.path == "/base/_bulk"
        assert request.headers["Content-Type"] == "application/x-ndjson"
        if len(request.body) > self.size_bytes_max:
            return Reply(413, b"too large")
        is_packed = request.headers.get("Content-Encoding") == "gzip"
        body = gzip.decompress(request.body) if is_packed else request.body
        assert body.endswith(b"\n")
        lines = [json.loads(line) for line in body.splitlines()]
        items = []
        while lines:
            ((action, about),) = lines.pop(0).items()
            source = lines.pop(0) if action == "index" else None
            items.append({action: self._item(action, about, source)})
        errors = any(next(iter(each.values()))["status"] >= 300 for each in items)
        return Reply(200, json.dumps({"took": 1, "errors": errors, "items": items}).encode())

    def _item(self, action: str, about: dict[str, Any], source: Any) -> dict[str, Any]:
        place = about["_index"], about["_id"]
        rejected = self.rejected(about["_id"], source)
        if rejected is not None:
            return {"status": rejected[0], "error": {"type": rejected[1], "reason": "the stub says no"}}
        if "version" in about:
            assert about["version_type"] == "external"
            if about["version"] <= self.versions.get(place, -1):
                return {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "older"}}
            self.versions[place] = about["version"]
        was_there = place in self.documents
        if action == "delete":
            self.documents.pop(place, None)
            return {"status": 200 if was_there else 404, "result": "deleted" if was_there else "not_found"}
        self.documents[place] = source
        return {"status": 200 if was_there else 201}


@pytest.fixture
def stub() -> Iterator[BulkStub]:
    with BulkStub() as server:
        yield server


@pytest.fixture
def sinks(stub: BulkStub) -> Iterator[Any]:
    made = []

    def make(**more: str) -> Any:
        named = {name.replace("_", "."): value for name, value in more.items()}
        made.append(opened(OpenSearchSink, {"url": f"{stub.url}/base/", "timeout.ms": "5000"} | named))
        return made[-1]

    yield make
    for each in made:
        each.close()


def numbered(first: int, count: int) -> list[SinkRecord]:
    return [record(each, {"n": each}, f"k{each % 3}") for each in range(first, first + count)]


def test_documents_by_key_and_tombstones(stub: BulkStub, sinks: Any) -> None:
    sink = sinks()
    sink.write(
        batch(record(0, {"ä": "ö"}, "schlüssel"), record(1, {"n": 1}, b"\xff\x00"), record(2, {"n": 2}, {"id": 7}))
    )
    assert stub.documents == {
        ("orders", "schlüssel"): {"ä": "ö"},
        ("orders", "base64:/wA="): {"n": 1},
        ("orders", '{"id":7}'): {"n": 2},
    }
    sink.write(batch(record(3, None, "schlüssel"), record(4, None, "never there"), record(5, {"n": 5}, "base64:/wA=")))
    assert ("orders", "schlüssel") not in stub.documents
    assert stub.documents["orders", "base64:/wA="] == {"n": 1}
    assert len(stub.documents) == 3


def test_a_repeated_batch_and_a_zombie_change_nothing(stub: BulkStub, sinks: Any) -> None:
    sink, zombie = sinks(), sinks()
    sink.write(batch(*numbered(0, 10)))
    sink.write(batch(*numbered(0, 10)))
    sink.write(batch(record(10, None, "k0"), record(11, {"n": "new"}, "k1")))
    zombie.write(batch(*numbered(6, 4)))
    assert stub.documents == {("orders", "k1"): {"n": "new"}, ("orders", "k2"): {"n": 8}}


def test_killed_after_any_request_the_next_task_writes_the_same(stub: BulkStub, sinks: Any) -> None:
    records = [*numbered(0, 12), record(12, None, "k1")]
    sinks().write(batch(*records))
    expected = dict(stub.documents)
    for stored in range(len(records)):
        stub.documents.clear()
        stub.versions.clear()
        sinks().write(batch(*records[:stored]))
        sinks().write(batch(*records))
        assert stub.documents == expected


def test_documents_by_their_place(stub: BulkStub, sinks: Any) -> None:
    sinks(document_id="record").write(batch(record(0, {"n": 1}), record(0, {"n": 2}, partition=1), record(1, None)))
    assert stub.documents == {("orders", "orders+0+0"): {"n": 1}, ("orders", "orders+1+0"): {"n": 2}}


def test_without_versions_the_last_write_wins(stub: BulkStub, sinks: Any) -> None:
    sink = sinks(document_version="none")
    sink.write(batch(record(5, {"n": 5}, "k")))
    sink.write(batch(record(0, {"n": 0}, "k", partition=1)))
    assert stub.documents["orders", "k"] == {"n": 0}


def test_requests_are_cut_by_their_size(stub: BulkStub, sinks: Any) -> None:
    sink = sinks(batch_max_bytes="1024", compression="gzip")
    sink.write(batch(*(record(each, {"text": "x" * 300}, str(each)) for each in range(10))))
    assert len(stub.requests) == 5
    assert len(stub.documents) == 10
    assert all(len(gzip.decompress(each)) <= 1024 for each in stub.bodies)


def test_a_request_that_is_too_large_is_halved(stub: BulkStub, sinks: Any) -> None:
    stub.size_bytes_max = 700
    records = [record(each, {"text": "x" * 100}, str(each)) for each in range(10)]
    sinks().write(batch(*records))
    assert len(stub.documents) == 10
    huge = record(10, {"text": "x" * 1000}, "huge")
    with pytest.raises(RecordFailed, match="orders-0 at offset 10 is too large") as caught:
        sinks().write(batch(*records, huge))
    assert caught.value.record is huge


def test_an_item_that_is_rejected_fails_its_record(stub: BulkStub, sinks: Any) -> None:
    stub.rejected = lambda name, _: (400, "mapper_parsing_exception") if name == "bad" else None
    records = [record(0, {"n": 0}, "a"), record(1, {"n": 1}, "bad"), record(2, {"n": 2}, "b")]
    with pytest.raises(RecordFailed, match="offset 1 was rejected with status 400: mapper_parsing_exception") as caught:
        sinks().write(batch(*records))
    assert caught.value.record is records[1]
    sinks().write(batch(records[0], records[2]))
    assert stub.documents == {("orders", "a"): {"n": 0}, ("orders", "b"): {"n": 2}}


@pytest.mark.parametrize(
    ("status", "kind", "failure"),
    [
        (429, "es_rejected_execution_exception", RetriableFailure),
        (503, "unavailable_shards_exception", RetriableFailure),
        (403, "cluster_block_exception", RetriableFailure),
        (403, "security_exception", ConnectFailed),
        (404, "index_not_found_exception", ConnectFailed),
    ],
)
def test_what_the_error_of_an_item_means(
    stub: BulkStub, sinks: Any, status: int, kind: str, failure: type[ConnectFailed]
) -> None:
    stub.rejected = lambda name, _: {"a": (400, "mapper_parsing_exception"), "b": (status, kind)}.get(name)
    with pytest.raises(failure, match=f"offset 1 was rejected with status {status}: {kind}") as caught:
        sinks().write(batch(record(0, {}, "a"), record(1, {}, "b")))
    assert type(caught.value) is failure


def test_a_server_that_is_busy_or_away(stub: BulkStub, sinks: Any) -> None:
    sink = sinks()
    stub.answer = lambda _: Reply(429, b"circuit breaker", {"Retry-After": "3"}, closes=True)
    with pytest.raises(RetriableFailure, match="status 429: circuit breaker") as caught:
        sink.write(batch(*numbered(0, 3)))
    assert caught.value.retry_after_s == 3
    stub.stop()
    with pytest.raises(RetriableFailure, match="cannot be reached"):
        sink.write(batch(*numbered(0, 3)))
    stub.answer = stub.bulk
    stub.start()
    sink.write(batch(*numbered(0, 3)))
    assert len(stub.documents) == 3


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"items":[]}', b'{"items":[{"index":{}}]}', b"<html>"])
def test_an_answer_that_is_none_ends_the_task(stub: BulkStub, sinks: Any, body: bytes) -> None:
    stub.answer = lambda _: Reply(200, body)
    with pytest.raises(ConnectFailed, match="a result for each item"):
        sinks().write(batch(record(0, {}, "k")))


def test_credentials(stub: BulkStub, sinks: Any) -> None:
    sinks(username="ada", password="päss").write(batch(record(0, {}, "k")))
    kind, _, value = stub.requests[-1].headers["Authorization"].partition(" ")
    assert (kind, b64decode(value).decode()) == ("Basic", "ada:päss")
    sinks(api_key="abc").write(batch(record(1, {}, "k")))
    assert stub.requests[-1].headers["Authorization"] == "ApiKey abc"
    stub.answer = lambda _: Reply(401, b"no")
    with pytest.raises(ConnectFailed, match="status 401") as caught:
        sinks().write(batch(record(2, {}, "k")))
    assert not isinstance(caught.value, RecordFailed | RetriableFailure)


def test_records_that_are_no_documents_fail_before_anything_is_sent(stub: BulkStub, sinks: Any) -> None:
    sink = sinks()
    for bad, message in (
        (record(1, "text", "k"), "offset 1 is no object"),
        (record(1, {"a": 1}), "offset 1 has no key"),
        (record(1, {"a": 1}, "x" * 513), "longer than 512 bytes"),
        (record(1, {"a": float("inf")}, "k"), "cannot be written as JSON"),
        (record(1, {"a": 1}, "k", topic="_hidden"), "cannot go to the index '_hidden'"),
    ):
        with pytest.raises(RecordFailed, match=message):
            sink.write(batch(record(0, {"a": 0}, "good"), bad))
    assert stub.requests == []


def test_indexes_are_lower_case_and_belong_to_one_topic(stub: BulkStub, sinks: Any) -> None:
    sink = sinks(index="live-${topic}")
    sink.write(batch(record(0, {"n": 1}, "k", topic="Orders")))
    assert list(stub.documents) == [("live-orders", "k")]
    with pytest.raises(ConnectFailed, match="Orders and orders would share the index live-orders"):
        sink.write(batch(record(0, {"n": 1}, "k")))


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"url": "localhost:9200"}, "url"),
        ({"url": "http://x", "username": "a"}, "password"),
        ({"url": "http://x", "username": "a", "password": "b", "api.key": "c"}, "api.key"),
        ({"url": "http://x", "index": "${x}"}, "index"),
    ],
)
def test_wrong_settings_are_named(properties: dict[str, str], name: str) -> None:
    assert list(OpenSearchSink.Config.errors_of(properties)) == [name]
