"""`strandline queue dead show`: one dead letter, whole."""

from __future__ import annotations

import re
import time
from functools import partial
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import NotFound, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.queue.dead.letters import DeadLetter, letter_object
from strandline.cli.queue.dead.options import DeadTopic
from strandline.cli.queue.dead.reading import DeadLetterTopic
from strandline.lag.verdict import span

_PLACE = re.compile(r"(\d+)[:@](\d+)")


def show(
    topic: DeadTopic,
    place: Annotated[str, typer.Argument(metavar="PARTITION:OFFSET", help="Which one, as `queue dead list` shows it.")],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show a dead letter: where it came from, who gave it up when and why, its key, value and headers."""
    partition, offset = parse_place(place)
    cluster = connect(bootstrap, properties, timeout)
    dead = DeadLetterTopic(cluster, cluster.admin(), topic, [partition])
    dead.read_marks()
    start, _, end = dead.ranges[partition]
    found: list[DeadLetter] = []
    if start <= offset < end:
        dead.ranges = {partition: (start, offset, offset + 1)}
        dead.read(partial(_keep_one, found))
    if not found:
        hint = f"see `strandline queue dead list {topic}`"
        raise NotFound(f"there is no dead letter at {place} of {topic!r}", hint=hint)
    output = Output(as_json=as_json)
    is_handled = dead.is_handled(found[0])
    if as_json:
        output.json_line(letter_object(found[0], is_handled=is_handled))
    else:
        _show(output, found[0], is_handled=is_handled)


def _keep_one(found: list[DeadLetter], letter: DeadLetter) -> bool:
    found.append(letter)
    return False


def parse_place(place: str) -> tuple[int, int]:
    found = _PLACE.fullmatch(place)
    if found is None:
        raise UsageFailed(f"{place!r} is not PARTITION:OFFSET, such as 0:17")
    return int(found[1]), int(found[2])


def _show(output: Output, letter: DeadLetter, *, is_handled: bool) -> None:
    record = letter.record
    lines = [
        ("from", f"{letter.source}" + (f", written {_ago(letter.source_ms)}" if letter.source_ms is not None else "")),
        ("given up by", f"{letter.kind} {letter.by}".rstrip() + (f", member {letter.member}" if letter.member else "")),
        ("why", letter.reason or "-"),
        ("deliveries", "-" if letter.deliveries is None else str(letter.deliveries)),
        ("given up", _ago(letter.ended_ms if letter.ended_ms is not None else record.timestamp_ms)),
        ("redriven before", f"{letter.rounds} times" if letter.rounds else "never"),
        ("state", "handled: redriven or purged" if is_handled else "waiting"),
    ]
    for name, text in lines:
        output.line(f"{name + ':':<17}{text}")
    if not letter.has_copy:
        output.line(f"{'content:':<17}not copied; `queue dead redrive` reads it from {letter.source}")
        return
    for name, value in letter.original_headers():
        output.line(f"{'header:':<17}{name} = {_shown(value)}")
    output.line(f"{'key:':<17}{_shown(record.key)}")
    output.line(f"{'value:':<17}{_shown(record.value)}")


def _shown(content: bytes | None) -> str:
    if content is None:
        return "null"
    try:
        return content.decode()
    except UnicodeDecodeError:
        return repr(content)[2:-1]


def _ago(timestamp_ms: int) -> str:
    return f"{span(max(0.0, time.time() - timestamp_ms / 1000))} ago"
