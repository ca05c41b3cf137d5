"""`strandline connect preview FILE`: what a connector would write, from live data, without a trace of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, UsageFailed
from strandline.cli.common.options import AsJson, GroundBootstrap, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.positions import BeforeEnd, Position, parse_position, start_offset
from strandline.cli.connect.connector_files import ConnectorFile
from strandline.cli.connect.local_connector import (
    ConnectorFileName,
    LocalConnector,
    Methods,
    OneName,
    cluster_at,
    local_connector,
    plain_failures,
)
from strandline.cli.connect.record_words import bytes_json, shown, source_words, value_json
from strandline.cli.connect.topic_reading import Place, Span, newest, read_spans, spans_of, topics_of

if TYPE_CHECKING:
    from strandline.connect.herder.offset_store import OffsetState
    from strandline.connect.records import SinkRecord, SourceRecord
    from strandline.connect.tasks.conversion import Conversion, OutMessage

OFFSETS_TOPIC: Final = "connect-offsets"
_LOOK_S: Final = 0.1

MaxRecords = Annotated[int, typer.Option("--max", "-n", metavar="N", min=1, help="At most N records.")]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="Where to begin in a sink's topics: earliest, an offset, 10m-ago. By default the last N records.",
    ),
]
FromBeginning = Annotated[bool, typer.Option("--from-beginning", help="Read a source as if it had no stored position.")]


def preview(
    file: ConnectorFileName,
    name: OneName = None,
    records_max: MaxRecords = 10,
    begin: From = None,
    from_beginning: FromBeginning = False,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show what a connector would write: of a source its next records, of a sink what it would get of its topics.

    Nothing is written or committed, and no group is joined. A source goes on at its stored position. A bad record is
    shown with its error. A source that waits for its other side is left after --timeout seconds.
    """
    found, read = local_connector(file, name)
    output = Output(as_json=as_json)
    if found.plugin.kind == "source":
        if begin is not None:
            raise UsageFailed("--from is for sinks: a source begins at its stored position, or with --from-beginning")
        count = _Source(output, found, records_max, timeout).show(
            _stored(read, file, found, bootstrap, timeout, from_beginning)
        )
    else:
        if from_beginning:
            raise UsageFailed("--from-beginning is for sources: say --from earliest")
        with cluster_at(bootstrap, timeout) as cluster:
            messages = _messages(cluster, found.properties, records_max, begin)
            count = _show_sink(output, found, messages)
    if not count:
        output.talk(f"{found.name} has nothing to show")
    output.flush()


# Sources


def _stored(
    read: ConnectorFile, file: Path, found: LocalConnector, bootstrap: str | None, timeout_s: float, is_fresh: bool
) -> OffsetState:
    """Return the stored positions: those of `connect run` with this file, else those of a worker."""
    from strandline.connect.herder.offset_store import OffsetState

    state = OffsetState()
    if is_fresh:
        return state
    topics = [read.worker.get("offset.storage.topic"), f"connect-{file.stem}-offsets", OFFSETS_TOPIC]
    try:
        with cluster_at(bootstrap, timeout_s) as cluster:
            for topic in topics:
                if topic is not None and _read_state(cluster, topic, state) and state.of(found.name).all():
                    break
    except Unreachable:
        if bootstrap is not None:
            raise
        # Without a cluster nothing was ever stored.
    return state


def _read_state(cluster: Cluster, topic: str, state: OffsetState) -> bool:
    from strandline.connect.herder.config_state import StateRecord

    try:
        spans = spans_of(cluster, [topic])
    except NotFound:
        return False
    for batch in read_spans(cluster, spans):
        state.apply([StateRecord(each.key() or b"", each.value()) for each in batch])
    return True


