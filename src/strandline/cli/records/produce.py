"""`strandline produce`: lines or JSON from files or stdin, written with acks=all and idempotence."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import CommandFailed, ExitCode, Interrupted, UsageFailed
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
from strandline.cli.common.positions import TimePosition, parse_position
from strandline.cli.common.progress import Progress
from strandline.cli.records.input_lines import Lines
from strandline.cli.records.record import Headers, NewRecord
from strandline.cli.records.record import from_json as record_from_json
from strandline.cli.records.sending import Sending
from strandline.cli.topic.topics import chosen_partitions, described

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The topic to write to.", autocompletion=completion.topic_names)
    ],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Files to read; none or - is stdin.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every record that has none.")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", metavar="TEXT", help=r"What divides key and value in a line; \t is a tab."
        ),
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="A header. May be repeated.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Write to this partition.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="WHEN", help="An ISO time, @ms, or how long ago: 10m-ago.")
    ] = None,
    empty_as_null: Annotated[bool, typer.Option("--null", "-Z", help="An empty value is null: a tombstone.")] = False,
    from_json: Annotated[
        bool, typer.Option("--from-json", help="Each line is a record as `consume --json` prints it.")
    ] = False,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="SUBJECT|FILE",
            help="Values are JSON rows, encoded by the last schema of a subject, or by a file (.avsc, .json, .proto).",
        ),
    ] = None,
    register: Annotated[
        bool, typer.Option("--register", help="Register the schema of a FILE for TOPIC-value, unless it is.")
    ] = False,
    message: Annotated[
        str | None, typer.Option("--message", metavar="NAME", help="The message of a Protobuf schema; else the first.")
    ] = None,
    registry: RegistryUrl = REGISTRY_DEFAULT,
    as_json: AsJson = False,
    repartition: Annotated[bool, typer.Option("--repartition", help="Ignore the partitions in JSON lines.")] = False,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", min=0.001, help="At most so many records a second.")
    ] = None,
    acks: Annotated[str, typer.Option("--acks", metavar="all|1|0", help="Whose acknowledgement to wait for.")] = "all",
    compression: Annotated[
        str, typer.Option("--codec", "--compression", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    auto_create: Annotated[
        bool, typer.Option("--auto-create", help="Let the broker create a topic that does not exist.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Write records: each line of stdin, or of the files, is the value of one, also if it is JSON.

    With --from-json a line is an object with key, value, headers, partition and timestamp, all optional; key_base64 and
    value_base64 carry bytes that are no text. Prints the offsets that were written, by partition. With --schema a row
    that does not fit is refused with its line and the reason; the rows before it were written.
    """
    _check_options(from_json, key_separator, acks, compression)
    if schema is None and (register or message is not None):
        raise UsageFailed("--register and --message go with --schema")
    shape = Shape(
        read_json=from_json,
        key=None if key is None else key.encode(errors="surrogateescape"),
        key_separator=None if key_separator is None else _unescaped(key_separator),
        headers=[_header(text) for text in headers or []],
        partition=partition,
        timestamp_ms=_timestamp_ms(timestamp),
        empty_as_null=empty_as_null,
        repartition=repartition,
    )
    source = Lines(files or [])
    cluster = connect(bootstrap, properties, timeout)
    if not auto_create:
        _check_topic(cluster, topic, partition)
    if schema is not None:
        shape = replace(shape, encode=_encoder(registry, timeout, topic, schema, message, register=register))
    output = Output(as_json=as_json)
    sending = Sending(cluster, topic, acks=acks, compression=compression)
    stopped: BaseException | None = None
    bar = Progress("producing", total=source.size_bytes, unit="records", is_bytes=True, wanted=not source.is_typed)
    with bar as progress:
        try:
            for record in paced(records(source, shape), rate):
                sending.send(record)
                progress.reached(source.read_bytes, f"{sending.acknowledged:,} records acknowledged")
        except (Interrupted, CommandFailed) as reason:
            stopped = reason
        # What was read before a bad line or Ctrl-C is on its way: wait for it, so that the summary is the truth.
        sending.finish()
    _summary(output, sending)
    if sending.failed:
        raise CommandFailed(
            f"{sending.failed:,} of {sending.failed + sending.acknowledged:,} records were not "
            f"{'acknowledged' if sending.gave_up else 'written'}: {sending.first_failure}",
            hint=f"what is listed above was written; {sending.advice or 'send the rest again'}",
            code=ExitCode.UNREACHABLE if sending.gave_up else ExitCode.ERROR,
        )
    if stopped is not None:
        raise stopped


