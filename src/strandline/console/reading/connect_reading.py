"""Connectors of a Connect cluster: state, tasks, reasons, lag, and settings without what is secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.common.failures import CommandFailed, NotFound
from strandline.cli.connect.worker_api import CLASS, FAILED, ConnectApi, first_sentence
from strandline.cli.group.lag_reading import GroupLag, LagReading
from strandline.console.context import PageContext
from strandline.console.failures import EXPECTED, PageFailed
from strandline.console.reading.web_services import asked, workers_of

WORKERS: Final = "The Connect worker"
CONNECTORS_S: Final = 3.0
LAG_S: Final = 10.0
SINKS_MAX: Final = 50
"""Sinks whose lag the list shows; the others show it on their own pages."""
TRACE_MAX: Final = 20_000
POSITIONS_MAX: Final = 1000
GROUP_SETTING: Final = "consumer.override.group.id"
HIDDEN: Final = "[hidden]"
_SECRET: Final = re.compile(
    r"passw|passphrase|secret|token|credential|jaas\.config|private|(api|access|account|sas|ssl)[._-]?key(?!store)|\.key$",
    re.IGNORECASE,
)
_IN_URL: Final = re.compile(r"//[^/@\s]*@")
_IN_QUERY: Final = re.compile(r"(?i)(passw(?:or)?d|pwd|secret|token|sig)=[^&;\s]+")
_REFERENCE: Final = re.compile(r"\$\{[^}]*\}")


@dataclass(frozen=True)
class ShownUnit:
    """A connector itself (`task` is None) or one of its tasks."""

    task: int | None
    state: str
    worker: str
    trace: str

    @property
    def reason(self) -> str:
        return without_secrets(first_sentence(self.trace))


@dataclass(frozen=True)
class ShownConnector:
    """A connector, as its worker describes it."""

    name: str
    kind: str
    config: Mapping[str, str]
    units: tuple[ShownUnit, ...]

    @property
    def class_name(self) -> str:
        return self.config.get(CLASS, "")

    @property
    def state(self) -> str:
        """`failed` if anything has failed, else the state of the connector itself."""
        if any(each.state == FAILED for each in self.units):
            return FAILED.lower()
        return self.units[0].state.lower() if self.units else "unassigned"

    @property
    def tasks(self) -> tuple[ShownUnit, ...]:
        return self.units[1:]

    @property
    def running(self) -> int:
        return sum(each.state == "RUNNING" for each in self.tasks)

    @property
    def reason(self) -> str:
        return next((each.reason or "it gives no reason" for each in self.units if each.state == FAILED), "")

    @property
    def group(self) -> str:
        """The consumer group of a sink."""
        return self.config.get(GROUP_SETTING) or f"connect-{self.name}"


async def read_connectors(context: PageContext) -> dict[str, ShownConnector]:
    """Return all connectors by their names."""
    api = workers_of(context)

    def read() -> dict[str, ShownConnector]:
        return {name: info_of(name, found) for name, found in api.connectors().items()}

    return await context.reading.know("connectors", lambda: asked(context, WORKERS, read), CONNECTORS_S)


async def read_connector(context: PageContext, name: str) -> ShownConnector:
    """Return a connector, also one that is so new that it has no state. Raise PageFailed if there is none."""
    known = (await read_connectors(context)).get(name)
    if known is not None:
        return known
    api = workers_of(context)
    try:
        return await asked(context, WORKERS, lambda: info_of(name, api.connectors([name])[name]))
    except NotFound:
        raise PageFailed(404, f"There is no connector {name}", "see the list of connectors") from None


async def read_lags(context: PageContext, sinks: Mapping[str, str]) -> dict[str, int | None]:
    """Return how many records each sink has not read, by its name; `sinks` has their groups."""
    shared = context.reading.shared

    def read() -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for name, group in list(sinks.items())[:SINKS_MAX]:
            try:
                seen = _group_lag(context, group)
            except EXPECTED:
                # Of a group that the visitor may not see; its own page says so.
                continue
            found[name] = None if seen is None else seen.lag
        return found

    return await context.reading.know(("sink-lags", tuple(sinks)), lambda: shared.in_thread(read), LAG_S)


async def read_group_lag(context: PageContext, group: str) -> GroupLag | None:
    """Return the lag of a sink; None if it has not joined its group yet."""
    shared = context.reading.shared
    return await context.reading.know(
        ("sink-lag", group), lambda: shared.in_thread(lambda: _group_lag(context, group)), LAG_S
    )


async def read_positions(context: PageContext, name: str) -> list[Any]:
    """Return the positions of a source, as `{"partition", "offset"}`."""
    api = workers_of(context)

    def read() -> list[Any]:
        return list(api.ask("GET", "connectors", name, "offsets")["offsets"])[:POSITIONS_MAX]

    return await context.reading.know(("positions", name), lambda: asked(context, WORKERS, read), LAG_S)


async def read_inspection(context: PageContext, name: str) -> Mapping[str, Any]:
    """Return what the other side of a source says: slot, distance, tables. Empty for sources that do not tell."""
    api = workers_of(context)

    def read() -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = api.ask("GET", "connectors", name, "inspect")
        except CommandFailed:
            # Workers of other makers have no such route.
            return {}
        return found if isinstance(found, dict) else {}

    return await context.reading.know(("inspect", name), lambda: asked(context, WORKERS, read), LAG_S)


def info_of(name: str, found: Mapping[str, Any]) -> ShownConnector:
    """Return a connector of the answer of a worker."""
    info, status = found.get("info") or {}, found.get("status") or {}
    units: list[tuple[int | None, Any]] = [(None, status["connector"])] if "connector" in status else []
    units += [(int(each["id"]), each) for each in status.get("tasks") or ()]
    return ShownConnector(
        name,
        str(info.get("type") or status.get("type") or "unknown"),
        {str(key): str(value) for key, value in (info.get("config") or {}).items()},
        tuple(
            ShownUnit(
                task,
                str(each.get("state") or "UNASSIGNED"),
                str(each.get("worker_id") or ""),
                str(each.get("trace") or "")[:TRACE_MAX],
            )
            for task, each in units
        ),
    )


def shown_config(config: Mapping[str, str]) -> dict[str, str]:
    """Return settings for a page. Kafka's workers answer passwords as they are, so they are hidden here."""
    return {name: shown_setting(name, value) for name, value in sorted(config.items())}


def shown_setting(name: str, value: str) -> str:
    if _SECRET.search(name) and value and not _REFERENCE.fullmatch(value):
        return HIDDEN
    return without_secrets(value)


def without_secrets(text: str) -> str:
    """Return a text without the passwords of addresses in it."""
    return _IN_QUERY.sub(rf"\1={HIDDEN}", _IN_URL.sub(f"//{HIDDEN}@", text))


def _group_lag(context: PageContext, group: str) -> GroupLag | None:
    reading = LagReading(context.reading.cluster, group_id=group)
    try:
        return reading.look()[0]
    except NotFound:
        return None
    finally:
        reading.close()


def plugin_classes(api: ConnectApi) -> list[dict[str, str]]:
    """Return the classes of connectors that the worker has."""
    found = [
        {"class": str(each["class"]), "kind": str(each.get("type") or ""), "version": str(each.get("version") or "")}
        for each in api.ask("GET", "connector-plugins")
    ]
    return sorted(found, key=lambda each: (each["kind"], each["class"]))
