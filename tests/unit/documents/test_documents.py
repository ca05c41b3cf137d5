"""YAML to values with their lines, and amounts as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.documents.fields import DocumentFailed, Fields
from strandline.documents.units import (
    duration_text,
    parse_byte_rate,
    parse_duration_ms,
    parse_rate,
    parse_retention_ms,
    parse_size,
    size_text,
)
from strandline.documents.yaml_text import DEPTH_MAX, TEXT_CHARACTERS_MAX, load_documents


def test_values_are_what_they_look_like() -> None:
    (document,) = load_documents(
        "a: 1\nb: -1\nc: 1.5\nd: true\ne: no\nf: 12:30\ng: '7'\nh: 2026-01-01\ni: ~\nj: 0777\nk: .inf\n"
    )
    assert document.value == {
        "a": 1,
        "b": -1,
        "c": 1.5,
        "d": True,
        "e": "no",
        "f": "12:30",
        "g": "7",
        "h": "2026-01-01",
        "i": None,
        "j": "0777",
        "k": ".inf",
    }


def test_lines_are_those_of_the_keys() -> None:
    (document,) = load_documents("a:\n  - b: 1\n    c:\n      d: 2\n")
    assert document.line_of(("a", 0, "c")) == 3
    assert document.line_of(("a", 0, "c", "d", "gone")) == 4


def test_documents_of_one_file() -> None:
    assert [each.value for each in load_documents("a: 1\n---\n---\nb: 2\n")] == [{"a": 1}, {"b": 2}]
    assert load_documents("# nothing\n") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: 2\na: 3\n", "'a' stands twice, first in line 1"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ("a: {<<: {b: 1}}\n", "merging"),
        ("? [a]\n: 1\n", "a key must be a word"),
        ("a: !!python/object/apply:os.system [x]\n", "no YAML|tag"),
        ("a: !!binary abcd\n", "tag"),
        ("a: [1\n", "no YAML"),
        ("[" * (DEPTH_MAX + 5) + "]" * (DEPTH_MAX + 5), "nested deeper"),
        ("[" * 100_000, "nested deeper"),
        ("a" * (TEXT_CHARACTERS_MAX + 1), "longer than"),
        ("a: \x00\n", "no YAML"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(DocumentFailed, match=words):
        load_documents(text)


@given(st.text(max_size=200))
def test_only_declared_errors_escape(text: str) -> None:
    try:
        documents = load_documents(text)
    except DocumentFailed:
        return
    for each in documents:
        assert each.value is not None


def test_fields_that_were_not_asked_for() -> None:
    fields = Fields({"name": "a", "nane": 1}, of="a thing")
    assert fields.text("name") == "a"
    with pytest.raises(DocumentFailed, match="a thing has no field 'nane': did you mean 'name'"):
        fields.done()


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("20ms", 20), ("1.5 s", 1500), ("5 minutes", 300_000), ("7d", 604_800_000), ("2w", 1_209_600_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


def test_rates_and_sizes() -> None:
    assert parse_rate("10 MB/s").bytes_per_s == 10e6
    assert parse_rate("3/min").records_per_s == pytest.approx(0.05)
    assert parse_rate("2k records per second").records_per_s == 2000
    assert parse_byte_rate("1 MiB/s") == 1 << 20
    assert parse_size("4 KiB") == 4096
    assert parse_retention_ms("forever") == -1


@pytest.mark.parametrize("text", ["10", "10 MB/x", "MB/s", "-1/s", "10 lines/s", "ten/s", "1/0s"])
def test_what_is_no_rate(text: str) -> None:
    with pytest.raises(ValueError, match="is no rate"):
        parse_rate(text)


@given(st.integers(1, 2**62))
def test_durations_and_sizes_come_back(number: int) -> None:
    # Beyond 2**53 a float is not exact, and no file writes such numbers.
    number %= 2**53
    assert parse_duration_ms(duration_text(number)) == number
    assert parse_size(size_text(number)) == number