class _Source:
    """Reads a source until it has given enough, or nothing for a while."""

    def __init__(self, output: Output, found: LocalConnector, records_max: int, timeout_s: float) -> None:
        self._output = output
        self._found = found
        self._left = records_max
        self._timeout_s = timeout_s
        self._count = 0
        self._conversion = found.conversion()
        self._topic = found.properties.get("topic", "")

    def show(self, state: OffsetState) -> int:
        """Print records. Return how many."""
        from strandline.connect.failures import ConnectFailed

        cls = self._found.connector_class
        with plain_failures(self._found.name):
            # One task has everything.
            tasks = cls.tasks(cls.Config(self._found.properties), 1)
        source = self._found.make(tasks[0] if tasks else None)
        try:
            asyncio.run(self._read(source, state))
        except ConnectFailed as error:
            raise CommandFailed(f"{self._found.name}: {error}") from error
        finally:
            self._conversion.close()
        return self._count

    async def _read(self, source: Any, state: OffsetState) -> None:
        from strandline.connect.tasks.calls import SourceBatches, TaskThreads

        threads = TaskThreads("preview")
        reader: SourceBatches | None = None
        try:
            await threads.call(source.open)
            reader = SourceBatches(threads, source.read(state.of(self._found.name)))
            while self._left > 0:
                pending = asyncio.ensure_future(reader.next())
                done, _ = await asyncio.wait([pending], timeout=self._timeout_s)
                if not done:
                    self._output.talk(f"{self._found.name} gave nothing more within {self._timeout_s:g} s")
                    source.stopping.set()
                    pending.cancel()
                    await asyncio.wait([pending], timeout=1)
                    return
                batch = pending.result()
                if batch is None:
                    return
                self._show(batch)
        finally:
            source.stopping.set()
            try:
                if reader is not None:
                    await reader.close()
            except (RuntimeError, ValueError):
                # A plain generator that still waits for its source cannot be closed.
                self._output.talk(f"{self._found.name} is left while it waits for its source")
            finally:
                await threads.call(source.close)
                threads.close()

    def _show(self, batch: Any) -> None:
        for record in _records_of(batch):
            if self._left <= 0:
                return
            self._left -= 1
            self._count += 1
            self._show_record(record)

    def _show_record(self, record: SourceRecord) -> None:
        bad: list[str] = []
        topic = record.topic or self._topic
        made = list(self._conversion.messages([record], self._topic, lambda error, raw: bad.append(str(error))))
        place = f"record {self._count} for {topic or 'no topic'}"
        if bad:
            _show_bad(self._output, place, bad[0], {"number": self._count, "topic": topic})
        elif not made:
            _show_dropped(self._output, place, {"number": self._count, "topic": topic})
        else:
            self._show_message(made[0])

    def _show_message(self, message: OutMessage) -> None:
        if self._output.as_json:
            told = {"number": self._count, "topic": message.topic, "partition": message.partition}
            told |= {"timestamp_ms": message.timestamp_ms, **bytes_json("key", message.key)}
            told |= bytes_json("value", message.value)
            headers = [{"name": name, **bytes_json("value", data)} for name, data in message.headers]
            self._output.json_line(told | {"headers": headers})
        else:
            self._output.line(source_words(message))


def _records_of(batch: Any) -> Iterator[SourceRecord]:
    from strandline.connect.records import SourceRecord

    if hasattr(batch, "records"):
        yield from batch.records
        return
    for value in batch.values:
        yield SourceRecord(value=value, value_schema=batch.value_schema, topic=batch.topic)


# Sinks


