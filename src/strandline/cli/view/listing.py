"""`strandline view list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.options import AsJson, GroundBootstrap, Timeout
from strandline.cli.common.output import Output
from strandline.cli.view.access import VIEWS_DEFAULT, Directory, desk_at

if TYPE_CHECKING:
    from strandline.views.definition import ViewDefinition
    from strandline.views.view_session import ViewSession


def list_views(
    views: Directory = VIEWS_DEFAULT,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """List views: where each comes from, its columns and key, and what is kept of it here."""
    output = Output(as_json=as_json)
    with desk_at(bootstrap, views, timeout) as desk:
        found = [_described(desk, name, definition) for name, definition in _listed(desk.views()).items()]
        if as_json:
            for each in found:
                output.json_line(each)
        elif found:
            columns = ["view", "from", "topic", "key", "columns", "rows kept", "records since", "as of"]
            output.table(columns, [_row(each) for each in found])
        else:
            output.talk("no views yet: declare one in a pipeline, or make one with `strandline view create`")


def _listed(known: dict[str, ViewDefinition]) -> dict[str, ViewDefinition]:
    """Return each view once, by the shortest name that means it."""
    found: dict[str, ViewDefinition] = {}
    for name, definition in sorted(known.items(), key=lambda each: (len(each[0]), each[0])):
        if definition not in found.values():
            found[name] = definition
    return dict(sorted(found.items()))


def _described(desk: ViewSession, name: str, definition: ViewDefinition) -> dict[str, Any]:
    from strandline.views.failures import ViewFailed

    view: dict[str, Any] = {
        "view": name,
        "kind": definition.kind,
        "pipeline": definition.pipeline or None,
        "version": definition.version or None,
        "topic": definition.topic,
        "key": list(definition.key),
        "columns": [column.words for column in definition.columns],
        "snapshots": 0,
        "rows_kept": None,
        "records_since": None,
        "as_of": None,
    }
    try:
        snapshots = desk.snapshots(name)
        view["snapshots"] = len(snapshots)
        if snapshots:
            view["rows_kept"] = snapshots[-1].rows
            view["records_since"] = desk.records_since(name, snapshots[-1].offsets)
            view["as_of"] = desk.reach([name]).words.removeprefix("as-of reaches back to ")
    except ViewFailed as error:
        view["problem"] = str(error)
    return view


def _row(view: dict[str, Any]) -> list[object]:
    by = f"{view['pipeline']} v{view['version']}, {view['kind']}" if view["pipeline"] else "by hand"
    kept = ("-" if view[name] is None else view[name] for name in ("rows_kept", "records_since"))
    # How far back it goes is known once it was read.
    last = view["as_of"] or view.get("problem", "-")
    return [view["view"], by, view["topic"], ", ".join(view["key"]), ", ".join(view["columns"]), *kept, last]
