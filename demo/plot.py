"""The story as a picture: what went in, what came out, and when something was dead in between."""

from __future__ import annotations

from pathlib import Path

from demo.dashboard import Outage, Sample

INK = "#1f2933"
FAINT = "#9aa5b1"
IN, COUNTED, PAIRS = "#c8553d", "#1b6ca8", "#3a7d44"
DEAD = "#f3d9a4"


def draw(path: Path, samples: list[Sample], outages: list[Outage], *, title: str, subtitle: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    style = {"font.size": 10, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK}
    with pyplot.rc_context({**style, "axes.edgecolor": FAINT, "axes.spines.top": False, "axes.spines.right": False}):
        figure, (upper, lower) = pyplot.subplots(
            2, 1, sharex=True, figsize=(9, 6), height_ratios=[3, 2], layout="constrained"
        )
        seconds = [sample.second for sample in samples]
        upper.plot(seconds, [sample.orders_in for sample in samples], color=IN, label="orders acknowledged by the log")
        counted = [sample.orders_counted for sample in samples]
        upper.step(seconds, counted, color=COUNTED, where="post", label="orders counted in the view")
        lower.step(
            seconds,
            [sample.pairs for sample in samples],
            color=PAIRS,
            where="post",
            label="pairs of an order and a click before it",
        )
        for axis in (upper, lower):
            axis.set_ylim(bottom=0)
            axis.margins(x=0.01)
            axis.grid(axis="y", color=FAINT, alpha=0.3, linewidth=0.6)
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            for outage in outages:
                axis.axvspan(outage.begin, max(outage.end, outage.begin + 0.4), color=DEAD, alpha=0.6, linewidth=0)
            axis.legend(loc="lower right", frameon=False)
        upper.set_ylim(top=upper.get_ylim()[1] * 1.15)  # Room for words above the lines.
        for outage in outages:
            place = (outage.begin, upper.get_ylim()[1])
            upper.annotate(
                f"kill -9\n{outage.what}", place, xytext=(4, -4), textcoords="offset points", va="top", fontsize=9
            )
        lower.set_xlabel("seconds")
        figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
        upper.set_title(subtitle, loc="left", fontsize=10, color=INK)
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