def _messages(cluster: Cluster, properties: Mapping[str, str], records_max: int, begin: str | None) -> list[Any]:
    spans = spans_of(cluster, topics_of(cluster, properties))
    if begin is None:
        return newest(cluster, spans, records_max)
    try:
        position = parse_position(begin, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise UsageFailed(str(error)) from None
    if isinstance(position, BeforeEnd):
        return newest(cluster, spans, min(position.count, records_max))
    found: list[Any] = []
    for batch in read_spans(cluster, _begun(cluster, spans, position), batch_max=records_max):
        found += batch
        if len(found) >= records_max:
            break
    return found[:records_max]


def _begun(cluster: Cluster, spans: Mapping[Place, Span], position: Position) -> dict[Place, Span]:
    from strandline.cli.common.client import admin_api
    from strandline.cli.common.positions import TimePosition
    from strandline.cli.topic.topics import look_up_offsets

    at_time: Mapping[Place, int | None] = {}
    if isinstance(position, TimePosition):
        spec = admin_api().OffsetSpec.for_timestamp(position.timestamp_ms)
        at_time = look_up_offsets(cluster, cluster.admin(), list(spans), spec)
    begun = {}
    for place, (start, end) in spans.items():
        told = at_time.get(place)
        at = None if told is None or told < 0 else told
        begun[place] = Span(start_offset(position, log_start_offset=start, end_offset=end, offset_at_time=at), end)
    return begun


def _show_sink(output: Output, found: LocalConnector, messages: list[Any]) -> int:
    from strandline.connect.failures import ConnectFailed
    from strandline.connect.tasks.conversion import raw_of

    with ExitStack() as ended:
        conversion = found.conversion()
        ended.callback(conversion.close)
        describe = _describer(found, output, ended)
        for message in messages:
            place = raw_of(message).place
            told = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
            bad: list[str] = []
            try:
                batch = _converted(conversion, message, bad)
                records = [] if bad else list(batch)
                if bad:
                    _show_bad(output, place, bad[0], told)
                elif not records:
                    _show_dropped(output, place, told)
                for record in records:
                    _show_sink_record(output, place, told, record, "" if describe is None else describe(record))
            except ConnectFailed as error:
                _show_bad(output, place, str(error), told)
    return len(messages)


def _converted(conversion: Conversion, message: Any, bad: list[str]) -> Any:
    return conversion.batch([message], lambda error, raw: bad.append(str(error)))


def _describer(found: LocalConnector, output: Output, ended: ExitStack) -> Any:
    """Return the sink's own words for a record, if it has some. It may have to look at its target."""
    from strandline.connect.failures import ConnectFailed

    if not hasattr(found.connector_class, "describe_write"):
        return None
    sink = found.make()
    methods = ended.enter_context(Methods())
    try:
        ended.enter_context(methods.opened(sink))
    except ConnectFailed as error:
        output.talk(f"what {found.plugin.name} would do with records is not shown: {error}")
        return None
    return lambda record: str(methods.call(sink.describe_write, record))


def _show_sink_record(output: Output, place: str, told: dict[str, Any], record: SinkRecord, description: str) -> None:
    key, value = value_json(record.key), value_json(record.value)
    if output.as_json:
        headers = [{"name": each.name, "value": value_json(each.value)} for each in record.headers]
        made = told | {"to": record.topic, "timestamp_ms": record.timestamp_ms, "key": key, "value": value}
        output.json_line(made | {"headers": headers, **({"write": description} if description else {})})
        return
    to = f"  as {record.topic}" if record.topic != told["topic"] else ""
    output.line(f"{place}{to}  key {shown(json.dumps(key, ensure_ascii=False))}  value {_value_words(value)}")
    for line in description.splitlines():
        output.line(f"    {line}")


def _value_words(value: Any) -> str:
    return "null (a tombstone)" if value is None else shown(json.dumps(value, ensure_ascii=False))


def _show_bad(output: Output, place: str, error: str, told: dict[str, Any]) -> None:
    sentence = " ".join(error.split())
    if output.as_json:
        output.json_line(told | {"error": sentence})
    else:
        output.line(f"{place}  bad: {sentence}")


def _show_dropped(output: Output, place: str, told: dict[str, Any]) -> None:
    if output.as_json:
        output.json_line(told | {"dropped": True})
    else:
        output.line(f"{place}  left out by a transform")
