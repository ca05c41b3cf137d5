"""`strandline consume`: read from an offset, a time or the last n; filter; stop at the end, at --to, or follow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import Interrupted, UsageFailed
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    REGISTRY_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    RegistryUrl,
    Timeout,
)
from strandline.cli.common.output import Output
from strandline.cli.common.positions import Earliest, Latest, Position, parse_position
from strandline.cli.records.filters import Filter, compile_filters
from strandline.cli.records.reading import GroupReading, Ranges, Reading, last_records, look_up_ranges
from strandline.cli.records.record import ReadRecord, compile_format, to_json
from strandline.cli.topic.topics import chosen_partitions, described

if TYPE_CHECKING:
    from strandline.cli.records.decoding import RecordDecoding


def consume(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic to read.", autocompletion=completion.topic_names)
    ],
    begin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="earliest, latest, an offset, -N (N before the end), an ISO time, @ms, or how long ago: 10m-ago. "
            "Default: earliest; latest with --follow.",
        ),
    ] = None,
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="The same as --from earliest.")] = False,
    stop: Annotated[
        str | None,
        typer.Option("--to", metavar="WHERE", help="Stop before this offset or time, said as for --from."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", min=1, help="The newest N records of the topic.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Stop after so many records.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end; Ctrl-C stops.")] = False,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition. May be repeated."),
    ] = None,
    conditions: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            "-w",
            metavar="CONDITION",
            help="Only records like this: 'value.amount>100' (JSON), key=o-1, headers.source!=web, 'offset>=500', "
            "value*=paid (contains), value~=^o- (regex). May be repeated; all must hold.",
        ),
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="REGEX", help="Only records whose key or value shows this.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="NAME",
            help="Read as a member of this group, and commit what was read.",
            autocompletion=completion.group_names,
        ),
    ] = None,
    decode: Annotated[
        bool, typer.Option("--decode", help="Show keys and values as JSON, by the schemas of a registry.")
    ] = False,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    pattern: Annotated[
        str | None,
        typer.Option(
            "--format", "-F", metavar="TEXT", help=r"As kcat: %k %s %o %p %t %T %h %K %S; for example '%k:%s\n'."
        ),
    ] = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Read records and print their values, or JSON, or a format of your own.

    Reads what is there and stops; --follow goes on. Without --group no position is stored anywhere. With --decode,
    filters and formats see the decoded JSON; what cannot be decoded is shown with the reason.
    """
    now_ms = time.time_ns() // 1_000_000
    if from_beginning:
        if begin is not None:
            raise UsageFailed("--from-beginning is --from earliest, so one of them is enough")
        begin = "earliest"
    position = _position(begin, now_ms, last=last, follow=follow, group=group, partitions=partitions)
    end = _end(stop, now_ms, follow=follow, group=group, last=last)
    if as_json and pattern is not None:
        raise UsageFailed("--json and --format exclude each other")
    output = Output(as_json=as_json)
    decoding = _decoding(registry, timeout, as_json=as_json) if decode else None
    formatter = None if as_json else _formatter(pattern)
    printer = Printer(output, count, formatter, _filter(conditions, grep, now_ms), decoding)
    cluster = connect(bootstrap, properties, timeout)
    admin = cluster.admin()
    chosen = chosen_partitions(described(cluster, admin, topic), partitions)
    try:
        if group is not None:
            GroupReading(cluster, topic, group, earliest=not isinstance(position, Latest)).run(printer, follow=follow)
            return
        ranges = look_up_ranges(cluster, admin, topic, chosen, position, end)
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
        if decoding is not None:
            decoding.tell(output)


class Printer:
    """The sink that prints what is wanted."""

    def __init__(
        self,
        output: Output,
        count_max: int | None,
        formatter: Callable[[ReadRecord], bytes] | None,
        wanted: Filter | None = None,
        decoding: RecordDecoding | None = None,
    ) -> None:
        self._output = output
        self._left = count_max
        self._formatter = formatter
        self._wanted = wanted
        self._decoding = decoding

    @property
    def done(self) -> bool:
        return self._left == 0

    def take(self, records: list[ReadRecord]) -> int:
        """Print those of `records` that are wanted, and return how many were looked at before there was enough."""
        looked_at = 0
        for record in records:
            if self._left == 0:
                break
            looked_at += 1
            if self._decoding is not None:
                record = self._decoding.decode(record)
            if self._wanted is None or self._wanted(record):
                self._print(record)
        self._output.flush()
        return looked_at

    def _print(self, record: ReadRecord) -> None:
        if self._formatter is None:
            self._output.json_line(to_json(record))
        else:
            self._output.write(self._formatter(record))
        if self._left is not None:
            self._left -= 1


def _decoding(registry: str, timeout_s: float, *, as_json: bool) -> RecordDecoding:
    # Loaded late: without --decode nothing of schemas is needed.
    from strandline.cli.records.decoding import RecordDecoding
    from strandline.cli.schema.registry_api import SchemaApi

    return RecordDecoding(SchemaApi(registry, timeout_s), as_json=as_json)


def _position(
    begin: str | None,
    now_ms: int,
    *,
    last: int | None,
    follow: bool,
    group: str | None,
    partitions: list[int] | None,
) -> Position:
    if last is not None and (begin is not None or group is not None):
        raise UsageFailed("--last goes with neither --from nor --group")
    if group is not None and partitions:
        raise UsageFailed("--group shares the partitions among its members: --partition cannot choose them")
    if begin is None:
        return Latest() if follow and group is None and last is None else Earliest()
    position = _parsed("--from", begin, now_ms)
    if group is not None and not isinstance(position, Earliest | Latest):
        raise UsageFailed("with --group, --from is where to begin when nothing is committed: earliest or latest")
    return position


def _end(stop: str | None, now_ms: int, *, follow: bool, group: str | None, last: int | None) -> Position:
    if stop is None:
        return Latest()
    if follow or group is not None or last is not None:
        raise UsageFailed("--to goes with none of --follow, --group and --last")
    return _parsed("--to", stop, now_ms)


def _parsed(option: str, text: str, now_ms: int) -> Position:
    try:
        return parse_position(text, now_ms=now_ms)
    except ValueError as error:
        raise UsageFailed(f"{option} {error}") from None


def _filter(conditions: list[str] | None, grep: str | None, now_ms: int) -> Filter | None:
    try:
        return compile_filters(conditions or [], grep, now_ms=now_ms)
    except ValueError as error:
        raise UsageFailed(str(error)) from None


def _formatter(pattern: str | None) -> Callable[[ReadRecord], bytes]:
    try:
        return compile_format(r"%s\n" if pattern is None else pattern)
    except ValueError as error:
        raise UsageFailed(f"--format: {error}") from None


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
