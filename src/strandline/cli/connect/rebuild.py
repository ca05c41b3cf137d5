"""`strandline connect rebuild`: a fresh target from the first record on, beside the old one, and then in its place."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster
from strandline.cli.common.failures import CommandFailed, ExitCode, Interrupted, UsageFailed, interrupted_by_sigterm
from strandline.cli.common.options import AsJson, GroundBootstrap, Timeout, Yes
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.common.progress import Progress
from strandline.cli.connect.access import CaFile, TokenFile
from strandline.cli.connect.comparing import Comparing, TargetComparison, lines_of, show
from strandline.cli.connect.local_connector import (
    ConnectorFileName,
    LocalConnector,
    Methods,
    OneName,
    cluster_at,
    local_connector,
    plain_failures,
)
from strandline.cli.connect.topic_reading import Place, Span, read_spans, spans_of, topics_of
from strandline.cli.connect.worker_api import ConnectApi, set_state

if TYPE_CHECKING:
    from strandline.connect.tasks.conversion import Conversion

AGAIN_S: Final = 0.5
AWAY_S_MAX: Final = 60.0
"""How long a target may be away before the command gives up. It goes on there when it is said again."""
_CATCH_UPS_MAX: Final = 20

Drop = Annotated[bool, typer.Option("--drop", help="Remove the targets that were replaced, and do nothing else.")]
Discard = Annotated[bool, typer.Option("--discard", help="Give up a rebuild that was not finished.")]
RebuildUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        envvar="STRANDLINE_CONNECT_URL",
        help="The worker that runs the connector: it is stopped for the swap, and goes on after it.",
    ),
]


def rebuild(
    file: ConnectorFileName,
    name: OneName = None,
    drop: Drop = False,
    discard: Discard = False,
    yes: Yes = False,
    url: RebuildUrl = None,
    ca: CaFile = None,
    token_file: TokenFile = None,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Read a sink's topics again from their first record into a fresh target, compare, and swap it in.

    The old target serves its readers until the swap, and is kept until --drop. If the command is interrupted, say it
    again: it goes on where it was. A connector that runs meanwhile is fenced by the swap, and goes on in the new one.
    """
    if drop and discard:
        raise UsageFailed("--drop and --discard cannot go together")
    found, _ = local_connector(file, name)
    output = Output(as_json=as_json)
    sink = found.sink("fresh_target", "rebuilt")
    api = None if url is None else ConnectApi(url, timeout, ca=ca, token_file=token_file)
    with Methods() as methods, plain_failures(found.name), methods.opened(sink):
        if drop:
            plan = [f"the targets of {found.name} that were replaced are removed"]
            confirm(output, plan, yes=yes, question="Remove them?", undone="nothing was removed")
            sink.drop_old()
            _tell(output, found.name, "dropped", "what was replaced is removed")
            return
        with methods.opened(sink.fresh_target()) as fresh:
            if discard:
                fresh.discard()
                _tell(output, found.name, "discarded", "the rebuild is given up; the target is as it was")
                return
            with (
                interrupted_by_sigterm(),
                cluster_at(bootstrap, timeout) as cluster,
                closing(found.conversion()) as conversion,
            ):
                rebuilding = _Rebuilding(cluster, conversion, found, methods, fresh, output)
                try:
                    rebuilding.run(sink, api, timeout, yes=yes)
                except Interrupted:
                    output.talk("interrupted: say it again to go on, or --discard to give it up")
                    raise


