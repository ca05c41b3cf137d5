"""A worker with its REST API, in threads of this process."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager

import uvicorn

from strandline.connect.herder.administration import Administration
from strandline.connect.herder.worker import ConnectWorker
from strandline.connect.herder.worker_settings import WorkerSettings
from strandline.connect.http.app import ConnectApp, ConnectRightsOf, every_right
from strandline.local.free_ports import free_port


@contextmanager
def running_worker(
    bootstrap: str, settings: Mapping[str, str] | None = None, rights_of: ConnectRightsOf = every_right
) -> Iterator[str]:
    """Run a worker; yield the address of its API."""

    @asynccontextmanager
    async def working(url: str) -> AsyncIterator[ConnectApp]:
        worker = ConnectWorker(bootstrap, WorkerSettings(settings), url, allows_all=True)
        await worker.start()
        try:
            yield ConnectApp(Administration(worker), worker.plugins, rights_of, resolve=worker.secrets.resolve)
        finally:
            await worker.stop()

    with served(working) as url:
        yield url


@contextmanager
def served(make_app: Callable[[str], AbstractAsyncContextManager[ConnectApp]]) -> Iterator[str]:
    """Serve an application in a thread; yield its address when it is healthy."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    failures: list[BaseException] = []
    servers: list[uvicorn.Server] = []

    async def run() -> None:
        async with make_app(url) as app:
            server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, log_level="warning", lifespan="off"))
            servers.append(server)
            await server.serve()
            app.stop()

    def main() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # raised again below
            failures.append(error)

    thread = threading.Thread(target=main)
    thread.start()
    try:
        _wait_until_healthy(port, thread)
        if not failures:
            yield url
    finally:
        for each in servers:
            each.should_exit = True
        thread.join()
        if failures:
            raise failures[0]


def _wait_until_healthy(port: int, thread: threading.Thread) -> None:
    while thread.is_alive():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/health")
            with connection.getresponse() as response:
                if response.status == 200:
                    return
        time.sleep(0.02)
