"""`strandline connect lag`: how far sinks are behind their topics, and where sources are."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Annotated, Any, Final

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import NotFound
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.watching import EVERY_S_DEFAULT, Every, Watch, watch
from strandline.cli.connect.access import URL_DEFAULT, CaFile, TokenFile, WorkerUrl
from strandline.cli.connect.offsets import text
from strandline.cli.connect.worker_api import FAILED, ConnectApi, first_sentence
from strandline.cli.group.lag_counts import Lag
from strandline.cli.group.lag_reading import GroupLag, LagReading, PositionLag
from strandline.lag.verdict import LagVerdict, rate, span

GROUP_SETTING: Final = "consumer.override.group.id"


def lag(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="The connectors; without one, all.")
    ] = None,
    watching: Watch = False,
    every: Every = EVERY_S_DEFAULT,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show how far sinks are behind in each partition, in records and in time, and the positions of sources.

    A sink reads as the group connect-NAME, so its verdicts are those of `strandline group lag`. What a source has not
    read yet only its other side knows: --watch shows whether its position moves.
    """
    api = ConnectApi(url, timeout, ca=ca, token_file=token_file)
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    with ExitStack() as ended:
        looks = _Looks(api, cluster, output, names, ended)
        if watching:
            watch(output, looks.show, every_s=every)
        else:
            looks.show()
            output.flush()


class _Looks:
    """Looks at connectors again and again: rates and moves are known from the second one on."""

    def __init__(
        self, api: ConnectApi, cluster: Cluster, output: Output, names: list[str] | None, ended: ExitStack
    ) -> None:
        self._api = api
        self._cluster = cluster
        self._output = output
        self._names = names
        self._ended = ended
        self._groups: dict[str, LagReading] = {}
        self._moves: dict[tuple[str, str], tuple[str, float | None]] = {}
        """The position of each partition of a source, and when it was seen to move."""

    def show(self) -> None:
        """Look at all, and print it."""
        found = self._api.connectors(self._names)
        if not found and not self._output.as_json:
            self._output.talk("there are no connectors")
        for number, (name, each) in enumerate(found.items()):
            if number and not self._output.as_json:
                self._output.line("")
            if each["info"].get("type") == "sink":
                self._show_sink(name, each)
            else:
                self._show_source(name, each)

    # Sinks

    def _show_sink(self, name: str, found: dict[str, Any]) -> None:
        group = found["info"]["config"].get(GROUP_SETTING) or f"connect-{name}"
        seen = self._group_lag(group)
        if self._output.as_json:
            for position in () if seen is None else seen.positions:
                self._output.json_line(_position_json(name, group, position))
            return
        self._head(name, found, "sink")
        if seen is None:
            self._output.line("verdict    nothing read yet")
            return
        self._output.hanging("verdict    ", " " * 11, _verdict_words(seen))
        if seen.positions:
            columns = ["topic", "partition", "position", "end", "lag", "behind", "read", "written", "verdict"]
            self._output.table(columns, [_cells(each) for each in seen.positions])

    def _group_lag(self, group: str) -> GroupLag | None:
        reading = self._groups.get(group)
        if reading is None:
            reading = self._groups[group] = LagReading(self._cluster, group_id=group)
            self._ended.callback(reading.close)
        try:
            return reading.look()[0]
        except NotFound:
            # Its group is made by the first task that joins it.
            return None

    # Sources

    def _show_source(self, name: str, found: dict[str, Any]) -> None:
        told = self._api.ask("GET", "connectors", name, "offsets")["offsets"]
        now_s = time.monotonic()
        rows = [(text(each["partition"]), text(each["offset"])) for each in told]
        moved = [self._moved_s(name, partition, offset, now_s) for partition, offset in rows]
        if self._output.as_json:
            for each, ago_s in zip(told, moved, strict=True):
                self._output.json_line(
                    {"connector": name, "type": "source", **each, "moved_seconds_ago": ago_s and round(ago_s, 3)}
                )
            return
        self._head(name, found, "source")
        if not rows:
            self._output.line("verdict    no position yet")
            return
        cells = [
            [*row, "-" if ago_s is None else "just now" if not ago_s else f"{span(ago_s)} ago"]
            for row, ago_s in zip(rows, moved, strict=True)
        ]
        self._output.table(["partition", "position", "moved"], cells)

    def _moved_s(self, name: str, partition: str, offset: str, now_s: float) -> float | None:
        """Return how long ago a position was seen to move; None if it was not."""
        before, at_s = self._moves.get((name, partition), (offset, None))
        if before != offset:
            at_s = now_s
        self._moves[name, partition] = offset, at_s
        return None if at_s is None else now_s - at_s

    def _head(self, name: str, found: dict[str, Any], kind: str) -> None:
        status = found.get("status") or {}
        units = [status["connector"], *status["tasks"]] if status else []
        failed = [each for each in units if each["state"] == FAILED]
        state = units[0]["state"] if units else "UNASSIGNED"
        tasks = count(max(len(units) - 1, 0), "task")
        self._output.line(f"connector  {name} ({kind})")
        if failed:
            self._output.hanging("state      ", " " * 11, f"{FAILED}: {first_sentence(failed[0].get('trace'))}")
        else:
            self._output.line(f"state      {state}, {tasks}")


def _verdict_words(group: GroupLag) -> str:
    at = group.worst_position
    if at is None or at.judgement is None:
        return "no positions: nothing was read" if not group.positions else "unknown: partitions without a leader"
    if group.verdict is LagVerdict.OK:
        return f"ok: {count(group.lag, 'record')} unread" if group.lag else "ok: caught up"
    return f"{group.verdict}: {at.name}: {at.judgement.why}"


def _cells(position: PositionLag) -> list[object]:
    place: list[object] = [position.topic, position.partition]
    seen, judgement = position.figures, position.judgement
    if seen is None or judgement is None:
        return [*place, *["?"] * 6, "no leader"]
    return [
        *place,
        "-" if seen.committed is None else f"{seen.committed:,}",
        f"{seen.end:,}",
        "-" if seen.lag is None else str(Lag(seen.lag, seen.undecided, position.is_exact)),
        "-" if seen.lag is None else "?" if seen.lag_s is None else span(seen.lag_s),
        "-" if seen.consumed_per_s is None else rate(seen.consumed_per_s),
        "-" if seen.produced_per_s is None else rate(seen.produced_per_s),
        judgement.verdict,
    ]


def _position_json(name: str, group: str, position: PositionLag) -> dict[str, Any]:
    seen, judgement = position.figures, position.judgement
    told: dict[str, Any] = {
        "connector": name,
        "type": "sink",
        "group": group,
        "topic": position.topic,
        "partition": position.partition,
    }
    if seen is None or judgement is None:
        return told | {"error": "the partition has no leader"}
    return told | {
        "committed_offset": seen.committed,
        "end_offset": seen.end,
        "lag": seen.lag,
        "lag_is_exact": position.is_exact,
        "lag_seconds": None if seen.lag_s is None else round(seen.lag_s, 3),
        "verdict": str(judgement.verdict),
        "why": judgement.why,
    }
