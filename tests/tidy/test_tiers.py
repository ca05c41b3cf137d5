"""A node without tiered topics loads nothing of them, and what decides about segments touches nothing itself."""

from __future__ import annotations

import subprocess
import sys

from tests.tidy.sources import modules
from tests.tidy.test_imports import assert_touch_nothing

_LATE = (
    "strandline.tiers",
    "strandline.broker.tiering",
    "strandline.handlers.support.fetching.tiered_fetch",
    "obstore",
)
_SHOW = f"import sys, strandline.broker.node; print([each for each in sys.modules if each.startswith({_LATE})])"
MAY_NAME = ("strandline.tiers", "strandline.broker.tiering", "strandline.cli.storage")


def test_a_plain_node_imports_nothing_of_the_tiers() -> None:
    shown = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_only_the_drivers_import_the_tiers() -> None:
    wrong = [
        f"{each.place}:{found.line} imports {found.module}"
        for each in modules()
        for found in each.imports
        if found.module.startswith("strandline.tiers") and not each.name.startswith(MAY_NAME)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_decides_about_segments_touches_nothing_itself() -> None:
    """The object store is beside it."""
    deciding = [
        each
        for each in modules()
        if each.name.startswith("strandline.tiers.") and not f"{each.name}.".startswith("strandline.tiers.store.")
    ]
    assert len(deciding) > 5
    assert_touch_nothing(deciding)
