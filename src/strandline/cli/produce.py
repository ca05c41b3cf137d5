"""`strandline produce`: lines or JSON from files or stdin, written with acks=all and idempotence."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from strandline.cli.client import TIMEOUT_S_DEFAULT, Cluster, connect, kafka_api, partitions_of
from strandline.cli.failures import CommandFailed, Interrupted, NotFound, UsageFailed
from strandline.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.output import Output, colours_wanted
from strandline.cli.record import Headers, NewRecord, from_json

# A line is held in memory whole; without a bound, a binary file without line ends would be, too.
LINE_BYTES_MAX = 64 * 1024 * 1024


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE]...", help="Files to read; none or - is stdin.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What divides key and value in a line.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="A header. May be repeated.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Write to this partition.")] = None,
    empty_as_null: Annotated[bool, typer.Option("--null", "-Z", help="An empty value is null: a tombstone.")] = False,
    as_json: AsJson = False,
    input_format: Annotated[
        str | None, typer.Option("--input", metavar="lines|json", help="What is read; json when --json is given.")
    ] = None,
    repartition: Annotated[bool, typer.Option("--repartition", help="Ignore the partitions in JSON lines.")] = False,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="At most so many records a second.")] = None,
    acks: Annotated[str, typer.Option("--acks", metavar="all|1|0", help="Whose acknowledgement to wait for.")] = "all",
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    auto_create: Annotated[
        bool, typer.Option("--auto-create", help="Let the broker create a topic that does not exist.")
    ] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Write records: each line of stdin, or of the files, is one.

    With --json a line is an object with key, value, headers, partition and timestamp, all optional; key_base64 and
    value_base64 carry bytes that are no text. Prints the offsets that were written, by partition.
    """
    reading = input_format or ("json" if as_json else "lines")
    if reading not in ("lines", "json"):
        raise UsageFailed(f"--input {reading!r} is neither lines nor json")
    if reading == "json" and key_separator is not None:
        raise UsageFailed("--key-separator divides lines; JSON names its key")
    if acks not in ("all", "-1", "1", "0"):
        raise UsageFailed(f"--acks {acks!r} is not all, 1 or 0")
    shape = Shape(
        read_json=reading == "json",
        key=None if key is None else key.encode(errors="surrogateescape"),
        key_separator=None if key_separator is None else key_separator.encode(errors="surrogateescape"),
        headers=[_header(text) for text in headers or []],
        partition=partition,
        empty_as_null=empty_as_null,
        repartition=repartition,
    )
    cluster = connect(bootstrap, properties, timeout)
    if not auto_create:
        _check_topic(cluster, topic, partition)
    output = Output(as_json=as_json)
    sending = Sending(cluster, topic, acks=acks, compression=compression)
    stopped: BaseException | None = None
    with _progress(sending) as show:
        try:
            for record in paced(records(files or [], shape), rate):
                sending.send(record)
                show()
        except (Interrupted, CommandFailed) as reason:
            stopped = reason
        # What was read before a bad line or Ctrl-C is on its way: wait for it, so that the summary is the truth.
        sending.finish()
    _summary(output, sending)
    if sending.failed:
        raise CommandFailed(
            f"{sending.failed:,} of {sending.failed + sending.acknowledged:,} records were not written: "
            f"{sending.first_failure}",
            hint="what is listed above was written; send the rest again",
        )
    if stopped is not None:
        raise stopped


@dataclass(frozen=True)
class Shape:
    """How the input becomes records."""

    read_json: bool
    key: bytes | None
    key_separator: bytes | None
    headers: Headers
    partition: int | None
    empty_as_null: bool
    repartition: bool

    def record(self, line: bytes) -> NewRecord:
        if self.read_json:
            record = from_json(line)
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
        if self.partition is not None:
            record.partition = self.partition
        record.headers = self.headers + record.headers
        return record


