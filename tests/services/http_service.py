"""A small HTTP service behind the guard, in a thread of the test, and a client that sends what it is given."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from strandline.security.acl.kinds import Operation, ResourceType
from strandline.services.http.caller import CALLER
from strandline.services.http.declared_rights import every_caller, needs, public
from strandline.services.http.door import HttpDoor
from strandline.services.http.door_settings import DoorSettings

TIMEOUT_S = 60
LARGE_BYTES, PART_BYTES = 64 << 20, 64 << 10


@needs(Operation.READ, ResourceType.TOPIC, path="topic")
async def show_topic(request: Request) -> Response:
    return JSONResponse({"topic": request.path_params["topic"], "caller": str(request.scope[CALLER].principal)})


@needs(Operation.WRITE, ResourceType.TOPIC, path="topic")
async def change_topic(request: Request) -> Response:
    return JSONResponse({"bytes": len(await request.body())})


@needs(Operation.ALTER, ResourceType.CLUSTER)
async def change_cluster(request: Request) -> Response:
    return JSONResponse({})


@every_caller
async def list_topics(request: Request) -> Response:
    caller = request.scope[CALLER]
    names = ("orders", "salaries")
    return JSONResponse([name for name in names if await caller.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)])


@public
async def health(request: Request) -> Response:
    return JSONResponse({"is": "up"})


@public
async def large(request: Request) -> Response:
    """Answer with more than sockets hold, at once or in parts."""
    if request.path_params["how"] == "whole":
        return Response(bytes(LARGE_BYTES))

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(LARGE_BYTES // PART_BYTES):
            yield bytes(PART_BYTES)

    return StreamingResponse(parts())


async def undeclared(request: Request) -> Response:
    return JSONResponse({"must not": "be seen"})


class Service:
    """The door, and what the test holds up its routes with."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.slow_began = threading.Event()
        self.slow_may_end = threading.Event()
        routes = [
            Route("/topics/{topic}", show_topic),
            Route("/topics/{topic}", change_topic, methods=["PUT"]),
            Route("/topics", list_topics),
            Route("/cluster", change_cluster, methods=["POST"]),
            Route("/health", health),
            Route("/large/{how}", large),
            Route("/undeclared", undeclared, methods=["GET", "POST"]),
            Mount("/inner", routes=[Route("/undeclared", undeclared), Route("/topics", list_topics)]),
            Mount("/app", app=undeclared),
            Route("/slow", self._slow_route()),
        ]
        self.door = HttpDoor(DoorSettings.of(dict(properties)), routes)

    def _slow_route(self) -> Any:
        async def slow(request: Request) -> Response:
            self.slow_began.set()
            await asyncio.get_running_loop().run_in_executor(None, self.slow_may_end.wait, TIMEOUT_S)
            return JSONResponse({"ended": "well"})

        return public(slow)


@contextmanager
def running(properties: Mapping[str, str]) -> Iterator[Service]:
    """Run the service in a thread until the block ends."""
    service = Service({"listeners": "http://127.0.0.1:0"} | dict(properties))
    failures: list[BaseException] = []

    def serve() -> None:
        try:
            asyncio.run(service.door.serve())
        except BaseException as error:  # the test is told of whatever it was
            failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        wait_for(lambda: service.door.is_ready or failures)
        if failures:
            raise failures[0]
        yield service
    finally:
        service.slow_may_end.set()
        service.door.stop()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


class Answer(NamedTuple):
    status: int
    body: Any
    headers: dict[str, str]


def ask(
    service: Service,
    method: str,
    path: str,
    *,
    user: str = "",
    password: str = "",
    body: bytes | None = None,
    context: ssl.SSLContext | None = None,
    **headers: str,
) -> Answer:
    """Send a request of its own connection. Underscores in names of headers stand for dashes."""
    port = service.door.port
    connection: http.client.HTTPConnection
    if service.door.settings.has_tls:
        connection = http.client.HTTPSConnection("localhost", port, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if user:
        given["Authorization"] = basic(user, password)
    try:
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        content = answer.read()
        return Answer(answer.status, json.loads(content), {name.lower(): text for name, text in answer.getheaders()})
    finally:
        connection.close()


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
