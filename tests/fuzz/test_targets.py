"""Every reader of strangers' bytes, fed with anything: a value or its declared error, nothing else."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.crash.harness import new_seed
from tests.fuzz.engine import Find, Target, failure, file_name, fuzz, kept, spoil
from tests.fuzz.targets import TARGETS

from strandline.errors import MalformedMessage

SHORT = 60
LONG = int(os.environ.get("STRANDLINE_FUZZ_EXAMPLES") or 20_000)
LONG_TIMEOUT_S = 1800
HYPOTHESIS_EXAMPLES = 40

SMALL_TARGETS = [name for name, target in TARGETS.items() if target.errors != (MalformedMessage,)]
"""Those that are no request: hypothesis looks for odd input of its own there."""


@pytest.mark.parametrize("name", TARGETS)
def test_the_sound_input_is_one(name: str) -> None:
    for seed in range(3):
        sound = TARGETS[name].sound(random.Random(seed))
        error = failure(TARGETS[name], sound)
        assert error is None, f"{sound.hex()}: {error!r}"


@pytest.mark.parametrize("name", TARGETS)
def test_spoilt_input(name: str) -> None:
    fuzz(TARGETS[name], SHORT, new_seed())


@pytest.mark.slow
@pytest.mark.timeout(LONG_TIMEOUT_S)
@pytest.mark.parametrize("name", TARGETS)
def test_spoilt_input_for_long(name: str) -> None:
    fuzz(TARGETS[name], LONG, new_seed())


@pytest.mark.parametrize("name", SMALL_TARGETS)
def test_any_bytes(name: str) -> None:
    @settings(max_examples=HYPOTHESIS_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=2000))
    @example(b"")
    def any_bytes(data: bytes) -> None:
        assert failure(TARGETS[name], data) is None

    any_bytes()


BY_FILE_NAME = {file_name(name): target for name, target in TARGETS.items()}


def test_what_once_broke_something() -> None:
    for name, path in kept():
        if name.startswith("live_"):
            continue  # For a running broker: tests/hostile/test_live_fuzz.py.
        assert name in BY_FILE_NAME, f"{path.name} belongs to no target: {name}"
        error = failure(BY_FILE_NAME[name], path.read_bytes())
        assert error is None, f"{path.name} breaks it again: {error!r}"


# The engine itself can find something, and says what.


def test_a_planted_bug_is_found_made_small_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fragile(data: bytes) -> None:
        if b"\x7f\xff" in data:
            raise ZeroDivisionError

    monkeypatch.setattr("tests.fuzz.engine.REGRESSIONS", tmp_path)
    with pytest.raises(Find, match=r"ZeroDivisionError.*seed 5"):
        fuzz(Target("fragile", fragile, (), lambda rng: bytes(50)), 2000, 5)
    (path,) = tmp_path.iterdir()
    assert path.read_bytes() == b"\x7f\xff"
    assert kept() == [("fragile", path)]


def test_spoiling_changes_almost_everything() -> None:
    rng = random.Random(1)
    sound = bytes(range(100))
    assert sum(spoil(sound, rng) != sound for _ in range(1000)) > 950
