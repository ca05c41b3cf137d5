"""Long work of brokers on their files, asked for and waited for: each broker in a thread, and progress meanwhile.

The brokers do the work, and go on with it if the command is interrupted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Annotated, Any, TypeVar

import typer

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation
from strandline.cli.common.failures import CommandFailed, Unreachable
from strandline.cli.common.partition_places import brokers_of
from strandline.cli.common.progress import Progress
from strandline.cli.topic.storage_reading import why_unreachable
from strandline.codec.message import Message

WAIT_S_DEFAULT = 3600.0
_LOOK_EVERY_S = 0.5

Wait = Annotated[
    float,
    typer.Option(
        "--wait",
        metavar="SECONDS",
        min=0.1,
        help="How long to wait for the end. The brokers go on with it all the same.",
    ),
]

ResponseT = TypeVar("ResponseT", bound=Message)
Wanted = dict[int, dict[str, list[int]]]
"""Partitions by topic, by broker."""


def replicas_of(topic: Any, partitions: list[int]) -> Wanted:
    """Every replica of some partitions of a topic, by the broker that has it: each works on its own files."""
    wanted: Wanted = {}
    for partition in topic.partitions:
        if partition.id in partitions:
            for replica in partition.replicas:
                wanted.setdefault(replica.id, {}).setdefault(topic.name, []).append(partition.id)
    return dict(sorted(wanted.items()))


def have_done(
    cluster: Cluster,
    wanted: Wanted,
    request_of: Callable[[dict[str, list[int]]], Message],
    response_class: type[ResponseT],
    *,
    doing: str,
    wait_s: float,
    look: Callable[[], tuple[int, int]],
) -> dict[int, ResponseT | CommandFailed | None]:
    """By broker: its answer, the failure in its place, or None if it does not offer the request.

    `look` says how many bytes are done, and of how many; it is called now and then if standard error is a terminal.
    """
    addresses = {broker.id: (broker.host, broker.port) for broker in brokers_of(cluster)}
    answers: dict[int, ResponseT | CommandFailed | None] = {}
    arrived: SimpleQueue[tuple[int, ResponseT | CommandFailed | None]] = SimpleQueue()

    def ask(broker_id: int, topics: dict[str, list[int]]) -> None:
        try:
            with Conversation(*addresses[broker_id], wait_s, cluster.security) as conversation:
                arrived.put((broker_id, conversation.ask(request_of(topics), response_class)))
        except CommandFailed as failure:
            arrived.put((broker_id, _of_broker(failure, broker_id, wait_s)))
        except Exception as error:
            # Passed on to the caller, which waits for this thread.
            arrived.put((broker_id, CommandFailed(f"broker {broker_id} could not be asked: {error!r}")))

    for broker_id, topics in wanted.items():
        if broker_id in addresses:
            # Daemons: Ctrl-C ends the command, not the work.
            threading.Thread(target=ask, args=(broker_id, topics), daemon=True).start()
        else:
            answers[broker_id] = Unreachable(f"broker {broker_id} is down", hint="start it, then say it again")
    is_watched = sys.stderr.isatty()
    with Progress(doing, total=None, unit="", wanted=is_watched) as progress:
        while len(answers) < len(wanted):
            try:
                broker_id, answer = arrived.get(timeout=_LOOK_EVERY_S)
                answers[broker_id] = answer
            except Empty:
                if is_watched:
                    done, total = look()
                    progress.reached(done, f"{done / total:.0%}" if total else "...")
    return dict(sorted(answers.items()))


def _of_broker(failure: CommandFailed, broker_id: int, wait_s: float) -> CommandFailed:
    """Return what one of several brokers did not do, by its number."""
    if "timed out" in failure.message:
        return Unreachable(
            f"broker {broker_id} was not done after {wait_s:g} s, and goes on",
            hint="`strandline topic describe NAME --storage` shows how far it is; --wait waits for longer",
        )
    if isinstance(failure, Unreachable):
        return Unreachable(
            f"broker {broker_id} was not asked: {why_unreachable(failure)}", hint="start it, then say it again"
        )
    return failure


def tell_failures(failures: list[CommandFailed]) -> None:
    """All that went wrong in one failure; nothing if nothing did."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        messages = dict.fromkeys(failure.message for failure in failures)
        raise CommandFailed("; ".join(messages), hint=failures[0].hint, code=failures[0].code)
