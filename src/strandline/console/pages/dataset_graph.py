"""The picture of datasets: topics and queries in columns, each to the right of what it reads (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

NODES_MAX: Final = 200
WIDTH: Final = 190
HEIGHT: Final = 46
GAP_X: Final = 60
GAP_Y: Final = 16
TEXT_MAX: Final = 24


@dataclass(frozen=True)
class DatasetNode:
    """Something that is read or written: a topic from outside, or a dataset of a pipeline with its query."""

    id: str
    label: str
    kind: str
    state: str = ""
    reads: tuple[str, ...] = ()
    """The ids of what its query reads."""
    pipeline: str = ""


def picture(nodes: Iterable[DatasetNode]) -> dict[str, Any] | None:
    """Return places of boxes and lines between them; None if there is nothing to draw."""
    known = {each.id: each for each in list(nodes)[:NODES_MAX]}
    if not known:
        return None
    columns = _near_readers(known, _columns(known))
    rows: dict[int, int] = {}
    boxes = []
    places: dict[str, tuple[int, int]] = {}
    for name in _ordered(known, columns):
        column = columns[name]
        row = rows.get(column, 0)
        rows[column] = row + 1
        place = places[name] = (column * (WIDTH + GAP_X), row * (HEIGHT + GAP_Y))
        each = known[name]
        boxes.append(
            {
                "x": place[0],
                "y": place[1],
                "label": each.label if len(each.label) <= TEXT_MAX else each.label[: TEXT_MAX - 1] + "…",
                "name": each.label,
                "kind": each.kind,
                "state": each.state,
                "pipeline": each.pipeline,
            }
        )
    lines = [
        {
            "x1": places[read][0] + WIDTH,
            "y1": places[read][1] + HEIGHT // 2,
            "x2": places[name][0],
            "y2": places[name][1] + HEIGHT // 2,
            "from": known[read].label,
            "to": each.label,
        }
        for name, each in known.items()
        for read in each.reads
        if read in known and read != name
    ]
    return {
        "boxes": boxes,
        "lines": lines,
        "width": (max(columns.values()) + 1) * (WIDTH + GAP_X) - GAP_X,
        "height": max(rows.values()) * (HEIGHT + GAP_Y) - GAP_Y,
        "box_width": WIDTH,
        "box_height": HEIGHT,
    }


def _columns(known: Mapping[str, DatasetNode]) -> dict[str, int]:
    """Return the column of each node: behind the last of those that it reads. A circle is cut where it is met."""
    found: dict[str, int] = dict.fromkeys(known, 0)
    # Each round moves at least one node to its last column, unless there is a circle.
    for _ in range(len(known)):
        moved = False
        for name, each in known.items():
            wanted = max((found[read] + 1 for read in each.reads if read in known and read != name), default=0)
            if found[name] < wanted < len(known):
                found[name], moved = wanted, True
        if not moved:
            return found
    # A circle has pushed its nodes to the right for nothing.
    used = {column: at for at, column in enumerate(sorted(set(found.values())))}
    return {name: used[column] for name, column in found.items()}


def _near_readers(known: Mapping[str, DatasetNode], columns: Mapping[str, int]) -> dict[str, int]:
    """Move what reads nothing beside its first reader, so that no line runs behind another box without need."""
    moved = dict(columns)
    for name, each in known.items():
        if not each.reads:
            readers = [columns[other] for other, node in known.items() if name in node.reads]
            moved[name] = max(0, min(readers) - 1) if readers else columns[name]
    return moved


def _ordered(known: Mapping[str, DatasetNode], columns: Mapping[str, int]) -> list[str]:
    """Return the nodes column by column, each near what it reads, so that few lines cross."""
    rows: dict[str, float] = {}
    ordered = []
    for column in sorted(set(columns.values())):
        inside = [name for name in known if columns[name] == column]
        inside.sort(key=lambda name: (_middle(known[name], rows), known[name].label))
        rows |= {name: float(at) for at, name in enumerate(inside)}
        ordered += inside
    return ordered


def _middle(node: DatasetNode, rows: Mapping[str, float]) -> float:
    found = [rows[each] for each in node.reads if each in rows]
    return sum(found) / len(found) if found else 0.0
