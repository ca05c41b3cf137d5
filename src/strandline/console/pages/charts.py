"""Charts of the last day, as the nodes measured it themselves. A brush over time zooms, and the URL has the zoom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.cli.common.plain_words import count
from strandline.client.failures import ClusterFailed
from strandline.client.metrics_history import ChartSeries, ClusterHistory, read_history
from strandline.codec.messages.metrics_history_request import MetricsHistoryRequest
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery
from strandline.console.failures import PageFailed, denied
from strandline.errors import ErrorCode

CHARTS_S: Final = 10.0
POINTS_MAX: Final = 360
LARGEST_SHOWN: Final = 5
RANGES: Final = {"1h": 3600, "15m": 900, "6h": 21_600, "24h": 86_400}
ORDER: Final = ("15m", "1h", "6h", "24h")
_LATEST_S: Final = 2**41

# Title, unit, and the series with their labels.
FIXED: Final = (
    ("throughput", "Throughput", "bytes/s", {"bytes_in": "Written", "bytes_out": "Read"}),
    ("records", "Records written, and requests", "/s", {"records_in": "Records", "requests": "Requests"}),
    ("errors", "Errors in answers", "/s", {"errors": "Errors"}),
    ("latency", "Latency, p99", "ms", {"produce_p99_ms": "Produce", "fetch_p99_ms": "Fetch"}),
)
# Title, unit, how the names of the series begin and end.
LARGEST: Final = (
    ("lag", "Records unread, the groups that are furthest behind", "records", "group/", "/lag"),
    ("behind", "Time behind, the groups that are furthest behind", "s", "group/", "/seconds"),
    ("topics", "Written, the busiest topics", "bytes/s", "topic/", "/bytes_in"),
)


async def charts(context: PageContext) -> Mapping[str, Any]:
    """Answer how busy and how quick the cluster was."""
    reading = context.reading
    span = context.choice("range", tuple(RANGES))
    first_s, last_s = context.number("from", 0, most=_LATEST_S), context.number("to", 0, most=_LATEST_S)
    if bool(first_s) != bool(last_s) or first_s > last_s:
        raise PageFailed(400, "The times of the zoom are not allowed", "leave from and to out")
    begun: dict[str, Any] = {
        "range": span,
        "ranges": list(ORDER),
        "from": first_s or None,
        "to": last_s or None,
        "charts": [],
    }
    if not await reading.offers(MetricsHistoryRequest):
        note = "Only Strandline's nodes measure themselves: this cluster has no charts of its own."
        return {**begun, "verdict": {"level": "unknown", "text": note}}
    history = await _history(context, RANGES["24h"] if first_s else RANGES[span])
    if history is None or not any(each.series for each in history.charts):
        note = "There is nothing to draw yet: nodes measure every ten seconds, unless metrics.enable=false."
        return {**begun, "verdict": {"level": "unknown", "text": note}}
    for broker, why in sorted(history.silent.items()):
        reading.note(f"Node {broker} did not tell what it measured: {why}")
    drawn = [each for each in _drawn(history, first_s, last_s) if each["series"]]
    return {**begun, "charts": drawn, "verdict": verdict(history)}


async def _history(context: PageContext, seconds: int) -> ClusterHistory | None:
    brokers = sorted((await context.reading.metadata()).brokers)

    def look(client: Any) -> ClusterHistory | None:
        # Of the client's own metadata, because it asks by the ids of brokers.
        client.topics([])
        return read_history(client, brokers, seconds * 1000, None)

    try:
        return await context.reading.know(("charts", seconds), lambda: context.reading.shared.ask(look), CHARTS_S)
    except ClusterFailed as error:
        if ErrorCode.CLUSTER_AUTHORIZATION_FAILED.name in str(error):
            raise denied("see what the nodes measured", "DESCRIBE on the cluster") from None
        raise


def verdict(history: ClusterHistory) -> dict[str, str]:
    """Return the answer in one sentence: how busy and how quick it is at the end."""
    finest = min((each for each in history.charts if each.series), key=lambda each: each.step_ms)
    last = {name: _last(finest.series.get(name, ())) for name in ("records_in", "produce_p99_ms", "errors")}
    words = []
    if last["records_in"] is not None:
        words.append(f"{count(round(last['records_in']), 'record')} a second")
    if last["produce_p99_ms"] is not None:
        words.append(f"a Produce is answered within {last['produce_p99_ms']:,.1f} ms (p99)")
    if last["errors"]:
        words.append(f"{last['errors']:,.1f} errors a second")
    text = ", ".join(words) or "nothing was written or read lately"
    return {"level": "ok", "text": f"{text[:1].upper()}{text[1:]}."}


def _last(values: Sequence[float | None]) -> float | None:
    return next((each for each in reversed(values) if each is not None), None)


def _drawn(history: ClusterHistory, first_s: int, last_s: int) -> list[dict[str, Any]]:
    found = []
    for name, title, unit, labels in FIXED:
        for each in history.charts:
            named = {label: each.series[key] for key, label in labels.items() if key in each.series}
            if named:
                found.append(_chart(name, title, unit, each, named, first_s, last_s))
    for name, title, unit, begin, end in LARGEST:
        for each in history.charts:
            some = {
                key.removeprefix(begin).removesuffix(end): values
                for key, values in each.series.items()
                if key.startswith(begin) and key.endswith(end)
            }
            largest = sorted(some, key=lambda key: -max((value or 0.0 for value in some[key]), default=0.0))
            named = {key: some[key] for key in largest[:LARGEST_SHOWN]}
            if named:
                found.append(_chart(name, title, unit, each, named, first_s, last_s))
    return found


def _chart(
    name: str,
    title: str,
    unit: str,
    chart: ChartSeries,
    named: Mapping[str, Sequence[float | None]],
    first_s: int,
    last_s: int,
) -> dict[str, Any]:
    """Return a chart within the zoom, with so few points that a page carries them."""
    length = max(len(values) for values in named.values())
    begin, end = 0, length
    if first_s:
        begin = max(0, min(length, -(-(first_s * 1000 - chart.first_ms) // chart.step_ms)))
        end = max(begin, min(length, (last_s * 1000 - chart.first_ms) // chart.step_ms + 1))
    width = max(1, -(-(end - begin) // POINTS_MAX))
    is_worst = name in ("latency", "lag", "behind")
    return {
        "name": name,
        "title": title,
        "times": [(chart.first_ms + at * chart.step_ms) // 1000 for at in range(begin, end, width)],
        "series": [
            {"label": label, "unit": unit, "values": folded(values[begin:end], width, is_worst=is_worst)}
            for label, values in named.items()
        ],
    }


def folded(values: Sequence[float | None], width: int, *, is_worst: bool) -> list[float | None]:
    """Return one value for each `width`: the largest, or the mean. Steps without a value stay without."""
    found: list[float | None] = []
    for begin in range(0, len(values), width):
        known = [each for each in values[begin : begin + width] if each is not None]
        value = None if not known else max(known) if is_worst else sum(known) / len(known)
        found.append(None if value is None else round(value, 3))
    return found


PAGE: Final = ConsolePage(
    name="charts",
    path="/charts",
    title="Charts",
    question="How busy and how quick was the cluster, and who fell behind?",
    model=charts,
    template="charts.html",
    queries=(
        PageQuery("range", "How far back: 15m, 1h, 6h or 24h"),
        PageQuery("from", "Begin of the zoom, in seconds since 1970"),
        PageQuery("to", "End of the zoom, in seconds since 1970"),
    ),
    group="Cluster",
    has_charts=True,
)
MODULE: Final = PageModule(pages=(PAGE,))
