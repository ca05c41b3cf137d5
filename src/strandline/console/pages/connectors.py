"""Connectors: whether they run, why one does not, how far each is behind, and how to pause or restart it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlencode

from strandline.cli.common.failures import NotFound
from strandline.cli.common.plain_words import count, size
from strandline.cli.connect.offsets import text
from strandline.cli.connect.worker_api import restart_units, set_state
from strandline.cli.group.lag_reading import GroupLag, PositionLag
from strandline.console.context import PageContext
from strandline.console.declarations import (
    ActionDone,
    ActionField,
    ConsoleAction,
    ConsolePage,
    PageModule,
    PageQuery,
    PageTable,
    Values,
)
from strandline.console.failures import PageFailed
from strandline.console.reading.connect_reading import (
    SINKS_MAX,
    WORKERS,
    ShownConnector,
    read_connector,
    read_connectors,
    read_group_lag,
    read_inspection,
    read_lags,
    read_positions,
    shown_config,
    without_secrets,
)
from strandline.console.reading.user_cluster import TIMEOUT_S
from strandline.console.reading.web_services import asked, require_own_login, workers_of
from strandline.console.tables import TableHead
from strandline.lag.verdict import LagVerdict, span

WAIT_S: Final = 1.0
SCOPES: Final = ("itself and what failed", "everything", "only what failed")
_SCOPE_WORDS: Final = dict(zip(SCOPES, ((), ("--tasks",), ("--failed",)), strict=True))


def connector_path(name: str) -> str:
    """Return the page of a connector. Its name may have a slash, so that it stands in the query."""
    return f"/connectors/connector?{urlencode({'name': name})}"


HEADS: Final = (
    TableHead("connector", "Connector", "name", link=lambda row: connector_path(row["connector"])),
    TableHead("state", "State", "verdict"),
    TableHead("kind", "Kind", "text", is_wide=True),
    TableHead("running", "Tasks running", "number", "Of all tasks", is_wide=True),
    TableHead("tasks", "Tasks", "number", is_wide=True),
    TableHead("lag", "Unread records", "number", "Of a sink: what its consumer group has not read"),
    TableHead("class", "Class", "text", is_wide=True),
    TableHead("reason", "Why it failed", "text"),
)
UNIT_HEADS: Final = (
    TableHead("unit", "Part", "name"),
    TableHead("state", "State", "verdict"),
    TableHead("worker", "Worker", "text", is_wide=True),
    TableHead("reason", "Why it failed", "text"),
)
SINK_HEADS: Final = (
    TableHead("partition", "Partition", "name"),
    TableHead("position", "Position", "number", is_wide=True),
    TableHead("end", "End", "number", is_wide=True),
    TableHead("lag", "Unread records", "number"),
    TableHead("behind_s", "Behind", "span"),
    TableHead("verdict", "State", "verdict"),
)
SOURCE_HEADS: Final = (
    TableHead("partition", "Read from", "name"),
    TableHead("position", "Position", "text"),
)
CDC_HEADS: Final = (
    TableHead("table", "Table", "name"),
    TableHead("topic", "Topic", "text", link=lambda row: f"/topics/{quote(row['topic'], safe='')}"),
    TableHead("columns", "Columns", "number", is_wide=True),
    TableHead("key", "Key", "list"),
    TableHead("identity", "Replica identity", "text", is_wide=True),
)


async def connectors(context: PageContext) -> Mapping[str, Any]:
    """Answer whether the connectors run."""
    if not context.cluster.connect:
        # A cluster without connectors is no failure.
        context.reading.note("This console knows no Connect workers. Start it with --connect URL.")
    found = await read_connectors(context) if context.cluster.connect else {}
    sinks = {name: each.group for name, each in found.items() if each.kind == "sink"}
    lags = await context.reading.part("Lag of sinks", read_lags(context, sinks), {}, wait_s=WAIT_S) if sinks else {}
    if len(sinks) > SINKS_MAX:
        context.reading.note(f"The lag of {SINKS_MAX} sinks is shown; of the others their own pages show it.")
    rows = [
        {
            "connector": name,
            "state": each.state,
            "kind": each.kind,
            "running": each.running,
            "tasks": len(each.tasks),
            "lag": lags.get(name),
            "class": each.class_name,
            "reason": each.reason or None,
        }
        for name, each in found.items()
    ]
    return {
        "verdict": verdict(found.values()),
        "table": context.table(
            HEADS,
            rows,
            caption="Connectors",
            searched=("connector", "class", "state", "kind"),
            sort="connector",
            empty="There is no connector yet.",
        ),
    }


def verdict(found: Any) -> dict[str, str]:
    """Return the answer in one sentence, and its level."""
    every = list(found)
    failed = [each for each in every if each.state == "failed"]
    if failed:
        first = f"{failed[0].name}: {failed[0].reason}".rstrip(".")
        whole = f"{len(failed)} of {count(len(every), 'connector')} failed. {first}."
        return {"level": "problem", "text": whole}
    held = [each for each in every if each.state != "running"]
    if held:
        words = ", ".join(f"{each.name} is {each.state}" for each in held[:3])
        return {
            "level": "warning",
            "text": f"{len(every) - len(held)} of {count(len(every), 'connector')} run; {words}.",
        }
    if not every:
        return {"level": "unknown", "text": "There is no connector yet."}
    return {"level": "ok", "text": f"{'It runs' if len(every) == 1 else f'All {len(every)} connectors run'}."}


async def connector(context: PageContext) -> Mapping[str, Any]:
    """Answer how a connector is, and what it is behind."""
    name = context.query.get("name", "")
    if not name:
        raise PageFailed(400, "The address names no connector", "choose one of the list of connectors")
    found = await read_connector(context, name)
    model: dict[str, Any] = {
        "connector": name,
        "kind": found.kind,
        "state": found.state,
        "class": found.class_name,
        "tasks": f"{found.running} of {len(found.tasks)}",
        "traces": [
            {"unit": _unit(each.task), "trace": without_secrets(each.trace)} for each in found.units if each.trace
        ],
        "config": shown_config(found.config),
        "units": context.table(
            UNIT_HEADS,
            [
                {
                    "unit": _unit(each.task),
                    "state": each.state.lower(),
                    "worker": each.worker or None,
                    "reason": each.reason or None,
                }
                for each in found.units
            ],
            caption="Tasks",
            name="tasks",
            empty="It has not been started yet.",
        ),
        "cdc": None,
        "group": None,
    }
    lag: str = ""
    if found.kind == "sink":
        seen = await context.reading.part("Lag", read_group_lag(context, found.group), None, wait_s=WAIT_S)
        model |= {"group": found.group, "positions": _sink_table(context, seen)}
        lag = "" if seen is None else _lag_words(seen)
    else:
        told = await context.reading.part("Positions", read_positions(context, name), [], wait_s=WAIT_S)
        rows = [{"partition": text(each.get("partition")), "position": text(each.get("offset"))} for each in told]
        empty = "It has no position yet."
        model["positions"] = context.table(SOURCE_HEADS, rows, caption="Positions", name="positions", empty=empty)
        inspected = await context.reading.part("The database", read_inspection(context, name), {}, wait_s=WAIT_S)
        if inspected.get("database"):
            model["cdc"] = _cdc(context, inspected)
            lag = _cdc_words(inspected)
    return model | {"verdict": _one_verdict(found, lag, model["cdc"])}


def _one_verdict(found: ShownConnector, lag: str, cdc: Mapping[str, Any] | None) -> dict[str, str]:
    problems = list((cdc or {}).get("problems") or ())
    if found.state == "failed":
        return {"level": "problem", "text": f"It has failed: {found.reason.rstrip('.')}."}
    if problems:
        return {"level": "warning", "text": f"It is {found.state}, but {problems[0].rstrip('.')}."}
    if found.state != "running":
        return {"level": "warning", "text": f"It is {found.state}."}
    return {"level": "ok", "text": f"It runs{f', {lag}' if lag else ''}."}


def _lag_words(seen: GroupLag) -> str:
    at = seen.worst_position
    if seen.verdict is LagVerdict.OK or at is None or at.judgement is None:
        return f"with {count(seen.lag, 'unread record')}" if seen.lag else "and has read everything"
    return f"but is {seen.verdict}: {at.name}: {at.judgement.why}"


def _cdc_words(inspected: Mapping[str, Any]) -> str:
    behind, delay = inspected.get("behind_bytes"), inspected.get("behind_s")
    if behind is None:
        return ""
    return f"{size(int(behind))} behind its database" + (f", {span(float(delay))}" if delay else "")


def _sink_table(context: PageContext, seen: GroupLag | None) -> Any:
    rows = [_sink_row(each) for each in (() if seen is None else seen.positions)]
    empty = "It has not read anything yet."
    return context.table(SINK_HEADS, rows, caption="Positions", name="positions", empty=empty)


def _sink_row(position: PositionLag) -> dict[str, Any]:
    seen, judged = position.figures, position.judgement
    if seen is None or judged is None:
        return {"partition": position.name, "verdict": "unknown"}
    return {
        "partition": position.name,
        "position": seen.committed,
        "end": seen.end,
        "lag": seen.lag,
        "behind_s": seen.lag_s,
        "verdict": str(judged.verdict),
    }


def _cdc(context: PageContext, inspected: Mapping[str, Any]) -> dict[str, Any]:
    slot = inspected.get("slot") or {}
    return {
        "database": without_secrets(str(inspected["database"])),
        "server": inspected.get("server"),
        "snapshot": inspected.get("snapshot"),
        "behind_bytes": inspected.get("behind_bytes"),
        "behind_s": inspected.get("behind_s"),
        "slot": slot.get("name"),
        "slot_state": slot.get("wal_status") if slot.get("is_active") else "unread",
        "held_bytes": slot.get("held_bytes"),
        "problems": [without_secrets(str(each)) for each in inspected.get("problems") or ()],
        "tables": context.table(
            CDC_HEADS, inspected.get("tables") or (), caption="Tables", name="tables", searched=("table", "topic")
        ),
    }


def _unit(task: int | None) -> str:
    return "connector" if task is None else f"task {task}"


# Actions


async def _plan(context: PageContext, values: Values) -> Sequence[str]:
    require_own_login(context, context.cluster.connect, "the workers")
    found = await read_connector(context, values["connector"])
    return [f"it is {found.state} now, with {found.running} of {count(len(found.tasks), 'task')} running"]


async def restart(context: PageContext, values: Values) -> ActionDone:
    api, name = workers_of(context), values["connector"]
    require_own_login(context, context.cluster.connect, "the workers")
    words = _SCOPE_WORDS[values["scope"]]
    done = await _known(
        context, name, lambda: restart_units(api, name, tasks="--tasks" in words, failed="--failed" in words)
    )
    told = f"{name} restarts: {', '.join(done)}." if done else f"{name} has nothing to restart."
    return ActionDone(told, connector_path(name))


async def _change(verb: str, wanted: str, context: PageContext, values: Values) -> ActionDone:
    api, name = workers_of(context), values["connector"]
    require_own_login(context, context.cluster.connect, "the workers")
    told = await _known(context, name, lambda: set_state(api, name, verb, wanted, TIMEOUT_S))
    return ActionDone(f"{name} is {told['connector']['state']}.", connector_path(name))


async def _known(context: PageContext, name: str, work: Callable[[], Any]) -> Any:
    try:
        return await asked(context, WORKERS, work)
    except NotFound:
        raise PageFailed(404, f"There is no connector {name}", "see the list of connectors") from None


_NAME: Final = ActionField("connector", "Connector", is_fixed=True)


def _action(verb: str, wanted: str, consequence: str) -> ConsoleAction:
    run: Callable[[PageContext, Values], Awaitable[ActionDone]] = partial(_change, verb, wanted)
    return ConsoleAction(
        name=f"connector-{verb}",
        title=f"{verb.capitalize()} connector {{connector}}",
        button=verb.capitalize(),
        run=run,
        command=lambda values: ["connect", verb, values["connector"]],
        server="connect",
        plan=_plan,
        consequence=consequence,
        fields=(_NAME,),
        under="connectors",
    )


RESTART: Final = ConsoleAction(
    name="connector-restart",
    title="Restart connector {connector}",
    button="Restart",
    run=restart,
    command=lambda values: ["connect", "restart", values["connector"], *_SCOPE_WORDS.get(values["scope"], ())],
    server="connect",
    plan=_plan,
    consequence="{connector} begins again at its stored positions.",
    fields=(_NAME, ActionField("scope", "Restart", "choice", SCOPES[0], choices=SCOPES)),
    under="connectors",
)
MODULE: Final = PageModule(
    pages=(
        ConsolePage(
            name="connectors",
            path="/connectors",
            title="Connectors",
            question="Do the connectors run, and if one does not, why?",
            model=connectors,
            template="connectors.html",
            tables=(PageTable("table", HEADS),),
            group="Data",
        ),
        ConsolePage(
            name="connector",
            path="/connectors/connector",
            title="Connector",
            question="Does it run, how far is it behind, and how is it set?",
            model=connector,
            template="connector.html",
            tables=(PageTable("units", UNIT_HEADS, "tasks"), PageTable("positions", (*SINK_HEADS, *SOURCE_HEADS))),
            queries=(PageQuery("name", "The connector", is_required=True),),
            under="connectors",
        ),
    ),
    actions=(
        RESTART,
        _action("pause", "PAUSED", "The tasks of {connector} stay where they are and do nothing until it is resumed."),
        _action("resume", "RUNNING", "{connector} goes on at its stored positions."),
        _action("stop", "STOPPED", "The tasks of {connector} end. Its config and its positions stay."),
    ),
)
