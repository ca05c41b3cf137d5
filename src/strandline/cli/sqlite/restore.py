"""`strandline sqlite restore OUT`: rebuild a SQLite database from its topic, as it was at a moment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import UsageFailed, interrupted_by_sigterm
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.positions import TimePosition, parse_position
from strandline.cli.common.progress import Progress
from strandline.cli.sqlite.access import DatabaseTopic, shipped_topic, shipping_errors


def restore(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write; it must not exist.")],
    topic: DatabaseTopic,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TIME", help="As it was then: 2026-03-01T12:00:00Z, @milliseconds or 10m-ago."),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="OFFSET", min=0, help="As it was behind this record.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Run PRAGMA integrity_check on the file.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Rebuild a database from its topic: the newest transaction, or that of a moment.

    The pages are compared with those of the shipped database, by checksums, behind each transaction.
    """
    from strandline.sqlite.restoring import check_free, check_integrity, moment_text, plan
    from strandline.sqlite.restoring import restore as rebuild

    if to is not None and to_offset is not None:
        raise UsageFailed("--to and --to-offset are two moments: say one")
    to_ms = None if to is None else _time_ms(to)
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    began_s = time.monotonic()
    with interrupted_by_sigterm(), shipping_errors():
        check_free(out)
        shipped = shipped_topic(cluster, topic)
        shipped.check()
        wanted = plan(shipped, to_ms=to_ms, to_offset=to_offset)
        state = wanted.last.header.state
        total = state.pages * state.page_bytes
        with Progress("restoring", total=total, unit="bytes", is_bytes=True) as progress:
            found = rebuild(shipped, wanted, out, progress=progress.advance)
        if check:
            check_integrity(out)
    seconds = time.monotonic() - began_s
    if as_json:
        output.json_line(
            {
                "out": str(out),
                "topic": topic,
                "time": found.at_ms,
                "offset": found.offset,
                "transaction": found.state.transaction,
                "transactions_applied": found.transactions,
                "bytes": total,
                "checksum": f"{found.state.checksum:016x}",
                "seconds": round(seconds, 3),
            }
        )
    else:
        output.line(
            f"{out} is the database of {moment_text(found.at_ms)}, transaction {found.state.transaction} "
            f"({total:,} bytes in {seconds:.1f} s)"
        )


def _time_ms(text: str) -> int:
    try:
        found = parse_position(text, now_ms=int(time.time() * 1000))
    except ValueError:
        found = None
    if not isinstance(found, TimePosition):
        raise UsageFailed(
            f"--to {text!r} is no time: say 2026-03-01T12:00:00Z, @milliseconds or 10m-ago",
            hint="--to-offset takes an offset",
        )
    return found.timestamp_ms
