"""The example with fifty workers on two partitions."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fifty_workers.py"
PICTURES = 300


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_fifty_workers_share_two_partitions(node: Any) -> None:
    spec = importlib.util.spec_from_file_location("fifty_workers", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    studio = example.run(node.bootstrap, pictures=PICTURES, workers=50)
    assert studio.done == Counter({b"picture %d" % number: 1 for number in range(PICTURES)})
    assert studio.rejected == [example.POISON]
    assert len(studio.workers) > 2, "more workers than partitions had work"
    assert studio.attempts == PICTURES + PICTURES // 10 + 1
