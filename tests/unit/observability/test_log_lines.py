"""One event is one line, in text and in JSON."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from strandline.observability.log_lines import FIELD_CHARACTERS_MAX, JsonLines, TextLines, fields, set_up


def record(message: str, *args: object, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("strandline.broker", logging.INFO, "", 0, message, args, None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    made.__dict__.update(fields(**facts))
    return made


def test_json_has_the_sentence_and_the_facts() -> None:
    line = json.loads(JsonLines().format(record("closing %s", "1.2.3.4", host="1.2.3.4", bytes=-1, level="mine")))
    assert line == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "INFO",
        "logger": "strandline.broker",
        "message": "closing 1.2.3.4",
        "host": "1.2.3.4",
        "bytes": -1,
    }, "a fact never takes the place of what every line has"


def test_an_exception_is_part_of_its_line() -> None:
    made = record("it failed")
    try:
        raise RuntimeError("no\nluck")
    except RuntimeError:
        made.exc_info = sys.exc_info()
    text = JsonLines().format(made)
    assert "\n" not in text
    assert "RuntimeError: no\nluck" in json.loads(text)["exception"]


@pytest.mark.parametrize("nasty", ["a\nb", 'a"b', "\x00\x1b[31m", "\udcff", "é" * 5_000])
def test_what_a_peer_made_up_stays_within_its_line(nasty: str) -> None:
    text = JsonLines().format(record("topic %s", nasty, topic=nasty))
    assert "\n" not in text
    assert len(json.loads(text)["topic"]) <= FIELD_CHARACTERS_MAX + 3
    assert "\n" not in TextLines().format(record("topic %s", nasty))


def test_text_is_for_people() -> None:
    assert TextLines().format(record("closing %s", "x", host="x")).endswith(" INFO strandline.broker: closing x")


def test_set_up_twice_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        set_up()
        set_up(form="json", level="WARNING")
        logging.getLogger("strandline.x").info("not this")
        logging.getLogger("strandline.x").warning("this")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "this"
