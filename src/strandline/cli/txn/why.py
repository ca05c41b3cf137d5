"""`strandline txn why`: what holds back readers of committed records, and what will end it."""

from __future__ import annotations

import time
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
from strandline.cli.txn.holds import PartitionsOfCluster, read_holds
from strandline.cli.txn.listing import transaction_object
from strandline.cli.txn.reading import require_spoken
from strandline.cli.txn.state import NEEDS_HELP, Hold, Holder, HoldVerdict, elsewhere
from strandline.lag.verdict import span

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
                output.json_line(_object(each))
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
    since = "" if hold.since_ms is None else f" since {moment(hold.since_ms)} ({_ago(hold.since_ms)})"
    output.line(
        f"{hold.name}  {count(hold.held_back, 'record')} held back{since}: "
        f"last stable offset {hold.last_stable_offset:,}, high watermark {hold.high_watermark:,}"
    )
    if not hold.holders:
        output.line("  no transaction is open: the marker of the last one is written and not replicated yet")
    for holder in hold.holders[:HOLDERS_SHOWN]:
        for line in _holder_lines(hold, holder):
            output.line(f"  {line}")
    if len(hold.holders) > HOLDERS_SHOWN:
        output.line(f"  ... and {count(len(hold.holders) - HOLDERS_SHOWN, 'transaction')} that began later")


def _holder_lines(hold: Hold, holder: Holder) -> list[str]:
    producer, transaction = holder.producer, holder.transaction
    who = f"producer {producer.producer_id}, epoch {producer.producer_epoch}, from offset {producer.start_offset:,}"
    if transaction is None or holder.verdict is HoldVerdict.HANGING:
        wrote = f"{who}; it last wrote {_ago(producer.last_timestamp_ms)}"
        lines = [f"a transaction without a name: {wrote}" if transaction is None else wrote]
        return lines + [f"  {line}" for line in _help_lines(hold, holder)]
    age = "" if transaction.age_ms is None else f", open for {span(transaction.age_ms / 1000)}"
    facts = [f"client       {transaction.client}"] if transaction.client else []
    facts.append(f"coordinator  node {transaction.coordinator}")
    others = elsewhere(transaction, hold.place)
    if others != "nothing":
        facts.append(f"also on      {others}")
    facts.append(f"ends         {transaction.ends}")
    return [f"{transaction.transactional_id}: {who}{age}", *(f"  {line}" for line in facts)]


def _help_lines(hold: Hold, holder: Holder) -> list[str]:
    if holder.verdict is HoldVerdict.UNKNOWN:
        return ["unknown: a broker that may coordinate it could not be asked"]
    transaction = holder.transaction
    if transaction is None:
        why = "no coordinator has a transactional id with this producer"
    else:
        doing = (
            f"is {transaction.state}" if not transaction.is_open else "has a transaction open without this partition"
        )
        why = f"its id {transaction.transactional_id!r} {doing} (node {transaction.coordinator})"
    return [f"hanging: {why}, so nothing will end it", f"next: {abort_command(hold, holder)}"]


def abort_command(hold: Hold, holder: Holder) -> str:
    """What ends it."""
    if holder.verdict is HoldVerdict.OVERDUE and holder.transaction is not None:
        return f"strandline txn abort {holder.transaction.transactional_id}"
    return f"strandline txn abort --topic-partition {hold.name} --start-offset {holder.producer.start_offset}"


def _object(hold: Hold) -> dict[str, object]:
    return {
        "topic": hold.topic,
        "partition": hold.partition,
        "leader": hold.leader,
        "high_watermark": hold.high_watermark,
        "last_stable_offset": hold.last_stable_offset,
        "held_back": hold.held_back,
        "since_ms": hold.since_ms,
        "transactions": [
            {
                "verdict": str(holder.verdict),
                "producer_id": holder.producer.producer_id,
                "producer_epoch": holder.producer.producer_epoch,
                "coordinator_epoch": holder.producer.coordinator_epoch,
                "start_offset": holder.producer.start_offset,
                "last_timestamp_ms": holder.producer.last_timestamp_ms,
                "transaction": None if holder.transaction is None else transaction_object(holder.transaction),
                "abort": abort_command(hold, holder) if holder.verdict in NEEDS_HELP else None,
            }
            for holder in hold.holders
        ],
    }


def _conclude(holds: list[Hold]) -> None:
    stuck = [(hold, holder) for hold in holds for holder in hold.holders if holder.verdict in NEEDS_HELP]
    if stuck:
        hold, holder = stuck[0]
        raise CommandFailed(
            f"{count(len(stuck), 'transaction')} will not end by {'itself' if len(stuck) == 1 else 'themselves'}",
            hint=abort_command(hold, holder),
            code=ExitCode.UNHEALTHY,
        )


def _ago(at_ms: int) -> str:
    return f"{span(max(0, int(time.time() * 1000) - at_ms) / 1000)} ago" if at_ms >= 0 else "at a time that is not told"
