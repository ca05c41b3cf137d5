"""The table of figures in README.md: when a run writes it, and what it then says."""

import pytest
from bench import front_page
from bench.figures import Figure, ratio_at_most
from bench.scenarios import SCENARIOS

QUIET, BUSY = "bare sockets", "bare sockets, beside one busy core"
ENVIRONMENT = {"commit": "abc1234", "date": "2026-11-17T18:00:00+00:00", "machine": "2 x core, 24 GB", "kafka": "4.3.1"}
CPU = "CPU per one-record request"
FIGURES = {
    "one-record": [
        Figure(f"{CPU}, plain", "us", [20.0, 22.0, 21.0], [42.0, 40.0, 44.0], target=ratio_at_most(1.2), note=QUIET),
        Figure(f"{CPU}, idempotent", "us", [60.0], [30.0], target=ratio_at_most(1.2), note=QUIET),
        Figure(f"{CPU}, plain", "us", [30.0], [40.0], target=ratio_at_most(1.2), note=BUSY),
    ],
}


def line_of(label: str, table: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"| {label}"))


def test_rewriting_changes_only_what_is_between_the_marks():
    page = f"# Page\n\n{front_page.BEGIN}\nold\n{front_page.END}\n\nrest\n"
    once = front_page.rewritten(page, "new\n")
    assert once == f"# Page\n\n{front_page.BEGIN}\nnew\n{front_page.END}\n\nrest\n"
    assert front_page.rewritten(once, "new\n") == once


def test_page_without_marks_is_not_rewritten():
    with pytest.raises(ValueError, match="figures: begin"):
        front_page.rewritten("# Page\n", "new\n")


def test_readme_has_the_marks():
    assert "new" in front_page.rewritten(front_page.PAGE.read_text(), "new\n")


def test_every_row_has_a_scenario():
    assert front_page.scenarios() <= SCENARIOS.keys()


def test_every_scenario_has_a_row_in_the_docs():
    page = (front_page.PAGE.parent / "docs" / "benchmarks.md").read_text()
    assert [name for name in SCENARIOS if f"`{name}`" not in page] == []


def test_table_names_its_run():
    table = front_page.block(FIGURES, ENVIRONMENT, "2026-11-17T1800-abc1234")
    assert "commit abc1234, 2026-11-17" in table
    assert "`bench/results/2026-11-17T1800-abc1234.json`" in table


def test_row_shows_its_figures_side_by_side_and_marks_what_missed_its_target():
    table = front_page.block(FIGURES, ENVIRONMENT, "run")
    quiet = line_of("CPU per one-record request, 32 bare connections", table)
    assert quiet.endswith("| 21 / 60 us | 42 / 30 | 0.50x / **2.00x** |")


def test_figures_of_the_same_name_are_distinguished_by_their_note():
    table = front_page.block(FIGURES, ENVIRONMENT, "run")
    busy = line_of("CPU per one-record request, the same beside one busy core", table)
    assert busy.endswith("| 30 / - us | 40 | 0.75x |")


def test_row_without_a_figure_says_so():
    assert line_of("memory after load", front_page.block(FIGURES, ENVIRONMENT, "run")).endswith("not measured | | |")


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({"is_whole": False}, "left something out"),
        ({"broken": ["one-record"]}, "one-record"),
        ({"commit": "abc1234+changes"}, "has changes"),
        ({"commit": "unknown"}, "no repository"),
        ({}, ""),
    ],
)
def test_only_a_whole_run_of_a_commit_writes_the_table(run, reason):
    found = front_page.reason_to_leave(**{"is_whole": True, "broken": [], "commit": "abc1234", **run})
    assert reason in found
    assert bool(found) == bool(reason)
