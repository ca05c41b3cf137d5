"""`strandline txn why`: what holds back readers of committed records, and what will end it."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.completion import topic_names
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.watching import EVERY_S_DEFAULT, Every, Watch, watch
from strandline.cli.group.state import Place
from strandline.cli.txn.describe import moment
from strandline.cli.txn.hold_words import abort_command, ago_words, hold_object, holder_lines
from strandline.cli.txn.holds import PartitionsOfCluster, read_holds
from strandline.cli.txn.reading import require_spoken
from strandline.cli.txn.state import NEEDS_HELP, Hold

HOLDERS_SHOWN = 10


def why(
    place: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC[-PARTITION]",
            help="The topic, or one partition of it; without it, every partition that holds something back.",
            show_default=False,
            autocompletion=topic_names,
        ),
    ] = None,
    watching: Watch = False,
    every: Every = EVERY_S_DEFAULT,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say why a last stable offset does not move: who holds records back, since when, and what will end it.

    The exit code is 5 where something will not end by itself: a transaction that its coordinator does not know
    (hanging), or that should have been aborted long ago.
    """
    cluster = connect(bootstrap, properties, timeout)
    require_spoken(cluster)
    output = Output(as_json=as_json)

    def choose(there: PartitionsOfCluster) -> list[Place]:
        return there.named(place) if place is not None else sorted(there.leaders)

    def look() -> None:
        holds = read_holds(cluster, choose, with_times=True, tell=output.talk)
        if place is None:
            holds = [each for each in holds if each.held_back]
        if as_json:
            for each in holds:
                output.json_line(hold_object(each))
        else:
            _show(output, holds, place)
        _conclude(holds)

    if watching:
        watch(output, look, every_s=every)
    else:
        look()


def _show(output: Output, holds: list[Hold], asked: str | None) -> None:
    for hold in holds:
        if hold.leader is None:
            output.line(f"{hold.name} has no leader, so its transactions are unknown: see `strandline cluster health`")
        elif hold.held_back:
            _show_hold(output, hold)
    if not any(hold.held_back for hold in holds):
        where = "no partition" if asked is None else asked if len(holds) == 1 else f"no partition of {asked}"
        verb = "does not hold" if asked is not None and len(holds) == 1 else "holds"
        output.line(f"{where} {verb} anything back: readers of committed records see all that is there")


def _show_hold(output: Output, hold: Hold) -> None:
    since = "" if hold.since_ms is None else f" since {moment(hold.since_ms)} ({ago_words(hold.since_ms)})"
    output.line(
        f"{hold.name}  {count(hold.held_back, 'record')} held back{since}: "
        f"last stable offset {hold.last_stable_offset:,}, high watermark {hold.high_watermark:,}"
    )
    if not hold.holders:
        output.line("  no transaction is open: the marker of the last one is written and not replicated yet")
    for holder in hold.holders[:HOLDERS_SHOWN]:
        for line in holder_lines(hold, holder):
            output.line(f"  {line}")
    if len(hold.holders) > HOLDERS_SHOWN:
        output.line(f"  ... and {count(len(hold.holders) - HOLDERS_SHOWN, 'transaction')} that began later")


def _conclude(holds: list[Hold]) -> None:
    stuck = [(hold, holder) for hold in holds for holder in hold.holders if holder.verdict in NEEDS_HELP]
    if stuck:
        hold, holder = stuck[0]
        raise CommandFailed(
            f"{count(len(stuck), 'transaction')} will not end by {'itself' if len(stuck) == 1 else 'themselves'}",
            hint=abort_command(hold, holder),
            code=ExitCode.UNHEALTHY,
        )
