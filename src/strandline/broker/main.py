"""The process: arguments and properties in, one `ready HOST:PORT` line out, status 0 on SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.config.listeners import PORT_MAX
from strandline.config.node_config import BrokerConfig
from strandline.errors import InvalidConfig, StrandlineError
from strandline.observability import log_lines
from strandline.runtime.runtime import LoopRuntime

if TYPE_CHECKING:
    from strandline.broker.network.transport import Network
    from strandline.broker.node import Node
    from strandline.log.disk import Disk

log = logging.getLogger("strandline.node")

METADATA_LOG = "__cluster_metadata-0"
LOAD_ENDPOINT_S = 0.5
"""After the node is ready, when it has loaded what its first requests need."""
USAGE = "usage: python -m strandline.broker --data DIR [--listen HOST:PORT] [--config FILE] [-X key=value]..."

RuntimeOf = Callable[[asyncio.AbstractEventLoop], LoopRuntime]
NetworkOf = Callable[[LoopRuntime, BrokerConfig], "Network"]


def serve(
    data: Path | None,
    listen: str | None,
    config: Path | None,
    overrides: Mapping[str, str],
    *,
    runtime_of: RuntimeOf = LoopRuntime,
    network_of: NetworkOf | None = None,
) -> int:
    """Run a node until SIGTERM or SIGINT; return the exit status.

    `runtime_of` gives it another clock than the machine's, `network_of` another network than plain sockets.
    """
    log_lines.set_up()
    try:
        settings = _settings(data, listen, config, overrides)
        log_lines.set_up(form=settings.log_format, level=settings.log_level)
        for warning in settings.warnings:
            log.warning("%s", warning)
        return _run(_serve(Path(settings.log_dirs[0]), settings, runtime_of, network_of))
    except StrandlineError as error:
        print(f"strandline: {error}", file=sys.stderr)
    except (FileExistsError, NotADirectoryError) as error:
        print(f"strandline: {error.filename} is a file; --data (log.dirs) names a directory", file=sys.stderr)
    except OSError as error:
        print(f"strandline: {error.filename or error}: {(error.strerror or '').lower()}", file=sys.stderr)
    return 1


def _settings(data: Path | None, listen: str | None, config: Path | None, overrides: Mapping[str, str]) -> BrokerConfig:
    given = dict(overrides)
    if data is not None:
        given["log.dirs"] = str(data)
    if listen is not None:
        port = listen.rpartition(":")[2]
        if port == listen or not port.isdecimal() or int(port) > PORT_MAX:
            raise InvalidConfig(f"--listen {listen}: expected HOST:PORT with a port up to {PORT_MAX}")
        given["listeners"] = f"PLAINTEXT://{listen}"
    content = config.read_text() if config is not None else ""
    return BrokerConfig.load(content, given, os.environ, file_name=str(config or "server.properties"))


def _run(main: Coroutine[Any, Any, int]) -> int:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def spare_the_collector() -> None:
    """Keep the collector from walking what exists now again and again: nearly all of it lives as long as the node.

    Garbage is collected first, because what is frozen is never collected. So each call walks what came since the last.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


async def _serve(data: Path, config: BrokerConfig, runtime_of: RuntimeOf, network_of: NetworkOf | None) -> int:
    from strandline.broker.metrics.endpoint import Endpoint, take_address

    _check_exposure(data, config)
    _raise_descriptor_limit()
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopping.set)
    listening = take_address(config)
    endpoint = Endpoint(config)
    if listening is not None:
        await endpoint.start(listening)
    node = endpoint.node = node_on(
        loop, data, config, takes_telemetry=listening is not None, runtime_of=runtime_of, network_of=network_of
    )
    node.on_failed = stopping.set
    ready = asyncio.Event()
    node.on_ready = ready.set
    host, port = node.start()
    await _either(ready, stopping)
    spare_the_collector()
    node.replicas.on_many_opened = spare_the_collector
    if ready.is_set():
        print(f"ready {_address(host, port)}", flush=True)
    if listening is not None:
        loop.call_later(LOAD_ENDPOINT_S, endpoint.load, loop)
    await stopping.wait()
    await stop(node)
    await endpoint.close()
    return 1 if node.has_failed else 0


def _check_exposure(data: Path, config: BrokerConfig) -> None:
    """Refuse to start a new node that serves other machines without authentication; warn of one that has run before."""
    exposed = config.exposed_listeners()
    if exposed and not config.listener_unauthenticated_allow and not (data / METADATA_LOG).exists():
        raise InvalidConfig(
            f"{exposed[0]}; expected a loopback address, SASL, SSL with ssl.client.auth=required, or "
            "listener.unauthenticated.allow=true"
        )
    for sentence in exposed:
        log.warning("%s: they can read and change everything", sentence)


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def node_on(
    loop: asyncio.AbstractEventLoop,
    data: Path,
    config: BrokerConfig,
    *,
    takes_telemetry: bool = True,
    runtime_of: RuntimeOf = LoopRuntime,
    network_of: NetworkOf | None = None,
    disk: Disk | None = None,
) -> Node:
    """A node on this machine: its clock, its threads, its sockets and its disk."""
    from strandline.broker.network.network import SocketNetwork
    from strandline.broker.node import Node

    runtime = runtime_of(loop)
    network = (network_of or SocketNetwork.of)(runtime, config)
    return Node(data, config, runtime, network, disk=disk, takes_telemetry=takes_telemetry)


async def stop(node: Node) -> None:
    """Stop a node of `node_on`, and end its threads."""
    from strandline.broker.shutdown import FLUSHES_AT_SHUTDOWN_MAX

    stopped = asyncio.Event()
    assert isinstance(node.runtime, LoopRuntime)
    node.runtime.allow_threads(FLUSHES_AT_SHUTDOWN_MAX)
    node.stop(stopped.set)
    await stopped.wait()
    node.runtime.close()


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _raise_descriptor_limit() -> None:
    """Use as many descriptors as we are allowed: connections and segments need one each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main(arguments: Sequence[str], *, runtime_of: RuntimeOf = LoopRuntime, network_of: NetworkOf | None = None) -> int:
    """The plain command line, without typer: what `embedded()` and scripts start."""
    options: dict[str, str] = {}
    overrides: dict[str, str] = {}
    remaining = iter(arguments)
    for name in remaining:
        value = next(remaining, None)
        if name not in ("--data", "--listen", "--config", "-X") or value is None:
            print(USAGE, file=sys.stderr)
            return 2
        if name == "-X":
            key, _, setting = value.partition("=")
            overrides[key] = setting
        else:
            options[name] = value
    return serve(
        Path(options["--data"]) if "--data" in options else None,
        options.get("--listen"),
        Path(options["--config"]) if "--config" in options else None,
        overrides,
        runtime_of=runtime_of,
        network_of=network_of,
    )
