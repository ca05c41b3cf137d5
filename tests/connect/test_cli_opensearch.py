"""`connect verify` and `connect rebuild` with a real OpenSearch: a fresh index, and an alias that moves to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.cli.conftest import CommandLine
from tests.connect.opensearch_server import OpenSearchServer
from tests.connect.running import wait_until
from tests.connect.test_cli_worker import bootstrap, cli, committed, name, produce, running_sink, url

__all__ = ["bootstrap", "cli", "name", "url"]

pytestmark = [pytest.mark.slow, pytest.mark.java]


@pytest.fixture(scope="module")
def server() -> Iterator[OpenSearchServer]:
    found = OpenSearchServer()
    try:
        yield found.start()
    finally:
        found.remove()


def indexes(server: OpenSearchServer, name: str) -> dict[str, list[str]]:
    """Return the indexes of a connector with their aliases."""
    found = server.ask("GET", f"/{name}*/_alias")
    return {index: sorted(about["aliases"]) for index, about in sorted(found.items())}


def test_an_index_is_compared_and_rebuilt_behind_its_name(
    cli: CommandLine, server: OpenSearchServer, name: str
) -> None:
    server.ask("PUT", f"/{name}", {"mappings": {"properties": {"text": {"type": "keyword"}}}})
    pairs = [(str(number % 5), {"n": number, "text": "é"}) for number in range(20)]
    file = running_sink(cli, name, [*pairs, ("4", None)], **{"connector.class": "OpenSearchSink", "url": server.url})
    (same,) = cli.ok("connect", "verify", name, "--json").objects
    assert (same["differences"], same["rows"], same["records"]) == (0, 4, 21)

    server.ask("PUT", f"/{name}/_doc/1", {"n": -1})
    server.ask("DELETE", f"/{name}/_doc/2")
    server.ask("PUT", f"/{name}/_doc/never", {"n": 1})
    ended = cli.run("connect", "verify", file, "--json")
    assert ended.status == 5
    assert [ended.objects[0][each] for each in ("different", "missing", "surplus")] == [1, 1, 1]

    del cli.environ["STRANDLINE_CONNECT_URL"]
    assert "nothing was swapped" in cli.run("connect", "rebuild", file).stderr
    cli.ok("connect", "rebuild", file, "--discard")
    assert indexes(server, name) == {name: []}
    # The connector runs meanwhile: its writes wait until the alias has moved.
    cli.ok("connect", "rebuild", file, "--yes")
    assert indexes(server, name) == {f"{name}__rebuild_0": [], f"{name}__rebuild_1": [name]}
    assert server.ask("GET", f"/{name}__rebuild_0/_doc/1")["_source"] == {"n": -1}
    mapping = server.ask("GET", f"/{name}/_mapping")[f"{name}__rebuild_1"]["mappings"]
    assert mapping["properties"]["text"] == {"type": "keyword"}
    produce(cli.bootstrap or "", name, [("new", {"n": 100})])
    wait_until(lambda: "new" in server.documents(name), "it goes on")
    cli.ok("connect", "verify", file)

    server.ask("DELETE", f"/{name}/_doc/0")
    assert cli.run("connect", "verify", file).status == 5
    cli.ok("connect", "rebuild", file, "--yes")
    cli.ok("connect", "verify", file)
    cli.ok("connect", "rebuild", file, "--drop", "--yes")
    assert indexes(server, name) == {f"{name}__rebuild_2": [name]}
    produce(cli.bootstrap or "", name, [("newer", {"n": 101})])
    wait_until(lambda: "newer" in server.documents(name), "it goes on")


def test_records_that_come_during_a_rebuild_are_in_the_new_index(
    cli: CommandLine, server: OpenSearchServer, url: str, name: str
) -> None:
    sink = {"connector.class": "OpenSearchSink", "url": server.url, "offset.flush.interval.ms": "100"}
    file = running_sink(cli, name, [("first", {"n": 0})], **sink)
    del cli.environ["STRANDLINE_CONNECT_URL"]
    ended = threading.Event()
    count = 1

    def write() -> None:
        nonlocal count
        while not ended.wait(0.01):
            produce(cli.bootstrap or "", name, [(f"k{count}", {"n": count})])
            count += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            cli.ok("connect", "rebuild", file, "--yes")
    finally:
        ended.set()
        writer.join()
    cli.environ["STRANDLINE_CONNECT_URL"] = url
    wait_until(lambda: committed(cli, name) == count, "the sink has written everything")
    (found,) = cli.ok("connect", "verify", file, "--json").objects
    assert (found["differences"], found["rows"]) == (0, count)