def _check_options(from_json: bool, key_separator: str | None, acks: str, compression: str) -> None:
    if from_json and key_separator is not None:
        raise UsageFailed("--key-separator divides lines; JSON names its key")
    if key_separator == "":
        raise UsageFailed("--key-separator is empty")
    if acks not in ("all", "-1", "1", "0"):
        raise UsageFailed(f"--acks {acks!r} is not all, 1 or 0")
    if compression not in CODECS:
        raise UsageFailed(f"--codec {compression!r} is not {', '.join(CODECS[:-1])} or {CODECS[-1]}")


def _timestamp_ms(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        when = parse_position(text, now_ms=time.time_ns() // 1_000_000)
    except ValueError:
        when = None
    if not isinstance(when, TimePosition):
        raise UsageFailed(f"--timestamp {text!r} is no time: say 2026-03-01T12:00:00Z, @milliseconds or 10m-ago")
    return when.timestamp_ms


def _unescaped(text: str) -> bytes:
    return text.replace("\\t", "\t").replace("\\n", "\n").encode(errors="surrogateescape")


@dataclass(frozen=True)
class Shape:
    """The way in which input becomes records."""

    read_json: bool
    key: bytes | None
    key_separator: bytes | None
    headers: Headers
    partition: int | None
    timestamp_ms: int | None
    empty_as_null: bool
    repartition: bool
    encode: Callable[[Any], bytes] | None = None

    def record(self, line: bytes) -> NewRecord:
        if self.read_json:
            record = record_from_json(line, self.encode)
            if self.repartition:
                record.partition = None
        elif self.key_separator is None:
            record = NewRecord(value=line)
        else:
            before, separator, after = line.partition(self.key_separator)
            if not separator:
                raise ValueError(f"no key separator {self.key_separator!r} in {line[:80]!r}")
            record = NewRecord(key=before, value=after)
        if record.key is None:
            record.key = self.key
        if record.value == b"" and self.empty_as_null:
            record.value = None
        if self.encode is not None and not self.read_json and record.value is not None:
            record.value = self.encode(_row(record.value))
        if self.partition is not None:
            record.partition = self.partition
        if record.timestamp_ms is None:
            record.timestamp_ms = self.timestamp_ms
        record.headers = self.headers + record.headers
        return record


def _encoder(
    registry: str, timeout_s: float, topic: str, schema: str, message: str | None, *, register: bool
) -> Callable[[Any], bytes]:
    # Loaded late: without --schema nothing of schemas is needed.
    from strandline.cli.schema.payloads import row_encoder
    from strandline.cli.schema.registry_api import SchemaApi

    return row_encoder(SchemaApi(registry, timeout_s), topic, schema, message=message, register=register)


def _row(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None


def records(source: Lines, shape: Shape) -> Iterator[NewRecord]:
    for line in source:
        if shape.read_json and not line.strip():
            continue
        try:
            yield shape.record(line)
        except ValueError as error:
            raise CommandFailed(f"{source.place}: {error}", hint="the lines before it were written") from None


def paced(source: Iterator[NewRecord], rate: float | None) -> Iterator[NewRecord]:
    """Return the records, at most `rate` a second: each has its moment, so a slow one does not slow all that follow."""
    if rate is None:
        yield from source
        return
    begin = time.monotonic()
    for count, record in enumerate(source):
        wait_s = begin + count / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        yield record


def _summary(output: Output, sending: Sending) -> None:
    for partition in sorted(sending.offsets):
        first, last, count = sending.offsets[partition]
        if output.as_json:
            place = {"topic": sending.topic, "partition": partition}
            output.json_line(place | {"records": count, "first_offset": first, "last_offset": last})
        elif first < 0:
            output.line(f"{sending.topic}-{partition}: {count:,} sent, offsets unknown (acks=0)")
        else:
            output.line(f"{sending.topic}-{partition}: {count:,} at offsets {first}..{last}")
    output.flush()


def _header(text: str) -> tuple[str, bytes | None]:
    key, equals, value = text.partition("=")
    if not key:
        raise UsageFailed(f"--header {text!r} is not KEY=VALUE")
    return key, value.encode(errors="surrogateescape") if equals else None


def _check_topic(cluster: Cluster, topic: str, partition: int | None) -> None:
    found = described(cluster, cluster.admin(), topic)
    chosen_partitions(found, None if partition is None else [partition])
