"""Patterns of members: RE2's syntax, whole names, limits, and a look at new topics alone."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.codec.internal_records import decode_coordinator_record
from strandline.codec.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from strandline.codec.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from strandline.coordinators.groups.consumer.regex_subscriptions import (
    PATTERN_BYTES_MAX,
    ResolvedRegex,
    check,
    from_value,
    regex_record,
    regex_tombstone,
    resolve,
)
from strandline.coordinators.groups.topics import FixedTopics, TopicFacts
from strandline.errors import ErrorCode, RequestError


def topics(*names: str) -> FixedTopics:
    return FixedTopics(TopicFacts(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), 1) for name in names)


def matched(pattern: str, *names: str) -> tuple[str, ...]:
    return resolve([pattern], topics(*names), {}, now_ms=5)[pattern].topics


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("orders", ("orders",)),
        ("orders.*", ("orders", "orders-eu", "orders.us")),
        ("(orders|users)", ("orders", "users")),
        ("orders|users.*", ("orders", "users")),
        (r"orders[-.]\w{2}", ("orders-eu", "orders.us")),
        ("(?i)ORDERS", ("orders",)),
        (r"\pL+", ("orders", "users")),
        (r"\x{6f}rders", ("orders",)),
        ("ö?users", ("users",)),
        ("nothing", ()),
        (".*", ("orders", "orders-eu", "orders.us", "users")),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, names: tuple[str, ...]) -> None:
    check(pattern)
    assert matched(pattern, "users", "orders.us", "orders-eu", "orders") == names


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(orders", "missing )"),
        ("*", "no argument for repetition operator"),
        ("[z-a]", "invalid character class range"),
        (r"(o)\1", "invalid escape sequence"),
        ("(?=orders)", "invalid perl operator"),
        ("a{1001}", "invalid repetition size"),
        ("a" * (PATTERN_BYTES_MAX + 1), "longer than"),
        ("(.{1,1000}a)" * 20, "too large"),
        ("(?:a?b?){900}", "too large"),
    ],
)
def test_what_re2_does_not_take_is_refused_in_kafkas_words(pattern: str, reason: str) -> None:
    with pytest.raises(
        RequestError, match=r"SubscribedTopicRegex `.*` is not a valid regular expression: .*"
    ) as refused:
        check(pattern)
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert reason in str(refused.value)


def test_what_is_refused_matches_nothing_where_another_broker_has_taken_it() -> None:
    assert matched("(.{1,1000}a)" * 20, "aa") == ()


@pytest.mark.parametrize("pattern", ["(x+x+)+y", "(a|a)*b", "(.*)" * 1000, "(" * 2000 + ")" * 2000])
def test_patterns_made_to_explode_do_not(pattern: str) -> None:
    # Python's own matcher would not come back from the first; RE2, counting groups, not from the last.
    check(pattern)
    assert matched(pattern, "x" * 249) in ((), ("x" * 249,))


def test_only_what_is_new_is_told() -> None:
    known = resolve(["a.*", "b.*"], topics("a1", "b1"), {}, now_ms=1)
    assert known == {"a.*": ResolvedRegex(("a1",), 1, 1), "b.*": ResolvedRegex(("b1",), 1, 1)}
    assert resolve(["a.*", "b.*"], topics("a1", "b1"), known, now_ms=2) == {}
    assert resolve(["a.*", "b.*"], topics("a1", "a2", "b1"), known, now_ms=3) == {
        "a.*": ResolvedRegex(("a1", "a2"), 2, 3)
    }


def test_a_pattern_matches_only_what_its_member_may_see() -> None:
    resolved = resolve([".*"], topics("open", "secret"), {}, now_ms=1, may_describe=lambda name: name == "open")
    assert resolved[".*"].topics == ("open",)


NAMES = st.sets(st.from_regex(r"[ab]{1,3}", fullmatch=True))


@settings(max_examples=30, deadline=None)
@given(before=NAMES, after=NAMES)
def test_to_look_at_what_changed_is_as_good_as_to_look_at_all(before: set[str], after: set[str]) -> None:
    patterns = ["a.*", "b+", ".*", "c"]
    known = resolve(patterns, topics(*before), {}, now_ms=1)
    quick = resolve(patterns, topics(*after), known, now_ms=2, changed=before ^ after)
    assert quick == resolve(patterns, topics(*after), known, now_ms=2)


def test_records_hold_all_of_it() -> None:
    resolved = ResolvedRegex(("a1", "a2"), 7, 1_000)
    key, value = decode_coordinator_record(*regex_record("g", "a.*", resolved))
    assert isinstance(key, ConsumerGroupRegularExpressionKey)
    assert (key.group_id, key.regular_expression) == ("g", "a.*")
    assert isinstance(value, ConsumerGroupRegularExpressionValue)
    assert from_value(value) == resolved
    assert decode_coordinator_record(*regex_tombstone("g", "a.*"))[1] is None


def test_re2_is_not_loaded_before_the_first_pattern() -> None:
    script = "import sys, strandline.coordinators.groups.consumer.regex_subscriptions; assert 're2' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_the_library_a_pattern_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(RequestError, match="this node has no RE2 library"):
        check("a pattern that nothing has compiled yet")
