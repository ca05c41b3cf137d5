"""Audit: the newest lines of the audit topic, filtered, and how far chained topics are anchored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from strandline.cli.common.failures import NotFound
from strandline.cli.common.plain_words import count
from strandline.cli.common.positions import Earliest, Latest
from strandline.cli.records.reading import last_records, look_up_ranges
from strandline.cli.records.record import ReadRecord
from strandline.cli.security.audit_lines import AUDIT_TOPIC, AuditLines
from strandline.cli.security.audit_words import sentence_of
from strandline.cli.topic.topics import chosen_partitions, described
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery, PageTable
from strandline.console.tables import TableHead

AUDIT_S: Final = 5.0
RECORDS_DEFAULT: Final = 500
RECORDS_MAX: Final = 5000
KINDS: Final = ("everything", "denied")

HEADS: Final = (
    TableHead("time_ms", "When", "time"),
    TableHead("outcome", "Outcome", "verdict"),
    TableHead("principal", "Who", "name"),
    TableHead("host", "From", is_wide=True),
    TableHead("what", "What"),
    TableHead("count", "Times", "number", is_wide=True),
    TableHead("node", "Told by node", "number", is_wide=True),
)
CHAINS: Final = (
    TableHead("topic", "Topic", "name"),
    TableHead("partition", "Partition", "number"),
    TableHead("offset", "Anchored up to", "number"),
    TableHead("time_ms", "Last anchor", "time"),
)


async def audit(context: PageContext) -> Mapping[str, Any]:
    """Answer what clients changed and what was denied."""
    shared = context.reading.shared
    wanted = context.number("records", RECORDS_DEFAULT, least=1, most=RECORDS_MAX)
    kind = context.choice("show", KINDS)
    user = context.query.get("user", "").strip()
    records = await context.reading.know(
        ("audit", wanted), lambda: shared.in_thread(lambda: _read(context, wanted)), AUDIT_S
    )
    lines = list(AuditLines(user=user or None, denied=kind == "denied").wanted(records or ()))
    anchors = list(AuditLines(user=None, denied=False, anchors=True).wanted(records or ()))
    return {
        "verdict": verdict(records, lines, anchors),
        "fields": [
            {"name": "user", "label": "User", "value": user, "kind": "text"},
            {"name": "show", "label": "Show", "value": kind, "choices": list(KINDS)},
            {"name": "records", "label": "Newest records", "value": str(wanted), "kind": "number"},
        ],
        "is_there": records is not None,
        "table": context.table(
            HEADS,
            [_row(each) for each in lines],
            caption="Audit",
            searched=("principal", "what", "outcome", "host"),
            sort="-time_ms",
            empty="No line is like that." if records is not None else "There is no audit topic.",
        ),
        "chains": context.table(
            CHAINS,
            _chains(anchors),
            caption="Chained topics",
            name="chains",
            sort="topic",
            empty="No topic was anchored lately: strandline.audit.chain=true on a topic begins its chain.",
        ),
    }


def _read(context: PageContext, wanted: int) -> list[ReadRecord] | None:
    """Return the newest records of the audit topic; None if there is none, or the user may not see it."""
    cluster = context.reading.cluster
    admin = cluster.admin()
    try:
        partitions = chosen_partitions(described(cluster, admin, AUDIT_TOPIC), None)
    except NotFound:
        return None
    ranges = look_up_ranges(cluster, admin, AUDIT_TOPIC, partitions, Earliest(), Latest())
    return last_records(cluster, AUDIT_TOPIC, ranges, wanted)


def verdict(
    records: Sequence[ReadRecord] | None, lines: Sequence[Mapping[str, Any]], anchors: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the answer in one sentence, and its level."""
    if records is None:
        return {
            "level": "unknown",
            "text": f"This cluster has no topic {AUDIT_TOPIC}, or you may not see it. Strandline's nodes write it with "
            "an authorizer, with SASL, or with strandline.audit.enable=true.",
        }
    lost = sum(_times(each) for each in anchors if each.get("type") == "audit" and each.get("outcome") == "lost")
    if lost:
        return {"level": "problem", "text": f"The nodes could not keep {count(lost, 'line')}: the audit has gaps."}
    denied = sum(_times(each) for each in lines if each.get("outcome") == "denied")
    failed = sum(_times(each) for each in lines if each.get("type") == "login" and each.get("outcome") == "failure")
    if denied or failed:
        text = f"{count(denied, 'request')} denied and {count(failed, 'login')} failed, of what is shown."
        return {"level": "warning", "text": text}
    return {"level": "ok", "text": f"Nothing was denied in the newest {count(len(lines), 'line')}."}


def _times(line: Mapping[str, Any]) -> int:
    times = line.get("count", 1)
    return times if isinstance(times, int) and times > 0 else 1


def _row(line: Mapping[str, Any]) -> dict[str, Any]:
    outcome = str(line.get("outcome", "?"))
    return {
        "id": line.get("id"),
        "time_ms": _number(line.get("time_ms")),
        "outcome": "ok" if outcome == "success" else outcome,
        "principal": str(line.get("principal") or "an unknown client"),
        "host": None if line.get("host") is None else str(line["host"]),
        "what": sentence_of(dict(line)),
        "count": _times(line),
        "node": _number(line.get("node")),
    }


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _chains(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the last anchor of each partition, of those that were read."""
    found: dict[tuple[str, int | None], dict[str, Any]] = {}
    for line in lines:
        told = line.get("details")
        if line.get("type") == "anchor" and isinstance(told, dict):
            place, offset = (str(line.get("resource")), _number(told.get("partition"))), _number(told.get("offset"))
            if place not in found or (found[place]["offset"] or 0) <= (offset or 0):
                found[place] = {
                    "topic": place[0],
                    "partition": place[1],
                    "offset": offset,
                    "time_ms": _number(line.get("time_ms")),
                }
    return list(found.values())


PAGE: Final = ConsolePage(
    name="audit",
    path="/audit",
    title="Audit",
    question="Who changed what, who was denied, and is the record of it whole?",
    model=audit,
    template="audit.html",
    tables=(
        PageTable("table", HEADS),
        PageTable("chains", CHAINS),
    ),
    queries=(
        PageQuery("records", "How many of the newest lines are read"),
        PageQuery("show", "Which lines: a kind of the list on the page"),
        PageQuery("user", "Lines of this principal alone"),
    ),
    group="Access",
)
MODULE: Final = PageModule(pages=(PAGE,))
