"""`strandline outbox relay`: move rows of an outbox table to their topics."""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import Interrupted, UsageFailed, interrupted_by_sigterm
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.outbox.access import DatabaseUrl, OutboxTable, checked_table, outbox_errors

if TYPE_CHECKING:
    from strandline.outbox.relay import OutboxRelay

LOOK_S = 0.2


def relay(
    database: DatabaseUrl,
    table: OutboxTable = "outbox",
    after: Annotated[
        str, typer.Option("--after", metavar="delete|mark", help="What becomes of rows that were sent.")
    ] = "delete",
    invalid: Annotated[
        str,
        typer.Option("--invalid", metavar="stop|park", help="A row that cannot be sent ends the relay, or is parked."),
    ] = "stop",
    batch_rows: Annotated[int, typer.Option("--batch-rows", metavar="N", help="Rows of one transaction.")] = 2000,
    poll: Annotated[
        float, typer.Option("--poll", metavar="SECONDS", min=0.001, help="Look this often, if nothing wakes the relay.")
    ] = 0.05,
    once: Annotated[bool, typer.Option("--once", help="Send what is there, and end.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show what the relay does.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Move rows to their topics, each once and in the order of each key, until Ctrl-C or SIGTERM.

    Start it on several machines: one works, the others take over. A database or cluster that is away is waited for;
    with --once it is a failure.
    """
    from strandline.client.security import is_security_name
    from strandline.outbox.relay import OutboxRelay, RelaySettings

    cluster, output = connect(bootstrap, properties, timeout), Output(as_json=as_json)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s"
    )
    own = {name: value for name, value in cluster.properties.items() if not is_security_name(name)}
    try:
        settings = RelaySettings(checked_table(table), after, invalid, batch_rows, poll, own)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageFailed(str(error), hint="--after, --invalid and --batch-rows have these values") from None
    working = OutboxRelay(database, cluster.servers, settings)
    try:
        with interrupted_by_sigterm(), outbox_errors():
            if once:
                working.run_once()
            else:
                _run(working, output)
    except (Interrupted, KeyboardInterrupt):
        output.talk("stopped")
    finally:
        _tell(output, table, working)


def _run(relay: OutboxRelay, output: Output) -> None:
    """Run the relay on a thread, so that a signal ends it behind a batch."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            relay.run()
        except BaseException as error:  # raised again below
            failures.append(error)

    thread = threading.Thread(target=run, name="outbox relay", daemon=True)
    thread.start()
    is_told = False
    try:
        while thread.is_alive():
            thread.join(LOOK_S)
            if relay.is_active.is_set() and not is_told:
                is_told = True
                output.talk(f"the relay of {relay.settings.table} works")
    finally:
        relay.stop()
        thread.join()
    if failures:
        raise failures[0]


def _tell(output: Output, table: str, relay: OutboxRelay) -> None:
    counts = relay.counts
    if output.as_json:
        output.json_line({"table": table, "sent": counts.sent, "parked": counts.parked, "batches": counts.batches})
    else:
        output.line(f"{count(counts.sent, 'event')} sent, {count(counts.parked, 'row')} parked")
    output.flush()
