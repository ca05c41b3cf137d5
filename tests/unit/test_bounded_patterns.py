"""Expressions that people write are taken; those that could take for ever are not."""

from __future__ import annotations

import time

import pytest

from strandline.errors import InvalidConfig
from strandline.runtime.bounded_patterns import MATCHED_CHARACTERS_MAX, bounded_pattern, matches

SOUND = [".*", "kafka-.*", "(java|librdkafka).*", r"3\.[0-9]+\.\d{1,2}", "^a$", "", "b[a-f]{3}c", "x(?:y|z)", "a?b"]
ENDLESS = [
    "(a+)+b", "(a|a)*b", "(a*)*", "(a?){40}a{40}", r"(a)\1", "(?=a+)b", "((a|b)*)+", ".*.*.*.*x", "a*" * 20,
    "(a{1,30}){1,30}", "(?>a+)+", "(?(1)a|b)", "(?:a+){2,3}", "(a|a)" * 40, "(a|a){40}b", "(?:a|b)?" * 9,
]  # fmt: skip
NONE = ["(", "[", "a{2,1}", "*", "(?P<n", "\\", "(" * 3000]


@pytest.mark.parametrize("expression", SOUND)
def test_sound(expression: str) -> None:
    bounded_pattern(expression)


@pytest.mark.parametrize("expression", ENDLESS)
def test_endless(expression: str) -> None:
    with pytest.raises(InvalidConfig):
        bounded_pattern(expression)


@pytest.mark.parametrize("expression", NONE, ids=lambda text: text[:10])
def test_none(expression: str) -> None:
    with pytest.raises(InvalidConfig, match=r"no regular expression|not allowed"):
        bounded_pattern(expression)


def test_a_match_is_of_the_whole_text_and_of_a_text_of_some_length() -> None:
    pattern = bounded_pattern("a.*")
    assert matches(pattern, "abc")
    assert not matches(pattern, "cab")
    assert matches(pattern, "a" * MATCHED_CHARACTERS_MAX)
    assert not matches(pattern, "a" * (MATCHED_CHARACTERS_MAX + 1))


@pytest.mark.parametrize("expression", ["a*a*a*b", "(a|a)(a|a)a*a*a*b", ".*a.*a.*b", "(?:a|aa)(?:a|aa)a*?a*?a*?b"])
def test_the_worst_that_is_allowed_takes_little(expression: str) -> None:
    """In processor time, and far from what a hundred thousand years would be."""
    pattern = bounded_pattern(expression)
    before = time.thread_time()
    assert not matches(pattern, "a" * MATCHED_CHARACTERS_MAX)
    used_ms = (time.thread_time() - before) * 1000
    print(f"{expression}: {used_ms:.1f} ms")
    assert used_ms < 1000
