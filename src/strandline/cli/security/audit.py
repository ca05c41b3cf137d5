"""`strandline security audit`."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import Interrupted, NotFound, UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.positions import Latest, parse_position
from strandline.cli.records.reading import Reading, look_up_ranges
from strandline.cli.records.record import ReadRecord
from strandline.cli.security.audit_lines import AUDIT_TOPIC, AuditLines
from strandline.cli.security.audit_words import in_words
from strandline.cli.topic.topics import chosen_partitions, described


def audit(
    since: Annotated[
        str, typer.Option("--since", metavar="WHERE", help="From when on: 24h, an ISO time, or earliest.")
    ] = "24h",
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="Only what this user did: alice, or User:alice.")
    ] = None,
    denied: Annotated[bool, typer.Option("--denied", help="Only what was denied, and logins that failed.")] = False,
    anchors: Annotated[bool, typer.Option("--anchors", help="Also the anchors of chained topics.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end; Ctrl-C stops.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show what clients changed, which logged in or failed to, and what was denied.

    Needs the right to read the audit topic. A line that a node wrote twice is shown once.
    """
    try:
        position = parse_position(since, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise UsageFailed(f"--since {error}") from None
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    try:
        partitions = chosen_partitions(described(cluster, admin, AUDIT_TOPIC), None)
    except NotFound:
        raise NotFound(
            f"this cluster has no topic {AUDIT_TOPIC}, or you may not see it",
            hint="nodes write it with an authorizer, with SASL, or with strandline.audit.enable=true",
        ) from None
    printer = AuditPrinter(output, user=user, denied=denied, anchors=anchors, as_json=as_json)
    try:
        ranges = look_up_ranges(cluster, admin, AUDIT_TOPIC, partitions, position, Latest())
        Reading(cluster, AUDIT_TOPIC, ranges).run(printer, follow=follow)
    except Interrupted:
        if not follow:
            raise
    finally:
        output.flush()


class AuditPrinter:
    """A sink of records that prints the lines that are wanted."""

    done = False

    def __init__(self, output: Output, *, user: str | None, denied: bool, anchors: bool = False, as_json: bool) -> None:
        self._output = output
        self._lines = AuditLines(user=user, denied=denied, anchors=anchors)
        self._as_json = as_json

    def take(self, records: list[ReadRecord]) -> int:
        """Print those that are wanted."""
        for line in self._lines.wanted(records):
            if self._as_json:
                self._output.json_line(line)
            else:
                self._output.line(in_words(line))
        self._output.flush()
        return len(records)
