"""A node with an authorizer, in a process of its own that ends with its standard input.

No setting can ask for an authorizer before requests are checked, so tests give it to the node's configuration.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline.broker.main import node_on, stop
from strandline.config.authorizer_settings import STANDARD_AUTHORIZER
from strandline.config.node_config import BrokerConfig

STOP_S_MAX = 60.0


@contextmanager
def authorized_node(data: Path, *, super_users: str = "", allows_everyone: bool = False) -> Iterator[str]:
    """Run the node; its bootstrap address."""
    given = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "0",
        "super.users": super_users,
        "allow.everyone.if.no.acl.found": str(allows_everyone).lower(),
    }
    command = [sys.executable, "-m", "tests.scenarios.authorized_node", str(data), json.dumps(given)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().split()
        assert ready[:1] == ["ready"], "the node did not start: its standard error says why"
        yield ready[1]
    finally:
        process.communicate(timeout=STOP_S_MAX)


async def _serve(data: Path, given: dict[str, str]) -> None:
    config = BrokerConfig.load("", given)
    config = dataclasses.replace(
        config,
        authorizer_class_name=STANDARD_AUTHORIZER,
        given={**config.given, "authorizer.class.name": STANDARD_AUTHORIZER},
    )
    loop = asyncio.get_running_loop()
    node = node_on(loop, data, config)
    host, port = node.start()
    print(f"ready {host}:{port}", flush=True)
    is_over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), is_over.set)
    await is_over.wait()
    loop.remove_reader(sys.stdin.fileno())
    await stop(node)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), json.loads(sys.argv[2])))
