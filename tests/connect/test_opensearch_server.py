"""OpenSearchSink and a real OpenSearch: what the stub of `test_opensearch_sink` claims is so."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.connect.opensearch_server import OpenSearchServer
from tests.connect.sink_records import batch, opened, record

from strandline.connect.failures import RecordFailed, RetriableFailure
from strandline.connect.sink import Sink
from strandline.connect.sinks.opensearch import OpenSearchSink

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture(scope="module")
def server() -> Iterator[OpenSearchServer]:
    found = OpenSearchServer()
    try:
        yield found.start()
    finally:
        found.remove()


@pytest.fixture
def sinks(server: OpenSearchServer) -> Iterator[Callable[..., Sink]]:
    made: list[Sink] = []

    def make(**more: str) -> Sink:
        named = {name.replace("_", "."): value for name, value in more.items()}
        made.append(opened(OpenSearchSink, {"url": server.url, "timeout.ms": "60000"} | named))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_documents_by_key_tombstones_repeated_batches_and_zombies(
    server: OpenSearchServer, sinks: Callable[..., Sink]
) -> None:
    sink, zombie = sinks(index="keyed"), sinks(index="keyed", compression="gzip")
    first = [record(0, {"ä": "ö"}, "schlüssel"), record(1, {"n": 1}, b"\xff\x00"), record(2, {"n": 2}, {"id": 7})]
    sink.write(batch(*first))
    sink.write(batch(*first))
    whole = {"schlüssel": {"ä": "ö"}, "base64:/wA=": {"n": 1}, '{"id":7}': {"n": 2}}
    assert server.documents("keyed") == whole
    sink.write(batch(record(3, None, "schlüssel"), record(4, None, "never there"), record(5, {"n": 5}, {"id": 7})))
    zombie.write(batch(*first))
    assert server.documents("keyed") == {"base64:/wA=": {"n": 1}, '{"id":7}': {"n": 5}}


def test_a_document_that_does_not_fit_the_mapping_fails_its_record(
    server: OpenSearchServer, sinks: Callable[..., Sink]
) -> None:
    sink = sinks(index="mapped")
    sink.write(batch(record(0, {"n": 1}, "a")))
    bad = record(2, {"n": {"a": 1}}, "c")
    with pytest.raises(RecordFailed, match="orders-0 at offset 2") as caught:
        sink.write(batch(record(1, {"n": 2}, "b"), bad, record(3, {"n": 3}, "d")))
    assert caught.value.record is bad
    sink.write(batch(record(1, {"n": 2}, "b"), record(3, {"n": 3}, "d")))
    assert server.documents("mapped") == {"a": {"n": 1}, "b": {"n": 2}, "d": {"n": 3}}


def test_a_server_that_is_killed_is_waited_for_and_has_each_document_once(
    server: OpenSearchServer, sinks: Callable[..., Sink]
) -> None:
    records = [record(each, {"n": each}, f"k{each}") for each in range(20)]
    sinks(index="killed").write(batch(*records[:10]))
    server.kill()
    sink = sinks(index="killed")
    with pytest.raises(RetriableFailure):
        sink.write(batch(*records))
    server.start()
    sink.write(batch(*records))
    assert server.documents("killed") == {f"k{each}": {"n": each} for each in range(20)}
