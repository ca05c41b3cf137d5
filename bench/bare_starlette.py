"""A Starlette route that returns bytes which it has: what reads of the registry are held against.

`python -m bench.bare_starlette FILE`: the file has a line of JSON for each id, from 1 on. Prints `ready HOST:PORT`.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def main() -> None:
    bodies = Path(sys.argv[1]).read_bytes().splitlines()

    async def show(request: Request) -> Response:
        return Response(bodies[int(request.path_params["id"]) - 1], media_type="application/vnd.schemaregistry.v1+json")

    app = Starlette(routes=[Route("/schemas/ids/{id}", show)])
    config = uvicorn.Config(app, log_config=None, access_log=False)
    server = uvicorn.Server(config)
    listening = socket.create_server(("127.0.0.1", 0))

    async def serve() -> None:
        print(f"ready 127.0.0.1:{listening.getsockname()[1]}", flush=True)
        await server.serve([listening])

    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serve())


if __name__ == "__main__":
    main()
