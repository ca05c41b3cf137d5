"""WebhookSource with real requests: answered after the commit, written once, refused with reasons."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import http.client
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.authority import Authority
from tests.connect.driving import Store, batches_of, commit, eventually, opened

from strandline.connect.failures import InvalidConnectorConfig, RetriableFailure
from strandline.connect.records import Batch
from strandline.connect.sources.webhook import WebhookSource


def source(**settings: str) -> WebhookSource:
    """Return a source at a free port; `_` in a setting's name stands for a dot."""
    given = {"listen": "127.0.0.1:0", "topic": "hooks", "path": "/hook"}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    assert WebhookSource.Config.errors_of(given) == {}
    return WebhookSource(WebhookSource.Config(given))


def post(port: int, body: bytes, *, path: str = "/hook", method: str = "POST", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): each for name, each in headers.items()}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, answer.read().decode().strip()
    finally:
        connection.close()


def send(port: int, body: bytes, **arguments: Any) -> asyncio.Task[tuple[int, str]]:
    """Send a request from a thread."""
    return asyncio.create_task(asyncio.to_thread(post, port, body, **arguments))


async def serve(source: WebhookSource, store: Store) -> None:
    """Commit whatever comes, until the task is cancelled."""
    async for batch in batches_of(source, store):
        await commit(source, store, batch)


async def test_an_answer_comes_after_the_commit() -> None:
    store = Store()
    async with opened(source(key_path="user.id", headers_include="X-Event")) as hook:
        assert isinstance(hook, WebhookSource)
        batches = batches_of(hook, store)
        reading = asyncio.ensure_future(anext(batches))
        answer = send(hook.port, b'{"user": {"id": "u1"}, "n": 1}', X_Event="push", Idempotency_Key="k1")
        batch: Batch = await reading
        _, pending = await asyncio.wait([answer], timeout=0.05)
        assert pending, "answered before the transaction"
        await commit(hook, store, batch)
        assert (await answer)[0] == 200
        await batches.aclose()
    (record,) = store.records
    assert (record.value, record.key) == ({"user": {"id": "u1"}, "n": 1}, "u1")
    assert [(each.name, each.value) for each in record.headers] == [("Idempotency-Key", "k1"), ("X-Event", "push")]


async def test_many_records_of_one_request_are_one_batch_and_forms_follow_the_content_type() -> None:
    store = Store()
    async with opened(source(batch_max_records="2")) as hook:
        assert isinstance(hook, WebhookSource)
        serving = asyncio.create_task(serve(hook, store))
        posts = [
            (b'[{"a": 1}, {"a": 2}, {"a": 3}]', "application/json"),
            (b'{"a": 4}\n\n{"a": 5}\n', "application/x-ndjson"),
            ("Zoë".encode(), "text/plain"),
            (b"\x00\xff", "application/octet-stream"),
        ]
        for body, kind in posts:
            assert await send(hook.port, body, Content_Type=kind) == (200, "")
        assert await send(hook.port, gzip.compress(b"6"), Content_Encoding="gzip") == (200, "")
        assert await send(hook.port, b"[]") == (200, "")
        serving.cancel()
    assert store.values == [*({"a": n} for n in range(1, 6)), "Zoë", b"\x00\xff", 6]


async def test_a_request_that_is_sent_again_is_written_once_also_after_a_restart() -> None:
    store = Store()
    async with opened(source()) as hook:
        assert isinstance(hook, WebhookSource)
        batches = batches_of(hook, store)
        reading = asyncio.ensure_future(anext(batches))
        first = send(hook.port, b"1", Idempotency_Key="a")
        batch = await reading
        # The second try comes while the first one is not committed: it waits for the same transaction.
        reading = asyncio.ensure_future(anext(batches))
        second = send(hook.port, b"1", Idempotency_Key="a")
        _, pending = await asyncio.wait([second], timeout=0.05)
        assert pending
        await commit(hook, store, batch)
        assert [(await first)[0], (await second)[0]] == [200, 200]
        assert (await send(hook.port, b"1", Idempotency_Key="a"))[0] == 200
        # The records are committed, but the task dies before it has answered.
        lost = send(hook.port, b"2", Idempotency_Key="b")
        store.commit(await reading)
    assert (await lost)[0] == 503
    async with opened(source()) as hook:
        assert isinstance(hook, WebhookSource)
        serving = asyncio.create_task(serve(hook, store))
        for id, body in (("b", b"2"), ("a", b"1"), ("c", b"3")):
            assert (await send(hook.port, body, Idempotency_Key=id))[0] == 200
        serving.cancel()
    assert store.values == [1, 2, 3]


