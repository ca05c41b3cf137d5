"""`strandline outbox status`: what waits in an outbox table, since when, and what could not be sent."""

from __future__ import annotations

from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import AsJson
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.watching import EVERY_S_DEFAULT, Every, Watch, watch
from strandline.cli.outbox.access import DatabaseUrl, OutboxTable, checked_table, outbox_errors
from strandline.lag.verdict import span
from strandline.outbox.rows import OutboxStatus


def status(
    database: DatabaseUrl,
    table: OutboxTable = "outbox",
    watching: Watch = False,
    every: Every = EVERY_S_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Show how many rows wait, for how long, whether a relay works, and which rows could not be sent.

    It asks the database alone. Exit code 5 if a row is parked.
    """
    output = Output(as_json=as_json)
    checked_table(table)

    def show() -> int:
        with outbox_errors():
            found = _read(database, table)
        _show(output, table, found)
        return found.parked_count

    if watching:

        def look() -> None:
            show()

        watch(output, look, every_s=every)
        return
    parked = show()
    output.flush()
    if parked:
        raise CommandFailed(
            f"{count(parked, 'row')} of {table} could not be sent",
            hint=f"correct the rows and set their column failed to NULL, or delete them; the table is {table}",
            code=ExitCode.UNHEALTHY,
        )


def _read(url: str, table: str) -> OutboxStatus:
    from strandline.outbox.relay import database_of

    database = database_of(url, table)
    try:
        database.open()
        return database.status()
    finally:
        database.close()


def _show(output: Output, table: str, found: OutboxStatus) -> None:
    if output.as_json:
        output.json_line(
            {
                "table": table,
                "waiting": found.waiting,
                "oldest_s": found.oldest_s,
                "is_relayed": found.is_relayed,
                "parked": found.parked_count,
                "parked_rows": [{"id": row_id, "reason": why} for row_id, why in found.parked],
            }
        )
        return
    oldest = "" if found.oldest_s is None else f", the oldest for {span(found.oldest_s)}"
    output.line(f"waiting   {count(found.waiting, 'row')}{oldest}")
    output.line(f"relay     {'works' if found.is_relayed else 'none works'}")
    output.line(f"parked    {count(found.parked_count, 'row')}")
    for _, why in found.parked:
        output.hanging("  ", "    ", why)
