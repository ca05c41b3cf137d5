"""Overview: is the cluster well, what changed, what to do. The verdict is that of `strandline cluster health`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final

from strandline.cli.cluster.state import ClusterState
from strandline.cli.common.plain_words import count
from strandline.cli.doctor.findings import Finding, Level
from strandline.client.metrics_history import ClusterHistory, read_history
from strandline.codec.messages.metrics_history_request import MetricsHistoryRequest
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, ConsoleStream, PageModule
from strandline.console.events import StreamEvent, rendered_again
from strandline.console.reading.changes import changes_between

CHANGES_MAX: Final = 50
CHART_MS: Final = 3_600_000
CHART_S: Final = 10.0
WAIT_S: Final = 1.0
_SERIES: Final = ("bytes_in", "bytes_out")
_LABELS: Final = {"bytes_in": "Written", "bytes_out": "Read"}
_ORDER: Final = {Level.PROBLEM: 0, Level.WARNING: 1, Level.NOTE: 2, Level.OK: 3}


async def overview(context: PageContext) -> Mapping[str, Any]:
    """Answer whether the cluster is well."""
    reading = context.reading
    state = await reading.state()
    findings, sizes, rates, chart, changes = await asyncio.gather(
        reading.part("The judgement", reading.findings(), [], wait_s=reading.patience_s("findings")),
        reading.part("Sizes", reading.sizes(), {}, wait_s=WAIT_S),
        reading.part("Rates", reading.rates(), {}, wait_s=min(WAIT_S, reading.patience_s("offsets"))),
        reading.part("Throughput", _chart(context), None, wait_s=WAIT_S),
        _changes(context, state),
    )
    return {
        "verdict": verdict(findings),
        "findings": [_as_object(each) for each in sorted(findings, key=lambda each: _ORDER[each.level])],
        "changes": changes,
        "figures": _figures(state, sizes, rates),
        "chart": chart,
    }


def verdict(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the answer in one sentence, and its level."""
    problems = sum(each.level is Level.PROBLEM for each in findings)
    warnings = sum(each.level is Level.WARNING for each in findings)
    if problems:
        more = f", and {count(warnings, 'warning')}" if warnings else ""
        return {"level": "problem", "text": f"Something is wrong: {count(problems, 'problem')}{more}."}
    if warnings:
        return {"level": "warning", "text": f"It works, but could be safer: {count(warnings, 'warning')}."}
    if not findings:
        return {"level": "unknown", "text": "It is not known how the cluster is."}
    return {"level": "ok", "text": "All is well."}


def _as_object(finding: Finding) -> dict[str, Any]:
    return {"level": str(finding.level), "check": finding.check, "text": finding.text, "advice": finding.advice}


def _figures(state: ClusterState, sizes: Mapping[str, int], rates: Mapping[str, float]) -> list[dict[str, Any]]:
    live, under, offline = len(state.live_brokers()), len(state.under_replicated()), len(state.offline())
    topics = len(state.topics)
    leader = None if state.quorum is None or state.quorum.leader_id < 0 else state.quorum.leader_id
    usable = [broker.disk.usable_bytes for broker in state.brokers if broker.disk is not None]
    room = min((each for each in usable if each is not None), default=None)
    return [
        {"label": "Brokers up", "value": f"{live} of {len(state.brokers)}", "is_bad": live < len(state.brokers)},
        {"label": "Topics", "value": topics, "kind": "number", "page": "/topics"},
        {"label": "Partitions", "value": len(state.partitions), "kind": "number"},
        {"label": "Without a leader", "value": offline, "kind": "number", "is_bad": offline > 0},
        {"label": "Replicas missing", "value": under, "kind": "number", "is_bad": under > 0},
        {"label": "Records a second", "value": round(sum(rates.values()), 1) if rates else None, "kind": "rate"},
        {"label": "Size, all replicas", "value": sum(sizes.values()) if sizes else None, "kind": "bytes"},
        {"label": "Least room on a disk", "value": room, "kind": "bytes"},
        {"label": "Leader of the quorum", "value": "–" if leader is None else f"node {leader}"},
    ]


async def _changes(context: PageContext, state: ClusterState) -> list[dict[str, Any]]:
    """Return what changed since the console looks at this cluster, the newest first."""
    memory = context.reading.shared.memory
    before = memory.get("overview.state")
    kept: deque[dict[str, Any]] = memory.setdefault("overview.changes", deque(maxlen=CHANGES_MAX))
    if before is not state:
        memory["overview.state"] = state
        if before is not None:
            now_ms = time.time_ns() // 1_000_000
            found = await context.reading.shared.in_thread(lambda: list(changes_between(before, state)))
            kept.extend({"at_ms": now_ms, "text": text} for text in found)
    return list(reversed(kept))


async def _chart(context: PageContext) -> dict[str, Any] | None:
    """Return the throughput of the last hour, as the nodes measured it themselves; None on other clusters."""
    reading = context.reading
    if not await reading.offers(MetricsHistoryRequest):
        return None
    # Of the client's own metadata, because it asks by the ids of brokers.
    brokers = sorted((await reading.metadata()).brokers)

    async def ask() -> ClusterHistory | None:
        def look(client: Any) -> ClusterHistory | None:
            client.topics([])
            return read_history(client, brokers, CHART_MS, list(_SERIES))

        return await reading.shared.ask(look)

    history = await reading.know(("history", CHART_MS, _SERIES), ask, CHART_S)
    found = None if history is None else next((each for each in history.charts if each.series), None)
    if found is None:
        return None
    length = len(next(iter(found.series.values())))
    return {
        "times": [(found.first_ms + at * found.step_ms) // 1000 for at in range(length)],
        "series": [
            {"label": _LABELS[name], "unit": "bytes/s", "values": found.series[name]}
            for name in _SERIES
            if name in found.series
        ],
    }


def _flow(context: PageContext, last_id: str) -> AsyncIterator[StreamEvent]:
    return rendered_again(context, lambda: overview(context), template="pages/overview_live.html", event="overview")


PAGE: Final = ConsolePage(
    name="overview",
    path="/",
    title="Overview",
    question="Is it well, what changed, and what is to do?",
    model=overview,
    template="overview.html",
    group="Cluster",
    has_charts=True,
)
MODULE: Final = PageModule(pages=(PAGE,), streams=(ConsoleStream("/live/overview", _flow),))