async def test_a_request_that_was_not_committed_is_written_when_it_is_sent_again() -> None:
    store = Store()
    async with opened(source()) as hook:
        assert isinstance(hook, WebhookSource)
        batches = batches_of(hook, store)
        reading = asyncio.ensure_future(anext(batches))
        first = send(hook.port, b"1", Idempotency_Key="a")
        await reading
        await batches.aclose()
    assert (await first)[0] == 503
    async with opened(source()) as hook:
        assert isinstance(hook, WebhookSource)
        serving = asyncio.create_task(serve(hook, store))
        assert (await send(hook.port, b"1", Idempotency_Key="a"))[0] == 200
        serving.cancel()
    assert store.values == [1]


async def test_the_window_of_ids_is_bounded_and_keeps_the_latest() -> None:
    store = Store()
    for start in (0, 30):
        async with opened(source(id_window="15")) as hook:
            assert isinstance(hook, WebhookSource)
            serving = asyncio.create_task(serve(hook, store))
            for number in range(start, start + 30):
                await send(hook.port, str(number).encode(), Idempotency_Key=str(number))
            for number in range(start + 15, start + 30):
                await send(hook.port, b"-1", Idempotency_Key=str(number))
            serving.cancel()
    assert store.values == list(range(60))
    assert sum(len(offset["ids"]) for _, offset in store.all()) <= 16
    async with opened(source(id_window="15")) as hook:
        assert isinstance(hook, WebhookSource)
        serving = asyncio.create_task(serve(hook, store))
        await send(hook.port, b"-1", Idempotency_Key="0")
        serving.cancel()
    assert store.values[-1] == -1


async def test_signatures_and_tokens_are_checked() -> None:
    body = b'{"zen": "x"}'
    signature = "sha256=" + hmac.new(b"key", body, hashlib.sha256).hexdigest()
    store = Store()
    async with opened(source(webhook_secret="key", bearer_token="word")) as hook:
        assert isinstance(hook, WebhookSource)
        serving = asyncio.create_task(serve(hook, store))
        right = {"X_Hub_Signature_256": signature, "Authorization": "Bearer word"}
        assert (await send(hook.port, body, **right))[0] == 200
        assert (await send(hook.port, body + b" ", **right))[0] == 401
        assert (await send(hook.port, body, Authorization="Bearer word"))[0] == 401
        assert (await send(hook.port, body, **right | {"Authorization": "Bearer wörd"}))[0] == 401
        assert (await send(hook.port, body, X_Hub_Signature_256=signature))[0] == 401
        serving.cancel()
    assert len(store.records) == 1


async def test_what_is_wrong_is_refused_without_a_record() -> None:
    async with opened(source(body_max_bytes="1000")) as hook:
        assert isinstance(hook, WebhookSource)
        port = hook.port
        assert (await send(port, b"{}", path="/other"))[0] == 404
        assert (await send(port, b"", method="GET"))[0] == 405
        assert (await send(port, b"", method="HEAD"))[0] == 405
        assert (await send(port, b"{]"))[0] == 400
        assert (await send(port, b"NaN"))[0] == 400
        assert (await send(port, b"[" * 900))[0] in (400, 503)
        assert (await send(port, b"x" * 1001)) == (413, "the body has more than 1000 bytes")
        assert (await send(port, b"x" * 3_000_000))[0] == 413
        assert (await send(port, gzip.compress(b" " * 100_000), Content_Encoding="gzip"))[0] == 413
        assert (await send(port, gzip.compress(b"{}")[:-4], Content_Encoding="gzip"))[0] == 400
        assert (await send(port, b"{}", Content_Encoding="br"))[0] == 400
        assert (await send(port, b"{}", Origin="https://page.example"))[0] == 403
        assert (await send(port, b"{}", X_Long="x" * 100_000))[0] in (400, 431)


