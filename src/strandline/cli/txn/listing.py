"""`strandline txn list`."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.positions import parse_duration_ms
from strandline.cli.topic.listing import matcher
from strandline.cli.txn.hold_words import transaction_object
from strandline.cli.txn.reading import read_transactions, require_spoken
from strandline.cli.txn.state import OPEN, STATES
from strandline.lag.verdict import span


def list_transactions(
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="PATTERN", help="Only ids like this: orders-* or /a regular expression/."),
    ] = None,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only in this state: Ongoing, PrepareCommit ...; `open`: all that hold readers back. May be repeated.",
        ),
    ] = None,
    duration_over: Annotated[
        str | None,
        typer.Option("--duration-over", metavar="TIME", help="Only those open for longer than this: 30s, 5m."),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", help="Only those of this producer id. May be repeated."),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List transactional ids: state, producer, how long a transaction is open, and the node that coordinates each."""
    wanted, in_states, over_ms = matcher(pattern), _states(states), _duration_ms(duration_over)
    cluster = connect(bootstrap, properties, timeout)
    require_spoken(cluster)
    output = Output(as_json=as_json)
    found = read_transactions(cluster, states=in_states, producer_ids=producer_ids or (), tell=output.talk)
    chosen = [
        each
        for each in found.transactions
        if wanted.search(each.transactional_id) and (over_ms is None or (each.age_ms or 0) > over_ms)
    ]
    if as_json:
        for each in chosen:
            output.json_line(transaction_object(each))
    elif chosen:
        rows = [
            (
                each.transactional_id,
                each.state,
                each.producer_id,
                each.producer_epoch,
                "-" if each.age_ms is None else span(each.age_ms / 1000),
                each.coordinator,
            )
            for each in chosen
        ]
        output.table(["id", "state", "producer", "epoch", "age", "coordinator"], rows)
    elif pattern is not None or states or producer_ids or duration_over:
        output.talk("no transactional id is like that")
    else:
        output.talk("no transactional ids yet: a producer with a transactional.id makes one")


def _states(given: list[str] | None) -> tuple[str, ...]:
    known = {word.lower(): (word,) for word in STATES} | {"open": OPEN}
    chosen: list[str] = []
    for word in given or []:
        if word.lower() not in known:
            raise UsageFailed(f"--state {word!r} is none of {', '.join(STATES)}, open")
        chosen += known[word.lower()]
    return tuple(dict.fromkeys(chosen))


def _duration_ms(text: str | None) -> int | None:
    if text is None:
        return None
    duration_ms = parse_duration_ms(text)
    if duration_ms is None:
        raise UsageFailed(f"--duration-over {text!r} is no time", hint="say it as 30s, 5m or 1h30m")
    return duration_ms
