"""HttpPollingSource against a real server: cursors, pages, conditional requests, limits and failures."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.authority import Authority
from tests.connect.driving import Store, batches_of, drive, eventually, opened, read_with_kills

from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.herder.secrets import Secrets
from strandline.connect.records import Batch
from strandline.connect.sources.http_polling import HttpPollingSource

Reply = tuple[int, dict[str, str], bytes]


class Api:
    """A server whose answers a test decides. `asked` has each request's path, parameters and headers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str], dict[str, str]]] = []
        self.reply: Callable[[str, dict[str, str], dict[str, str]], Reply] = lambda *_: (404, {}, b"")
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                headers = {name.lower(): value for name, value in self.headers.items()}
                api.asked.append((parts.path, query, headers))
                status, sent, body = api.reply(parts.path, query, headers)
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | sent).items():
                    self.send_header(name, value)
                self.end_headers()
                if status != 304:
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def use_tls(self, certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    made = Api()
    yield made
    made.close()


def source(url: str, **settings: str) -> HttpPollingSource:
    given = {"http.url": url, "topic": "t", "poll.interval.ms": "5"}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    assert HttpPollingSource.Config.errors_of(given) == {}
    return HttpPollingSource(HttpPollingSource.Config(given))


def answer(value: Any, **headers: str) -> Reply:
    return 200, {name.replace("_", "-"): each for name, each in headers.items()}, json.dumps(value).encode()


def holds(count: int) -> Callable[[Store], bool]:
    return lambda store: len(store.records) >= count


async def test_a_cursor_in_the_answer_gives_each_record_once(api: Api) -> None:
    events = [{"id": number, "who": {"name": f"n{number}"}} for number in range(10)]

    def reply(path: str, query: dict[str, str], _: Any) -> Reply:
        start = int(query.get("after", "0"))
        assert query["kind"] == "a b"
        page = events[start : start + 3]
        return answer({"result": {"items": page}, "cursor": start + len(page)})

    api.reply = reply
    settings = {"records.path": "result.items", "cursor.path": "cursor", "cursor.parameter": "after"}

    def make() -> HttpPollingSource:
        return source(f"{api.url}/events?kind=a+b", key_path="who.name", **settings)

    store = Store()
    assert await read_with_kills(make, store, until=holds(10)) == 4
    assert store.values == events
    assert store.records[3].key == "n3"
    events.append({"id": 10, "who": {"name": "late"}})
    await drive(make(), store, until=holds(11))
    assert store.values == events


@pytest.mark.parametrize("is_newest_first", [False, True])
async def test_the_highest_field_is_a_cursor_also_if_the_server_includes_it(api: Api, is_newest_first: bool) -> None:
    events: list[dict[str, Any]] = [{"id": place, "at": f"2024-01-0{1 + place // 3}"} for place in range(7)]

    def reply(path: str, query: dict[str, str], _: Any) -> Reply:
        found = [each for each in events if each["at"] >= query.get("since", "")]
        page = int(query.get("page", "0"))
        found = found[::-1] if is_newest_first else found
        more = {"next": f"/?since={query.get('since', '')}&page={page + 1}"} if len(found) > 2 * page + 2 else {}
        return answer({"items": found[2 * page : 2 * page + 2], **more})

    api.reply = reply
    settings = {"records.path": "items", "cursor.field": "at", "cursor.parameter": "since", "next.path": "next"}
    store = Store()
    await read_with_kills(lambda: source(api.url, **settings), store, until=holds(7))
    events += [{"id": 7, "at": "2024-01-03"}, {"id": 8, "at": "2024-01-09"}]
    await read_with_kills(lambda: source(api.url, **settings), store, until=holds(9))
    assert sorted(value["id"] for value in store.values) == list(range(9))


async def test_a_server_without_a_cursor_is_filtered_by_the_field(api: Api) -> None:
    events = [{"n": str(number)} for number in range(8, 12)]
    api.reply = lambda *_: answer(events[-4:])
    store = Store()
    await drive(source(api.url, cursor_field="n"), store, until=holds(4))
    events += [{"n": "12"}, {"n": "13"}]
    await drive(source(api.url, cursor_field="n"), store, until=holds(6))
    assert store.values == events


async def test_pages_follow_links_and_a_kill_goes_on_at_the_page(api: Api) -> None:
    def reply(path: str, query: dict[str, str], _: Any) -> Reply:
        page = int(query.get("page", "1"))
        links = f'<{api.url}/?page=1>; rel="first", </?page={page + 1}>; title="a, b"; rel="x next"'
        return answer([page * 10, page * 10 + 1], **({"Link": links} if page < 4 else {}), ETag='"v1"')

    api.reply = reply
    store = Store()
    assert await read_with_kills(lambda: source(api.url), store, until=holds(8)) == 4
    assert store.values == [10, 11, 20, 21, 30, 31, 40, 41]
    assert [query.get("page") for _, query, _ in api.asked] == [None, None, "2", "2", "3", "3", "4", "4"]


async def test_what_has_not_changed_is_not_written_again(api: Api) -> None:
    state: dict[str, Any] = {}

    def reply(path: str, query: Any, headers: dict[str, str]) -> Reply:
        if path == "/plain":
            return 200, {}, state["body"]
        is_same = headers.get("if-none-match") == state["etag"]
        return (304, {}, b"") if is_same else (200, {"ETag": state["etag"], "Last-Modified": "x"}, state["body"])

    api.reply = reply

    def has_asked(count: int) -> bool:
        return len(api.asked) >= count

    for path in ("/tagged", "/plain"):
        state |= {"body": b"one", "etag": '"1"'}
        store = Store()
        await drive(source(api.url + path, format="text"), store, until=holds(1))
        asked = len(api.asked)
        async with opened(source(api.url + path, format="text")) as polling:
            batches = batches_of(polling, store)
            reading = asyncio.ensure_future(anext(batches))
            await eventually(partial(has_asked, asked + 3))
            assert not reading.done()
            state |= {"body": "zwö".encode(), "etag": '"2"'}
            store.commit(await reading)
            await batches.aclose()
        assert store.values == ["one", "zwö"]
    store = Store()
    await drive(source(f"{api.url}/plain", format="text", skip_unchanged="false"), store, until=holds(3))
    assert store.values == ["zwö"] * 3


async def test_forms_of_bodies(api: Api) -> None:
    api.reply = lambda *_: (200, {"Content-Encoding": "gzip"}, gzip.compress(b'{"a": 1}\n\n{"a": 2}\n'))
    for form, expected in {
        "ndjson": [{"a": 1}, {"a": 2}],
        "lines": ['{"a": 1}', '{"a": 2}'],
        "text": ['{"a": 1}\n\n{"a": 2}\n'],
        "bytes": [b'{"a": 1}\n\n{"a": 2}\n'],
    }.items():
        store = Store()
        await drive(source(api.url, format=form), store, until=holds(1))
        assert store.values == expected


async def test_headers_and_secrets_are_sent_but_not_to_other_hosts(api: Api) -> None:
    api.reply = lambda path, *_: (302, {"Location": "/there"}, b"") if path == "/" else answer([1])
    settings = {"authorization": "Bearer x", "secret.header.name": "X-Key", "secret.header.value": "k"}
    settings["http.header.X-Plain"] = "p"
    await drive(source(api.url + "/", **settings), Store(), until=holds(1))
    path, _, headers = api.asked[1]
    assert (path, headers["authorization"], headers["x-key"], headers["x-plain"]) == ("/there", "Bearer x", "k", "p")
    other = Api()
    try:
        other.reply = lambda *_: answer([2])
        api.reply = lambda *_: (302, {"Location": f"{other.url}/?token=hidden"}, b"")
        with pytest.raises(ConnectFailed, match=r"redirect\.hosts does not allow") as failed:
            await drive(source(api.url, **settings), Store(), until=holds(1))
        assert "hidden" not in str(failed.value)
        api.reply = lambda *_: answer({"items": [1], "next": other.url})
        with pytest.raises(ConnectFailed, match="leads to"):
            await drive(source(api.url, records_path="items", next_path="next"), Store(), until=holds(1))
        assert other.asked == []
        api.reply = lambda *_: (302, {"Location": other.url}, b"")
        store = Store()
        await drive(source(api.url, redirect_hosts="127.0.0.1"), store, until=holds(1))
        assert store.values == [2]
    finally:
        other.close()


async def test_a_secret_in_the_address_is_sent_and_not_stored(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_TOKEN", "s3cret")
    written = f"{api.url}/a?token=${{env:HTTP_TOKEN}}"
    api.reply = lambda path, query, _: answer([{"id": len(api.asked), "token": query["token"]}])
    secrets = Secrets({}, allows_all=True)

    def make() -> HttpPollingSource:
        given = {"http.url": written, "topic": "t", "poll.interval.ms": "5", "cursor.field": "id"}
        return HttpPollingSource(HttpPollingSource.Config(secrets.resolve(given)))

    store = Store()
    # A position that an older version has stored.
    store.commit(Batch((), {"url": f"{api.url}/a?token=s3cret"}, {"cursor": 2}))
    await drive(make(), store, until=holds(2))
    assert [each["token"] for each in store.values] == ["s3cret", "s3cret"]
    assert [each["id"] for each in store.values] == [2, 3]
    assert [partition for partition, _ in store.all()] == [{"url": written}]
    make().check_offsets(make().config, [({"url": written}, {"cursor": 1})])


async def test_a_server_that_asks_to_wait_is_asked_later(api: Api) -> None:
    replies = [(429, {"Retry-After": "0"}, b""), (503, {"Retry-After": "3600"}, b""), answer([1])]
    api.reply = lambda *_: replies.pop(0)
    store = Store()
    await drive(source(api.url, retry_after_max_ms="50"), store, until=holds(1))
    assert (store.values, len(api.asked)) == ([1], 3)


@pytest.mark.parametrize(
    ("reply", "is_retriable", "words"),
    [
        ((500, {}, b""), True, "answers 500"),
        ((429, {}, b""), True, "answers 429"),
        ((401, {}, b"no such key"), False, "answers 401: no such key"),
        ((200, {}, b"{]"), False, "is no JSON"),
        ((200, {}, b"x" * 2001), False, r"body\.max\.bytes=2000"),
        ((200, {"Content-Length": "500"}, b"[1]"), True, "IncompleteRead"),
        ((302, {"Location": "/"}, b""), False, "redirects more than 5 times"),
        ((200, {"Content-Encoding": "gzip"}, gzip.compress(b" " * 100_000)), False, "more than 2000 bytes"),
    ],
)
async def test_failures_are_told_apart(api: Api, reply: Reply, is_retriable: bool, words: str) -> None:
    api.reply = lambda *_: reply
    with pytest.raises(ConnectFailed, match=words) as failed:
        await drive(source(api.url, body_max_bytes="2000"), Store(), until=holds(1))
    assert isinstance(failed.value, RetriableFailure) == is_retriable


async def test_a_server_that_is_slow_or_away_is_given_up_in_time() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        # A byte now and then: the time-out of the socket alone never ends this.
        with contextlib.suppress(OSError):
            for byte in dripping:
                writer.write(bytes([byte]))
                await writer.drain()
                written += 1
                await asyncio.sleep(0.03)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        is_over.set()

    dripping, written = b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 1000, 0
    is_over = asyncio.Event()
    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    with pytest.raises(RetriableFailure, match=r"no answer within 0\.2 s"):
        await drive(source(url, request_timeout_ms="200"), Store(), until=holds(1))
    assert written < len(dripping), "the whole answer was waited for"
    await is_over.wait()
    server.close()
    with pytest.raises(RetriableFailure, match="refused"):
        await drive(source("http://127.0.0.1:1/x"), Store(), until=holds(1))


async def test_https_needs_a_certificate_that_is_trusted(api: Api, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    api.use_tls(authority.issue("api"))
    api.reply = lambda *_: answer([1])
    store = Store()
    url = api.url.replace("http:", "https:")
    await drive(source(url, ssl_ca_location=str(authority.trusted)), store, until=holds(1))
    assert store.values == [1]
    with pytest.raises(ConnectFailed, match="no certificate that is trusted"):
        await drive(source(url), store, until=holds(2))


def test_settings_that_do_not_fit_are_named() -> None:
    def wrong(**settings: str) -> dict[str, list[str]]:
        given = {"http.url": "http://h/", "topic": "t"}
        return HttpPollingSource.Config.errors_of(given | {k.replace("_", "."): v for k, v in settings.items()})

    assert wrong() == {}
    for url in ("ftp://x/", "http://", "http://h:99999/", "http://h/ x", "http://user:word@h/"):
        assert "http.url" in wrong(http_url=url), url
    assert "cursor.parameter" in wrong(cursor_path="a")
    assert "cursor.path" in wrong(cursor_path="a", cursor_field="b", cursor_parameter="c")
    assert "format" in wrong(format="text", records_path="a")
    assert "http.header.A b" in HttpPollingSource.Config.errors_of(
        {"http.url": "http://h/", "topic": "t", "http.header.A b": "x\r\nInjected: y"}
    )