class _Rebuilding:
    """One rebuild under way."""

    def __init__(
        self,
        cluster: Cluster,
        conversion: Conversion,
        found: LocalConnector,
        methods: Methods,
        fresh: Any,
        output: Output,
    ) -> None:
        self._cluster = cluster
        self._conversion = conversion
        self._found = found
        self._methods = methods
        self._fresh = fresh
        self._output = output
        self._topics = topics_of(cluster, found.properties)
        self._positions: dict[Place, int] = {}
        self._tolerates = found.properties.get("errors.tolerance") == "all"
        self._left_out = 0

    def run(self, sink: Any, api: ConnectApi | None, timeout_s: float, *, yes: bool) -> None:
        """Fill the fresh target, compare both with the topics, and swap."""
        self._fill()
        new, old = self._compare(sink)
        self._check(new)
        if not self._output.as_json:
            for line in lines_of(old, "the old target"):
                self._output.talk(line)
            if old.first:
                self._output.talk(f"  the first: {old.first[0].place} {', '.join(old.first[0].key)}")
        self._ask(yes=yes)
        # A target that has no offsets of its own must not get records that the fresh one would lack.
        holding = getattr(self._fresh, "holding", nullcontext)
        with self._stopped(api, timeout_s), holding():
            # What came while the question was open.
            self._fill()
            self._fresh.swap()
        done = f"{self._found.name} has a new target with {count(new.rows, 'row')}; the old one is kept until --drop"
        _tell(self._output, self._found.name, "swapped", done, new=new.json(), old=old.json())

    @contextmanager
    def _stopped(self, api: ConnectApi | None, timeout_s: float) -> Iterator[None]:
        """Stop the connector at its worker for the time of the swap; then it is as it was before."""
        name = self._found.name
        if api is None or api.config(name) is None:
            yield
            return
        before = (api.connectors([name])[name].get("status") or {}).get("connector", {}).get("state")
        if before == "STOPPED":
            yield
            return
        self._output.talk(f"{name} is stopped for the swap")
        set_state(api, name, "stop", "STOPPED", timeout_s)
        try:
            yield
        finally:
            api.ask("PUT", "connectors", name, "pause" if before == "PAUSED" else "resume")

    def _fill(self) -> None:
        """Write everything that the topics hold; it goes on where the fresh target is."""
        from strandline.connect.records import TopicPosition

        for _ in range(_CATCH_UPS_MAX):
            whole = spans_of(self._cluster, self._topics)
            new = [TopicPosition(*place) for place in whole if place not in self._positions]
            if new:
                resumed = self._methods.call(self._fresh.resume, new)
                if resumed:
                    self._output.talk("going on with the target of an earlier rebuild (--discard gives it up)")
                self._positions |= {(each.topic, each.partition): resumed.get(each, 0) for each in new}
            spans = {
                place: Span(max(span.start, self._positions[place]), span.end)
                for place, span in whole.items()
                if max(span.start, self._positions[place]) < span.end
            }
            if not spans:
                return
            self._copy(spans)
        self._output.talk("the topics grow faster than they are read: the swap leaves the rest to the connector")

    def _copy(self, spans: Mapping[Place, Span]) -> None:
        total = sum(span.end - span.start for span in spans.values())
        with Progress("rebuilding", total=total, unit="records") as progress:
            for messages in read_spans(self._cluster, spans):
                batch = self._conversion.batch(messages, self._on_bad)
                if len(batch):
                    self._write(batch)
                for message in messages:
                    self._positions[message.topic(), message.partition()] = message.offset() + 1
                done = sum(min(self._positions[place], span.end) - span.start for place, span in spans.items())
                progress.reached(max(0, done))
        # Behind the last record there may be markers only.
        self._positions |= {place: span.end for place, span in spans.items()}
        self._methods.call(self._fresh.flush)

    def _on_bad(self, bad: Any, raw: Any) -> None:
        if not self._tolerates:
            raise bad
        self._left_out += 1

    def _write(self, batch: Any) -> None:
        """Write a batch, and again while the target is away. A record that fails is left out if that is tolerated."""
        from strandline.connect.failures import RecordFailed, RetriableFailure

        until = time.monotonic() + AWAY_S_MAX
        while len(batch):
            try:
                self._methods.call(self._fresh.write, batch)
                return
            except RecordFailed as error:
                if not self._tolerates or error.record is None:
                    raise
                self._left_out += 1
                batch = batch.keeping([each for each in batch if each is not error.record])
            except RetriableFailure:
                if time.monotonic() > until:
                    raise
                time.sleep(AGAIN_S)

    def _compare(self, sink: Any) -> tuple[TargetComparison, TargetComparison]:
        positions = dict(self._positions)
        new, old = Comparing(self._cluster, self._conversion, self._topics).run([self._fresh, sink], lambda: positions)
        return new, old

    def _check(self, new: TargetComparison) -> None:
        if not new.differences:
            return
        if not self._output.as_json:
            show(self._output, new, "the fresh target")
        raise CommandFailed(
            f"the fresh target of {self._found.name} is not what the topics say, and is not swapped in",
            hint="--discard gives it up; then begin again",
            code=ExitCode.UNHEALTHY,
        )

    def _ask(self, *, yes: bool) -> None:
        undone = "nothing was swapped: say it again to go on, or --discard to give it up"
        plan = ["the fresh target takes the place of the old one, which is kept until --drop"]
        if not yes and not sys.stdin.isatty():
            raise UsageFailed(undone, hint="say --yes to swap without asking")
        confirm(self._output, plan, yes=yes, question="Swap?", undone=undone)


def _tell(output: Output, name: str, outcome: str, words: str, **more: Any) -> None:
    if output.as_json:
        output.json_line({"connector": name, "outcome": outcome, **more})
    else:
        output.line(words)
    output.flush()