def records(files: list[Path], shape: Shape) -> Iterator[NewRecord]:
    for path in files or [Path("-")]:
        name = "stdin" if str(path) == "-" else str(path)
        for number, line in enumerate(_lines(path), 1):
            if shape.read_json and not line.strip():
                continue
            try:
                yield shape.record(line)
            except ValueError as error:
                raise CommandFailed(
                    f"{name}, line {number}: {error}", hint="the lines before it were written"
                ) from None


def _lines(path: Path) -> Iterator[bytes]:
    if str(path) == "-":
        yield from _bounded_lines(sys.stdin.buffer, "stdin")
        return
    try:
        with path.open("rb") as file:
            yield from _bounded_lines(file, str(path))
    except FileNotFoundError:
        raise NotFound(f"there is no file {str(path)!r}") from None
    except OSError as error:
        raise CommandFailed(f"cannot read {str(path)!r}: {error.strerror}") from None


def _bounded_lines(file: BinaryIO, name: str) -> Iterator[bytes]:
    while line := file.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise CommandFailed(f"{name} has a line of more than {LINE_BYTES_MAX:,} bytes")
        yield line.removesuffix(b"\n")


def paced(source: Iterator[NewRecord], rate: float | None) -> Iterator[NewRecord]:
    """The records, at most `rate` a second: each has its moment, so a slow one does not slow all that follow."""
    if rate is None:
        yield from source
        return
    begin = time.monotonic()
    for count, record in enumerate(source):
        wait_s = begin + count / rate - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        yield record


class Sending:
    """A librdkafka producer that remembers which offsets were acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, *, acks: str, compression: str) -> None:
        self.topic = topic
        self.cluster = cluster
        self.acknowledged = 0
        self.failed = 0
        self.first_failure = ""
        self.offsets: dict[int, tuple[int, int, int]] = {}
        idempotent = acks in ("all", "-1")
        self._producer = cluster.producer(
            acks=acks, enable_idempotence=idempotent, compression_type=compression, linger_ms=5
        )

    def send(self, record: NewRecord) -> None:
        optional: dict[str, Any] = {}
        if record.partition is not None:
            optional["partition"] = record.partition
        if record.timestamp_ms is not None:
            optional["timestamp"] = record.timestamp_ms
        while True:
            try:
                self._producer.produce(
                    self.topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers or None,
                    on_delivery=self._on_delivery,
                    **optional,
                )
                break
            except BufferError:
                # The producer's queue is full: wait for acknowledgements instead of growing without bound.
                self._producer.poll(0.1)
            except kafka_api().KafkaException as error:
                # Refused before it was sent: too large for the client, or a partition that does not exist.
                self._failed(error.args[0].str())
                break
        self._producer.poll(0)

    def finish(self) -> None:
        while self._producer.flush(0.2):
            pass

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed(error.str())
            return
        self.acknowledged += 1
        partition = message.partition()
        # With acks=0 nobody knows the offset.
        offset = -1 if message.offset() is None else message.offset()
        first, last, count = self.offsets.get(partition, (offset, offset, 0))
        self.offsets[partition] = (min(first, offset), max(last, offset), count + 1)

    def _failed(self, reason: str) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or reason


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
    partitions = partitions_of(cluster, cluster.admin(), topic)
    if partition is not None and partition not in partitions:
        raise NotFound(f"topic {topic!r} has no partition {partition}, only 0 to {len(partitions) - 1}")


class _progress:
    """A live count on stderr while records are piped in; nothing when stderr is no terminal or stdin is one."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._status: Any = None
        self._next_s = 0.0

    def __enter__(self) -> Callable[[], None]:
        if colours_wanted(sys.stderr) and not sys.stdin.isatty():
            from rich.console import Console

            self._status = Console(stderr=True).status("connecting")
            self._status.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _show(self) -> None:
        now = time.monotonic()
        if self._status is not None and now >= self._next_s:
            self._next_s = now + 0.1
            self._status.update(f"{self._sending.acknowledged:,} records acknowledged")
