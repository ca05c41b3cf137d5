"""`strandline cdc verify`: whether a replica has the rows that its database had at one position of the WAL.

A snapshot of the database has a position. When the sink has written everything up to it, the rows of the snapshot go
through the converters and transforms of source and sink, as changes do, and each is compared by digest. What differs is
compared with the changes that came after the position: neither the database nor the replica has to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster
from strandline.cli.common.failures import CommandFailed, ExitCode, NotFound, UsageFailed
from strandline.cli.common.options import AsJson, GroundBootstrap, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.progress import Progress
from strandline.cli.connect.access import URL_DEFAULT, CaFile, TokenFile, WorkerUrl
from strandline.cli.connect.comparing import Comparing, show, stored_offsets
from strandline.cli.connect.local_connector import (
    ConnectorFileName,
    LocalConnector,
    Methods,
    cluster_at,
    local_connector,
    plain_failures,
)
from strandline.cli.connect.topic_reading import Place, Span, read_spans, spans_of, topics_of
from strandline.cli.connect.worker_api import ConnectApi

if TYPE_CHECKING:
    from strandline.cdc.model import ComparableSource
    from strandline.connect.tasks.conversion import Conversion, OutMessage

WAIT_S_DEFAULT: Final = 120.0
LOOK_S: Final = 0.5


def verify(
    path: ConnectorFileName,
    source: Annotated[str, typer.Option("--source", metavar="NAME", help="The source, if the file has several.")] = "",
    sink: Annotated[str, typer.Option("--sink", metavar="NAME", help="The sink, if the file has several.")] = "",
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="How long the sink may take to reach the position.")
    ] = WAIT_S_DEFAULT,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Compare a database with its replica at one position of the WAL, while both go on. Exit code 5 if they differ.

    FILE has the source that captures changes, and the sink that writes the replica; a worker runs both.
    """
    api, output = ConnectApi(url, timeout, ca=ca, token_file=token_file), Output(as_json=as_json)
    captured, written = _pair(path, source, sink)
    with (
        cluster_at(bootstrap, timeout) as cluster,
        plain_failures(captured.name),
        closing(captured.conversion()) as outgoing,
        closing(written.conversion()) as incoming,
        Methods() as methods,
        methods.opened(captured.make()) as database,
        methods.opened(written.sink("digests", "compared")) as target,
    ):
        follower = _Follower(cluster, api, captured, written, wait)
        # A source that has not begun has no publication, and so no tables that could be compared.
        follower.wait_begun()
        # Before the snapshot: every record behind these offsets may be one that the snapshot does not have.
        ends = follower.ends()
        position, rows = database.rows_now()
        # Before rows are looked at, because it makes topics and tables that a new source does not have yet.
        follower.wait_for(database, position)
        comparing = Comparing(cluster, incoming, topics_of(cluster, written.properties))
        begin = {place: ends.get(place, span.start) for place, span in spans_of(cluster, comparing.topics).items()}
        batches = _messages(outgoing, captured.properties.get("topic", ""), rows, comparing.topics)
        outcome, digest = comparing.run_rows(target, batches, begin, follower.stored)
    if as_json:
        shown = {"source": captured.name, "sink": written.name, "position": position.text, "digest": digest}
        output.json_line({**shown, **outcome.json()})
    else:
        output.line(f"at {position.text} the database has {count(outcome.rows, 'row')}, digest {digest[:16]}")
        show(output, outcome, f"the target of {written.name}")
    output.flush()
    if outcome.differences:
        raise CommandFailed(
            f"{written.name} differs from the database in {count(outcome.differences, 'row')}",
            hint=f"`strandline connect verify {path} --name {written.name}` tells whether it differs from the topics",
            code=ExitCode.UNHEALTHY,
        )


