"""`strandline connect run FILE`: the connectors of a file in this process, until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.failures import CommandFailed, ExitCode, Interrupted, Unreachable
from strandline.cli.common.options import GroundBootstrap
from strandline.cli.common.output import Output
from strandline.cli.connect.connector_files import ConnectorFile, read_connector_file

if TYPE_CHECKING:
    from strandline.connect.herder.administration import Administration
    from strandline.connect.herder.worker import ConnectWorker

LOOK_S = 0.5


def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Connectors: JSON, YAML or properties.")],
    bootstrap: GroundBootstrap = None,
    once: Annotated[
        bool, typer.Option("--once", help="End when sources have ended and sinks have written what is there.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what the worker does.")] = False,
) -> None:
    """Run the connectors of a file in this process, until Ctrl-C.

    How far they are is kept on topics of the cluster, named by the file: the next run goes on there. Without a cluster
    a node of its own runs, with its data in .strandline/node. Secrets may come from any file and variable of the user.
    """
    from strandline.connect.failures import ConnectFailed
    from strandline.pipelines.run.local_node import GroundFailed, find_ground

    found = read_connector_file(file)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s"
    )
    try:
        with find_ground(bootstrap) as ground:
            failed = asyncio.run(_run(ground.wait_ready(), file.stem, found, is_once=once))
    except (GroundFailed, ConnectFailed) as error:
        raise Unreachable(str(error), hint="`strandline doctor` says whether the cluster is well") from None
    except (Interrupted, KeyboardInterrupt):
        return
    if failed:
        raise CommandFailed("; ".join(failed), code=ExitCode.ERROR)


async def _run(bootstrap: str, name: str, file: ConnectorFile, *, is_once: bool) -> list[str]:
    from strandline.connect.herder.administration import Administration
    from strandline.connect.herder.worker import ConnectWorker
    from strandline.connect.herder.worker_settings import WorkerSettings

    # Not `connect-NAME`, because that is the consumer group of a sink of this name.
    group = f"connect-run-{name}"
    settings = {
        "group.id": group,
        "config.storage.topic": f"connect-{name}-configs",
        "offset.storage.topic": f"connect-{name}-offsets",
        "offset.storage.partitions": "1",
        "status.storage.topic": f"connect-{name}-status",
        "status.storage.partitions": "1",
    }
    stopping, excess = asyncio.Event(), list[str]()

    def on_full(sentence: str) -> None:
        excess.append(sentence)
        stopping.set()

    worker = ConnectWorker(
        bootstrap, WorkerSettings(settings | file.worker), f"http://{group}", allows_all=True, on_full=on_full
    )
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stopping.set)
    try:
        await worker.start()
        await _lead(worker, stopping)
        herder = Administration(worker)
        await _apply(herder, file)
        failed = await _watch(worker, herder, stopping, is_once=is_once)
    finally:
        await worker.stop()
    return [*failed, *excess]


async def _lead(worker: ConnectWorker, stopping: asyncio.Event) -> None:
    """Wait until this worker leads its group; another one of the same file would."""
    while not worker.is_leader and not stopping.is_set():
        if worker.generation is not None and worker.assignment.leader_url:
            raise CommandFailed(f"the group {worker.settings.group_id} has another worker: is the file run twice?")
        await _pause(stopping, 0.02)


async def _apply(herder: Administration, file: ConnectorFile) -> None:
    """Bring the connectors to what the file says; those that it does not name any more are deleted."""
    from strandline.connect.herder.interface import RequestFailed

    for name in set(herder.connectors()) - set(file.connectors):
        await herder.delete(name)
    for name, config in file.connectors.items():
        try:
            if name not in herder.connectors() or herder.info(name).config != config:
                await herder.put_config(name, config)
            await herder.restart(name, include_tasks=True, only_failed=True)
        except RequestFailed as error:
            if error.status != 404:
                raise CommandFailed(f"{name}: {error}") from None


async def _watch(worker: ConnectWorker, herder: Administration, stopping: asyncio.Event, *, is_once: bool) -> list[str]:
    """Show how connectors are until they end; return what failed."""
    from strandline.connect.herder.interface import RequestFailed
    from strandline.runtime.live_lines import LiveLines

    output = Output()
    lines: list[str] = []
    told: dict[str, str] = {}
    live = LiveLines(sys.stderr, lambda: lines)
    done_looks = 0
    try:
        while True:
            await _pause(stopping, LOOK_S)
            failed = []
            ended = []
            shown = []
            for name in herder.connectors():
                try:
                    status = herder.status(name)
                except RequestFailed:
                    # Its state is not written yet.
                    ended.append(False)
                    continue
                units = [status.connector, *status.tasks.values()]
                reasons = [each.trace for each in units if each.trace]
                state = next((each.state for each in units if each.state == "FAILED"), status.connector.state)
                counts = worker.counts(name)
                shown.append(f"{name}: {state}, {counts.records:,} records{_behind(counts.lag)}")
                sentence = reasons[0].splitlines()[0] if reasons else state
                if told.get(name) != sentence:
                    told[name] = sentence
                    live.say(f"{name}: {sentence}")
                if state == "FAILED":
                    failed.append(f"{name}: {sentence}")
                ended.append(state == "FAILED" or counts.is_done)
            lines[:] = shown
            # A sink may have seen nothing of what a source has just committed: it is asked twice.
            done_looks = done_looks + 1 if ended and all(ended) else 0
            if stopping.is_set() or (is_once and done_looks > 1) or (failed and len(failed) == len(ended)):
                for each in shown:
                    output.talk(each)
                return failed
    finally:
        live.close()


def _behind(lag: int | None) -> str:
    return "" if lag is None else f", {lag:,} behind"


async def _pause(stopping: asyncio.Event, pause_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), pause_s)
