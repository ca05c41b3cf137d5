"""obstore alone: objects of one size to a store or back, a few requests at a time, as fast as they go.

The task has `url` and `options` of the store, `action` (`put` or `get`), `objects` (key and size of each),
`requests_in_flight` and for `get` the `block_bytes` of one request. An object is uploaded by one request.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import obstore
from obstore.store import from_url

from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile


def main() -> None:
    options = task()
    store = from_url(options["url"], config=options["options"], client_options={"allow_http": True})
    requests = _requests(store, options)
    wait_for_sign()
    start = time.perf_counter()
    latencies = asyncio.run(_drive(requests, options["requests_in_flight"]))
    seconds = time.perf_counter() - start
    finish(
        seconds=seconds,
        bytes=sum(size for _, size in options["objects"]),
        requests=len(latencies),
        p50_ms=percentile(latencies, 50) * 1e3,
    )


def _requests(store: Any, options: dict[str, Any]) -> list[Callable[[], Awaitable[Any]]]:
    if options["action"] == "put":
        body = random.Random(1).randbytes(max(size for _, size in options["objects"]))
        return [
            lambda key=key, size=size: obstore.put_async(store, key, body[:size], use_multipart=False)
            for key, size in options["objects"]
        ]
    block_bytes = options["block_bytes"]
    blocks = [
        (key, at, min(at + block_bytes, size)) for key, size in options["objects"] for at in range(0, size, block_bytes)
    ]
    return [lambda each=each: obstore.get_range_async(store, each[0], start=each[1], end=each[2]) for each in blocks]


async def _drive(requests: list[Callable[[], Awaitable[Any]]], in_flight: int) -> list[float]:
    left = iter(requests)
    latencies: list[float] = []

    async def one_by_one() -> None:
        for request in left:
            start = time.perf_counter()
            await request()
            latencies.append(time.perf_counter() - start)

    await asyncio.gather(*[one_by_one() for _ in range(in_flight)])
    return latencies


if __name__ == "__main__":
    main()
