"""What a Python function does has a digest: which edits it shows, and which it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from strandline.pipelines.changes.function_code import digest_of_function

TEXT = '''
import logging
from collections import namedtuple

LIMITS = {"low": [1, 2], "high": {3, 4, 5, 600, 7000}}
logger = logging.getLogger("shop")
Row = namedtuple("Row", "a b")

class Base:
    def name(self):
        return "base"

class Keeper(Base):
    """Keep."""
    size = 3

    def __init__(self, start):
        self.start = start

    @staticmethod
    def step(value):
        return value + 1

    @property
    def double(self):
        return self.start * 2

keeper = Keeper(5)

def helper(value, by=2):
    """Help."""
    return value * by

def made(limit):
    def inner(value):
        if value in {"a", "b", "c", "d", "e"}:
            logger.warning("%s", value)
        found = [helper(each) for each in LIMITS["low"]]
        return found, limit, keeper.double, keeper.step(1), keeper.name(), Row(1, 2), recursive(3)
    return inner

def recursive(value):
    return value and recursive(value - 1)

function = made(10)
'''


def digest(text: str) -> str:
    module = ModuleType("shop")
    sys.modules["shop"] = module
    try:
        exec(compile(text, "shop.py", "exec"), module.__dict__)
        function: Any = module.function  # type: ignore[attr-defined]
        return digest_of_function(function, own=("shop",))
    finally:
        del sys.modules["shop"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"""Help."""', '"""Assist."""'),
        ('"""Keep."""', '"""Hold."""  # For ever.'),
        ("def helper(value, by=2):", "\n\n# Above.\ndef helper(\n    value,\n    by=2,\n):"),
        ("found = [", "numbers = ["),
        ("class Keeper(Base):", "UNUSED = 5\n\nclass Keeper(Base):"),
    ],
)
def test_what_does_not_count(old: str, new: str) -> None:
    text = (
        TEXT.replace(old, new).replace("return found,", "return numbers,")
        if "numbers" in new
        else TEXT.replace(old, new)
    )
    assert text != TEXT
    assert digest(text) == digest(TEXT)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("value * by", "value + by"),
        ("by=2", "by=3"),
        ("made(10)", "made(11)"),
        ('"low": [1, 2]', '"low": [1, 3]'),
        ("Keeper(5)", "Keeper(6)"),
        ("return value + 1", "return value + 2"),
        ("self.start * 2", "self.start * 3"),
        ('return "base"', 'return "basis"'),
        ("size = 3", "size = 4"),
        ('"d", "e"', '"d", "f"'),
        ("recursive(value - 1)", "recursive(value - 2)"),
    ],
)
def test_what_counts(old: str, new: str) -> None:
    text = TEXT.replace(old, new)
    assert text != TEXT
    assert digest(text) != digest(TEXT)


def test_it_is_the_same_in_every_process() -> None:
    """Whatever the order of sets is there, and whatever lies where in memory."""
    code = "from tests.pipelines.test_function_code import TEXT, digest; print(digest(TEXT))"
    for seed in ("1", "2"):
        environ = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        assert ended.stdout.strip() == digest(TEXT)


def test_what_is_installed_counts_by_its_name() -> None:
    import json

    assert digest_of_function(json.dumps) != digest_of_function(json.loads)
    assert digest_of_function(len) == digest_of_function(len)
