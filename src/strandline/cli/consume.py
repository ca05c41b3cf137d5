"""`strandline consume`: read from an offset, a time or the last n; stop at the end, or follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import typer

from strandline.cli.client import TIMEOUT_S_DEFAULT, Cluster, connect, partitions_of
from strandline.cli.failures import Interrupted, NotFound, UsageFailed
from strandline.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.output import Output
from strandline.cli.positions import Earliest, Latest, Position, parse_position
from strandline.cli.reading import GroupReading, Ranges, Reading, last_records, look_up_ranges
from strandline.cli.record import ReadRecord, compile_format, to_json


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.")],
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, an offset, -N (N before the end), an ISO time, @ms, or how long ago: 10m. "
            "Default: earliest; latest with --follow.",
        ),
    ] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="The newest N records of the topic.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many records.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end; Ctrl-C stops.")] = False,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition. May be repeated.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Read as a member of this group, and commit what was printed.")
    ] = None,
    as_json: AsJson = False,
    pattern: Annotated[
        str | None, typer.Option("--format", "-F", help=r"As kcat: %k %s %o %p %t %T %h %K %S; for example '%k:%s\n'.")
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Read records and print their values, or JSON, or a format of your own.

    Reads what is there and stops; --follow goes on. Without --group no position is stored anywhere.
    """
    position = _position(begin, last=last, follow=follow, group=group, partitions=partitions)
    if as_json and pattern is not None:
        raise UsageFailed("--json and --format exclude each other")
    output = Output(as_json=as_json)
    printer = Printer(output, count, None if as_json else _formatter(pattern))
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    chosen = _chosen_partitions(cluster, admin, topic, partitions)
    try:
        if group is not None:
            GroupReading(cluster, topic, group, earliest=not isinstance(position, Latest)).run(printer, follow=follow)
            return
        ranges = look_up_ranges(cluster, admin, topic, chosen, position)
        if last is not None:
            ranges = _show_last(cluster, topic, ranges, last, printer)
            if not follow or printer.done:
                return
        _warn_of_clamped(output, begin, ranges)
        Reading(cluster, topic, ranges).run(printer, follow=follow)
    except Interrupted:
        # Ctrl-C is how following ends; before that it means that the user did not get what was asked for.
        if not follow:
            raise
    finally:
        output.flush()


class Printer:
    """The sink that prints."""

    def __init__(self, output: Output, count_max: int | None, formatter: Callable[[ReadRecord], bytes] | None) -> None:
        self._output = output
        self._left = count_max
        self._formatter = formatter

    @property
    def done(self) -> bool:
        return self._left == 0

    def take(self, records: list[ReadRecord]) -> int:
        """Print as many of `records` as are still wanted and return how many that were."""
        wanted = records if self._left is None else records[: self._left]
        for record in wanted:
            if self._formatter is None:
                self._output.json_line(to_json(record))
            else:
                self._output.write(self._formatter(record))
        self._output.flush()
        if self._left is not None:
            self._left -= len(wanted)
        return len(wanted)


def _position(
    begin: str | None, *, last: int | None, follow: bool, group: str | None, partitions: list[int] | None
) -> Position:
    if last is not None and (begin is not None or group is not None):
        raise UsageFailed("--last goes with neither --from nor --group")
    if group is not None and partitions:
        raise UsageFailed("--group shares the partitions among its members: --partition cannot choose them")
    if begin is None:
        return Latest() if follow and group is None and last is None else Earliest()
    try:
        position = parse_position(begin, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise UsageFailed(f"--from {error}") from None
    if group is not None and not isinstance(position, Earliest | Latest):
        raise UsageFailed("with --group, --from is where to begin when nothing is committed: earliest or latest")
    return position


def _formatter(pattern: str | None) -> Callable[[ReadRecord], bytes]:
    try:
        return compile_format(r"%s\n" if pattern is None else pattern)
    except ValueError as error:
        raise UsageFailed(f"--format: {error}") from None


def _chosen_partitions(cluster: Cluster, admin: Any, topic: str, wanted: list[int] | None) -> list[int]:
    existing = partitions_of(cluster, admin, topic)
    missing = set(wanted or []) - set(existing)
    if missing:
        raise NotFound(f"topic {topic!r} has no partition {min(missing)}, only 0 to {len(existing) - 1}")
    return sorted(set(wanted)) if wanted else existing


def _show_last(cluster: Cluster, topic: str, ranges: Ranges, last: int, printer: Printer) -> Ranges:
    """Print the newest `last` records and return ranges that begin behind them."""
    printer.take(last_records(cluster, topic, ranges, last))
    return {partition: (end, end, end) for partition, (_, _, end) in ranges.items()}


def _warn_of_clamped(output: Output, begin: str | None, ranges: Ranges) -> None:
    if begin is None or not begin.isdigit():
        return
    for partition, (log_start_offset, start, end) in ranges.items():
        if int(begin) < log_start_offset:
            output.talk(f"partition {partition} begins at offset {start}: older records are gone")
        elif int(begin) > end:
            output.talk(f"partition {partition} ends at offset {end}")