def _pair(path: Any, source: str, sink: str) -> tuple[LocalConnector, LocalConnector]:
    """Return the source and the sink of a file. Raise UsageFailed if it is not clear which."""
    from strandline.cli.connect.connector_files import read_connector_file

    made = {name: local_connector(path, name)[0] for name in read_connector_file(path).connectors}
    found = []
    for kind, wanted, offers in (("source", source, "rows_now"), ("sink", sink, "digests")):
        if wanted and wanted not in made:
            raise NotFound(f"{path} has no connector {wanted!r}", hint=f"it has {', '.join(made)}")
        fitting = [each for each in made.values() if each.plugin.kind == kind and (not wanted or each.name == wanted)]
        fitting = [each for each in fitting if hasattr(each.connector_class, offers)]
        if len(fitting) != 1:
            names = ", ".join(each.name for each in fitting) or "none"
            raise UsageFailed(f"{path} has to have one {kind} that can be compared, and has {names}: say --{kind}")
        found.append(fitting[0])
    return found[0], found[1]


@dataclass(frozen=True)
class _SnapshotMessage:
    """A row as the message of librdkafka that a sink's conversion takes."""

    made: OutMessage
    number: int

    def topic(self) -> str:
        return self.made.topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes | None:
        return self.made.key

    def value(self) -> bytes | None:
        return self.made.value

    def timestamp(self) -> tuple[int, int]:
        return 1, self.made.timestamp_ms or 0

    def headers(self) -> Any:
        return self.made.headers

    def error(self) -> None:
        return None


def _messages(
    conversion: Conversion, topic: str, rows: Iterator[list[Any]], topics: Any
) -> Iterator[list[_SnapshotMessage]]:
    """Yield the rows as messages, those that go to the sink's topics."""
    number, wanted = 0, frozenset(topics)
    with Progress("reading the database", total=None, unit="rows") as progress:
        for records in rows:
            batch = []
            for made in conversion.messages(records, topic, _refuse):
                if made.topic in wanted:
                    batch.append(_SnapshotMessage(made, number))
                    number += 1
            yield batch
            progress.advance(len(records))


def _refuse(bad: Any, raw: Any) -> None:
    raise CommandFailed(f"a row of the database cannot be converted: {bad}")


class _Follower:
    """Waits until source and sink have reached a position."""

    def __init__(
        self, cluster: Cluster, api: ConnectApi, source: LocalConnector, sink: LocalConnector, wait_s: float
    ) -> None:
        self._cluster = cluster
        self._api = api
        self._source = source
        self._sink = sink
        self._wait_s = wait_s
        self._until_s = time.monotonic() + wait_s

    def ends(self) -> Mapping[Place, int]:
        """Return where the topics end; those that there are."""
        try:
            topics = topics_of(self._cluster, self._sink.properties)
        except NotFound:
            return {}
        return {place: span.end for place, span in spans_of(self._cluster, topics).items()}

    def stored(self) -> Mapping[Place, int]:
        """Return the offsets that the sink has stored."""
        from strandline.connect.herder.sink_positions import read
        from strandline.connect.tasks.sink_task import group_of

        return stored_offsets(read(self._cluster.servers, group_of(self._sink.name, self._sink.properties)))

    def wait_begun(self) -> None:
        """Wait until the source has a position. Raise CommandFailed if that takes too long."""
        self._wait(lambda: bool(self._source_offsets()), f"{self._source.name} has captured nothing")

    def _source_offsets(self) -> list[Mapping[str, Any]]:
        told = self._api.ask("GET", "connectors", self._source.name, "offsets")
        return [each["offset"] for each in told["offsets"]]

    def wait_for(self, database: ComparableSource, position: Any) -> None:
        """Wait for the source, then for the sink. Raise CommandFailed if that takes too long."""

        def source_is_there() -> bool:
            return any(database.has_reached(each, position) for each in self._source_offsets())

        self._wait(source_is_there, f"{self._source.name} has not reached {position.text}")
        ends = spans_of(self._cluster, topics_of(self._cluster, self._sink.properties))

        def sink_is_there() -> bool:
            stored = self.stored()
            left = {place: Span(max(span.start, stored.get(place, 0)), span.end) for place, span in ends.items()}
            # Offsets between a stored one and the end may be markers of transactions only.
            return next(read_spans(self._cluster, left), None) is None

        self._wait(sink_is_there, f"{self._sink.name} has not written what was captured")

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        while not is_there():
            if time.monotonic() > self._until_s:
                raise CommandFailed(
                    f"{what} within {self._wait_s:g} s", hint="`strandline cdc status` and `strandline connect lag`"
                )
            time.sleep(LOOK_S)
