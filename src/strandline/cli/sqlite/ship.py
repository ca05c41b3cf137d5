"""`strandline sqlite ship DB`: follow a SQLite database into a topic."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import Interrupted, UsageFailed, interrupted_by_sigterm
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.positions import parse_duration_ms
from strandline.cli.sqlite.access import DatabaseTopic, shipped_topic, shipping_errors
from strandline.sqlite.topic import ShippedTopic

if TYPE_CHECKING:
    from strandline.sqlite.shipper import DatabaseShipper

RETENTION_FACTOR = 2
"""Snapshots that a retention should span, because a segment is deleted whole."""


def ship(
    database: Annotated[Path, typer.Argument(metavar="DB", help="The SQLite database, in WAL mode.")],
    topic: DatabaseTopic,
    snapshot_interval: Annotated[
        str, typer.Option("--snapshot-interval", metavar="DURATION", help="Ship a snapshot this often.")
    ] = "1d",
    checkpoint_pages: Annotated[
        int,
        typer.Option("--checkpoint-pages", metavar="N", min=1, help="Make checkpoints when the WAL has N pages."),
    ] = 1000,
    poll: Annotated[
        float, typer.Option("--poll", metavar="SECONDS", min=0.001, help="Look for transactions this often.")
    ] = 0.1,
    set_wal: Annotated[bool, typer.Option("--set-wal", help="Put the database into WAL mode if it is not.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Go on with a topic that holds a database of another path.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="End when everything is shipped.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Follow a SQLite database into a topic until Ctrl-C: a snapshot, then each transaction, exactly once.

    The topic is created if it does not exist. A shipper that starts again goes on where the last one ended; if the
    database changed meanwhile, with a new snapshot.
    """
    from strandline.sqlite.running import ship as run_shipper
    from strandline.sqlite.shipper import ShipSettings

    interval_ms = parse_duration_ms(snapshot_interval)
    if not interval_ms:
        raise UsageFailed(f"--snapshot-interval {snapshot_interval!r} is no duration: say 12h, 1d or 30m")
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    settings = ShipSettings(interval_ms / 1000, checkpoint_pages, poll, replace)
    followed = shipped_topic(cluster, topic)

    def tell(shipper: DatabaseShipper) -> None:
        if not once:
            _tell_place(output, followed, shipper)
        _warn_of_retention(output, followed, interval_ms)

    try:
        with interrupted_by_sigterm(), shipping_errors():
            shipper = run_shipper(
                database,
                followed,
                cluster.settings(),
                settings,
                timeout_s=timeout,
                set_wal=set_wal,
                once=once,
                say=output.talk,
                on_ready=tell,
            )
            _tell_place(output, followed, shipper)
    except (Interrupted, KeyboardInterrupt):
        output.talk("stopped")


def _tell_place(output: Output, topic: ShippedTopic, shipper: DatabaseShipper) -> None:
    state = shipper.state
    if output.as_json:
        output.json_line(
            {
                "topic": topic.name,
                "generation": state.generation,
                "transaction": state.transaction,
                "pages": state.pages,
                "page_size": state.page_bytes,
            }
        )
    else:
        size = state.pages * state.page_bytes
        output.line(f"topic {topic.name} has transaction {state.transaction}: {state.pages:,} pages, {size:,} bytes")
    output.flush()


def _warn_of_retention(output: Output, topic: ShippedTopic, interval_ms: int) -> None:
    retention_ms = topic.retention_ms()
    if 0 <= retention_ms < RETENTION_FACTOR * interval_ms:
        output.talk(
            f"warning: retention.ms of topic {topic.name} is {retention_ms}, less than two snapshot intervals: a "
            "snapshot may be deleted before the next one; set a longer retention or a shorter --snapshot-interval"
        )
