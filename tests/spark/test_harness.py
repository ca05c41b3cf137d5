"""The short form of `make spark-chaos`: a few batches, a fault at the points that matter most."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.harness.__main__ import PROPERTIES, play
from tests.spark.harness.steps import named_steps
from tests.spark.harness.story import Story

from strandline.testing import embedded

SEED = 8
SHORT = ("committing process killed after-commit", "coordinator killed commit-sent")


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    print("seed", SEED)
    with embedded(nodes=3, properties=PROPERTIES) as cluster:
        story = Story(cluster, tmp_path, random.Random(SEED))
        yield story
        story.close()


def test_every_number_comes_out_once_whatever_is_killed(story: Story) -> None:
    steps = named_steps()
    play(story, {name: steps[name] for name in SHORT}, batches=0)
    story.finish()
    assert story.verdict() == []


PARTS = ("killed", "fails", "wakes", "other tasks", "drivers", "speculation", "checkpoint", "abandoned")


def test_no_step_is_left_out() -> None:
    assert [name for name in named_steps() if not any(part in name for part in PARTS)] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", PARTS)
def test_every_named_fault(story: Story, part: str) -> None:
    play(story, {name: step for name, step in named_steps().items() if part in name}, batches=0)
    story.finish()
    assert story.verdict() == []
