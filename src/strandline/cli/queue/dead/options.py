"""Options that the verbs of `queue dead` share: which dead letters are meant."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from strandline.cli.common import completion
from strandline.cli.common.failures import UsageFailed
from strandline.cli.queue.dead.letters import LetterFilter, letter_filter
from strandline.cli.records.filters import compile_filters

DeadTopic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The dead-letter topic.", autocompletion=completion.topic_names)
]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Only those that this share group or connector gave up.")
]
FromTopic = Annotated[str | None, typer.Option("--from-topic", metavar="TOPIC", help="Only records of this topic.")]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Only those whose reason contains this, in any case.")
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        "-w",
        metavar="CONDITION",
        help="Only dead letters like this, as for `consume`: key=o-1, 'value.amount>100', 'timestamp>=2h-ago', "
        "'headers[\"__dlq.errors.delivery.count\"]>=3'. May be repeated; all must hold.",
    ),
]


def wanted_letters(
    *, by: str | None, from_topic: str | None, reason: str | None, where: list[str] | None
) -> LetterFilter:
    """Return a function that says whether a dead letter is meant; UsageFailed for a condition that is none."""
    try:
        condition = compile_filters(where, now_ms=time.time_ns() // 1_000_000) if where else None
    except ValueError as error:
        raise UsageFailed(f"--where: {error}") from None
    return letter_filter(by=by, topic=from_topic, reason=reason, where=condition)
