"""`strandline queue dead redrive`: dead letters back to the topics they came from, or to another. A plan first."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Partitions,
    Timeout,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.common.progress import Progress
from strandline.cli.queue.dead.handling import RatePacing
from strandline.cli.queue.dead.options import By, DeadTopic, FromTopic, Reason, Where, wanted_letters
from strandline.cli.queue.dead.reading import DeadLetterTopic
from strandline.cli.queue.dead.redriving import ROUNDS_DEFAULT, Redrive, RedrivePlan


def redrive(
    topic: DeadTopic,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TOPIC",
            help="Another topic than the one each came from.",
            autocompletion=completion.topic_names,
        ),
    ] = None,
    by: By = None,
    from_topic: FromTopic = None,
    reason: Reason = None,
    where: Where = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="At most so many a second.")
    ] = None,
    rounds: Annotated[
        int,
        typer.Option("--rounds", metavar="N", min=1, help="Leave what was redriven so often already."),
    ] = ROUNDS_DEFAULT,
    limit: Annotated[int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many.")] = None,
    partitions: Partitions = None,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Write dead letters to their topics again, each once, and mark them as handled. Shows the plan, and asks.

    A redrive that is interrupted can be said again: what it has done is marked. Only what was in the topic at the
    beginning is redriven, so that a record which fails again waits for the next redrive.
    """
    is_wanted = wanted_letters(by=by, from_topic=from_topic, reason=reason, where=where)
    if to == topic:
        raise UsageFailed(f"{topic!r} is the dead-letter topic itself")
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    dead = DeadLetterTopic(cluster, admin, topic, partitions)
    work = Redrive(cluster, admin, dead, is_wanted, to=to, rounds=rounds, limit=limit)
    plan = work.plan()
    if dry_run or not plan.total:
        _tell(output, topic, plan, 0, rounds)
        return
    lines = plan.lines(topic, rounds)
    confirm(output, lines, yes=yes, question="Redrive?", undone="nothing was redriven")
    with Progress("redriving", total=plan.total, unit="dead letters") as progress:
        redriven = work.run(RatePacing(rate), progress.reached)
    _tell(output, topic, plan, redriven, rounds, missing=work.missing, is_done=True)


def _tell(
    output: Output,
    topic: str,
    plan: RedrivePlan,
    redriven: int,
    rounds: int,
    *,
    missing: int = 0,
    is_done: bool = False,
) -> None:
    if output.as_json:
        output.json_line(
            {
                "topic": topic,
                "targets": dict(sorted(plan.targets.items())),
                "redriven": redriven,
                "worn": plan.worn,
                "gone": plan.gone + (missing if is_done else 0),
                "handled": plan.handled,
                "done": is_done,
            }
        )
    elif is_done:
        output.line(f"redrove {count(redriven, 'dead letter')} of {topic}")
        if missing:
            output.talk(f"left {missing:,}: their record is gone, or was redriven {rounds} times already")
    else:
        for line in plan.lines(topic, rounds) or [f"no dead letter of {topic} is like that"]:
            output.line(line)
