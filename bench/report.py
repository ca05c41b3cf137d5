"""Prints the table, and writes the JSON and the plot of a run."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.figures import Figure, Verdict

RESULTS = Path(__file__).resolve().parent / "results"
_COLOURS = {Verdict.REACHED: "green", Verdict.MISSED: "red", Verdict.SHOWN: "dim", Verdict.UNKNOWN: "yellow"}


def table(figures: dict[str, list[Figure]]) -> Table:
    shown = Table(title="Strandline beside what it is held against", header_style="bold")
    for heading in ("scenario", "figure"):
        shown.add_column(heading)
    for heading in ("Strandline", "beside", "ratio", "rounds", "to before", "target"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    shown.add_column("note", style="dim")
    for scenario, rows in figures.items():
        for figure in rows:
            beside = f"{number(figure.beside_value)} {figure.beside_name}" if figure.beside else "-"
            low, high = figure.ratio_spread
            shown.add_row(
                scenario,
                figure.name,
                f"{number(figure.value)} {figure.unit}",
                beside,
                "-" if math.isnan(figure.ratio) else f"{figure.ratio:.2f}x",
                "-" if math.isnan(low) else f"{low:.2f}-{high:.2f}",
                "-" if math.isnan(figure.before_ratio) else f"{figure.before_ratio:.3f}x",
                str(figure.target or "-"),
                f"[{_COLOURS[figure.verdict]}]{figure.verdict}[/]",
                figure.note,
            )
        shown.add_section()
    return shown


def number(value: float) -> str:
    if math.isnan(value):
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_json(figures: dict[str, list[Figure]], environment: dict[str, Any], remarks: list[str]) -> str:
    rows = [
        {
            "scenario": scenario,
            **{key: part for key, part in asdict(figure).items() if key != "target"},
            "value": figure.value,
            "beside_value": _or_none(figure.beside_value),
            "ratio": _or_none(figure.ratio),
            "before_ratio": _or_none(figure.before_ratio),
            "ratio_spread": [_or_none(end) for end in figure.ratio_spread],
            "target": str(figure.target) if figure.target else None,
            "verdict": figure.verdict,
        }
        for scenario, rows in figures.items()
        for figure in rows
    ]
    text = json.dumps({"environment": environment, "remarks": remarks, "figures": rows}, indent=1) + "\n"
    # Where the work tree lies is nobody's business, and differs between machines.
    return text.replace(f"{RESULTS.parent.parent}/", "")


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def plot(figures: dict[str, list[Figure]], path: Path, title: str) -> None:
    """The ratios that have a target, on a log scale, each with its rounds and its target."""
    import matplotlib as mpl

    mpl.use("Agg")  # No display is needed, and none may be there.
    from matplotlib import pyplot

    rows = [
        (f"{figure.name}  ({scenario}, {figure.note or figure.beside_name})", figure)
        for scenario, scenario_rows in figures.items()
        for figure in scenario_rows
        if figure.target is not None and figure.target.of_ratio and not math.isnan(figure.ratio)
    ]
    if not rows:
        return
    chart, axes = pyplot.subplots(figsize=(11, 1.4 + 0.3 * len(rows)), layout="constrained")
    for height, (_, figure) in enumerate(rows):
        assert figure.target is not None
        colour = "#3a7d44" if figure.verdict is Verdict.REACHED else "#b23a48"
        axes.axhline(height, color="#dddddd", linewidth=0.6, zorder=0)
        axes.plot(figure.ratio_spread, [height, height], color=colour, linewidth=2)
        axes.plot(figure.ratio, height, "o", color=colour, markersize=7)
        # The triangle points to the side where the ratio should lie.
        axes.plot(figure.target.bound, height, "<" if figure.target.at_most else ">", color="#1f3b73", markersize=7)
        axes.text(1.01, height, f"{figure.ratio:.2f}x", transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1.0, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("ratio of Strandline to what stands beside it (dot), single rounds (line), target (triangle)")
    axes.set_title(title, fontsize=10)
    chart.savefig(path, dpi=130)
    pyplot.close(chart)


def save(figures: dict[str, list[Figure]], environment: dict[str, Any], remarks: list[str], name: str) -> list[Path]:
    RESULTS.mkdir(exist_ok=True)
    written = [RESULTS / f"{name}.json"]
    written[0].write_text(as_json(figures, environment, remarks))
    title = f"Strandline {environment['commit']} beside Apache Kafka {environment['kafka']}, {environment['machine']}"
    plot(figures, RESULTS / f"{name}.png", title)
    if (RESULTS / f"{name}.png").exists():
        written.append(RESULTS / f"{name}.png")
    return written


def show(figures: dict[str, list[Figure]], remarks: list[str], console: Console) -> None:
    console.print(table(figures))
    for remark in remarks:
        console.print(f"- {remark}", style="yellow", markup=False)
    verdicts = [figure.verdict for rows in figures.values() for figure in rows]
    counts = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in (Verdict.REACHED, Verdict.MISSED, Verdict.UNKNOWN))
    console.print(f"Targets: {counts}.")
