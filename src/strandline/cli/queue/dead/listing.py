"""`strandline queue dead list`: the dead letters of a topic: where each came from, who gave it up, and why."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    Partitions,
    Timeout,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.queue.dead.letters import DeadLetter, letter_object
from strandline.cli.queue.dead.options import By, DeadTopic, FromTopic, Reason, Where, wanted_letters
from strandline.cli.queue.dead.reading import DeadLetterTopic
from strandline.lag.verdict import span

LISTED_DEFAULT = 100
_KEY_CHARACTERS = 24


def list_dead(
    topic: DeadTopic,
    by: By = None,
    from_topic: FromTopic = None,
    reason: Reason = None,
    where: Where = None,
    handled: Annotated[bool, typer.Option("--handled", help="Also those that were redriven or purged.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many.")] = LISTED_DEFAULT,
    partitions: Partitions = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List dead letters, of share groups, pipelines and connectors alike. Those that were handled are left out."""
    is_wanted = wanted_letters(by=by, from_topic=from_topic, reason=reason, where=where)
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    dead = DeadLetterTopic(cluster, cluster.admin(), topic, partitions)
    dead.read_marks()
    found: list[DeadLetter] = []
    matched = left_out = 0

    def take(letter: DeadLetter) -> bool:
        nonlocal matched, left_out
        if not is_wanted(letter):
            return True
        if not handled and dead.is_handled(letter):
            left_out += 1
            return True
        matched += 1
        if len(found) < limit:
            found.append(letter)
        return True

    dead.read(take)
    if as_json:
        for letter in found:
            output.json_line(letter_object(letter, is_handled=dead.is_handled(letter)))
        return
    if found:
        rows = [_row(letter, dead) for letter in found]
        output.table(["at", "from", "by", "times", "age", "key", "why"], rows)
    _talk(output, dead, matched, len(found), left_out)


def _row(letter: DeadLetter, dead: DeadLetterTopic) -> list[str]:
    record = letter.record
    age_s = max(0.0, time.time() - record.timestamp_ms / 1000)
    key = "-" if record.key is None else record.key.decode(errors="replace")
    why = letter.reason or "-"
    if dead.is_handled(letter):
        why += " (handled)"
    return [
        letter.place,
        letter.source,
        letter.by or letter.kind,
        "-" if letter.deliveries is None else str(letter.deliveries),
        span(age_s),
        key if len(key) <= _KEY_CHARACTERS else key[: _KEY_CHARACTERS - 3] + "...",
        why,
    ]


def _talk(output: Output, dead: DeadLetterTopic, matched: int, shown: int, left_out: int) -> None:
    words = count(matched, "dead letter")
    if shown < matched:
        words += f", the first {shown:,} are shown: say --limit for more"
    if left_out:
        words += f"; {left_out:,} handled ones are left out"
    if dead.others:
        words += f"; {count(dead.others, 'record')} of other kinds"
    output.talk(words)