async def test_a_full_queue_is_answered_503_and_withdrawn_requests_are_not_written() -> None:
    store = Store()
    async with opened(source(requests_max="2", answer_timeout_ms="150")) as hook:
        assert isinstance(hook, WebhookSource)
        answers = [await each for each in [send(hook.port, b"1") for _ in range(3)]]
        assert sorted(answers) == [
            (503, "the records are not committed yet"),
            (503, "the records are not committed yet"),
            (503, "too many requests wait to be written"),
        ]
        serving = asyncio.create_task(serve(hook, store))
        assert (await send(hook.port, b"2"))[0] == 200
        serving.cancel()
    assert store.values == [2]


async def test_memory_and_connections_have_bounds() -> None:
    async with opened(source(queue_max_bytes="1000", connections_max="2", request_timeout_ms="200")) as hook:
        assert isinstance(hook, WebhookSource)
        assert (await send(hook.port, b'"' + b"x" * 2000 + b'"')) == (503, "too many bytes wait to be written")
        # Two connections that send nothing whole; the third is closed, and then they are.
        slow = [socket.create_connection(("127.0.0.1", hook.port), timeout=60) for _ in range(2)]
        for each in slow:
            each.sendall(b"POST /hook HTTP/1.1\r\nHost: x\r\n")
        await eventually(lambda: len(hook._receiver._tasks) == 2)
        with socket.create_connection(("127.0.0.1", hook.port), timeout=60) as third:
            assert await asyncio.to_thread(third.recv, 10) == b""
        for each in slow:
            assert await asyncio.to_thread(each.recv, 10) == b""
            each.close()


async def test_a_connection_carries_several_requests_and_broken_ones_end_it() -> None:
    store = Store()
    async with opened(source()) as hook:
        assert isinstance(hook, WebhookSource)
        serving = asyncio.create_task(serve(hook, store))

        def talk() -> tuple[list[int], bytes]:
            connection = http.client.HTTPConnection("127.0.0.1", hook.port, timeout=60)
            statuses = []
            for number in range(3):
                chunks = iter([b"[", str(number).encode(), b"]"])
                connection.request("POST", "/hook", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
                answer = connection.getresponse()
                answer.read()
                statuses.append(answer.status)
            connection.close()
            with socket.create_connection(("127.0.0.1", hook.port), timeout=60) as raw:
                raw.sendall(
                    b"POST /hook HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                raw.sendall(b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
                return statuses, raw.makefile("rb").read()

        statuses, broken = await asyncio.to_thread(talk)
        serving.cancel()
    assert statuses == [200, 200, 200]
    assert store.values == [0, 1, 2]
    assert broken.count(b"HTTP/1.1 ") == 1


async def test_an_address_that_is_taken_is_tried_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(RetriableFailure, match=r"listen=127\.0\.0\.1"):
        async with opened(source(listen=f"127.0.0.1:{taken.getsockname()[1]}")):
            pass


async def test_https_and_a_client_that_waits_for_100_continue(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("hook")
    store = Store()
    async with opened(source(ssl_certificate_location=str(certificate))) as hook:
        assert isinstance(hook, WebhookSource)
        serving = asyncio.create_task(serve(hook, store))

        def talk() -> bytes:
            context = ssl.create_default_context(cafile=str(authority.trusted))
            with (
                socket.create_connection(("127.0.0.1", hook.port), timeout=60) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as wire,
            ):
                wire.sendall(b"POST /hook HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n")
                wire.sendall(b"Content-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n")
                interim = wire.recv(100)
                wire.sendall(b"hello")
                return interim + wire.makefile("rb").read()

        answer = await asyncio.to_thread(talk)
        serving.cancel()
    assert answer.startswith(b"HTTP/1.1 100 ")
    assert b"HTTP/1.1 200 " in answer
    assert store.values == ["hello"]
    with pytest.raises(InvalidConnectorConfig, match=r"ssl\.certificate\.location"):
        async with opened(source(ssl_certificate_location=str(tmp_path / "missing.pem"))):
            pass


def test_settings_that_do_not_fit_are_named() -> None:
    def wrong(**settings: str) -> dict[str, list[str]]:
        return WebhookSource.Config.errors_of({"topic": "t"} | {k.replace("_", "."): v for k, v in settings.items()})

    assert wrong() == {}
    assert "reached by other machines" in wrong(listen="0.0.0.0:80")["listen"][0]
    assert wrong(listen="0.0.0.0:80", webhook_secret="x") == {}
    assert wrong(listen="[::1]:80") == {}
    assert "listen" in wrong(listen="nowhere")
    assert "path" in wrong(path="hook")
    assert json.dumps(wrong(body_format="xml")).count("String must be one of") == 1
