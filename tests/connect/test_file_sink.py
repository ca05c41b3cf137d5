"""The file sink: each record once, also after a kill in the middle of a line."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.connect.sink_records import PLACE, batch, opened, record

from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.records import TopicPosition
from strandline.connect.sinks.files import FileSink

ROOT = Path(__file__).parents[2]


def sink_of(file: Path | str, **settings: str) -> Any:
    return opened(FileSink, {"file": str(file), **{name.replace("_", "."): value for name, value in settings.items()}})


def test_values_are_lines(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    sink = sink_of(file)
    assert sink.resume([PLACE]) == {}
    values = ["text", "zwei\u00a0ä", None, True, 7, 1e7, {"a": [1]}, b"raw\xff", Decimal("1.50"), date(2026, 1, 2)]
    sink.write(batch(record(0, "first"), record(1, "second")))
    sink.write(batch(*(record(offset, value) for offset, value in enumerate(values, 2))))
    sink.flush()
    sink.close()
    expected = ["first", "second", "text", "zwei\u00a0ä", "null", "true", "7", "1.0E7", '{"a":[1]}']
    assert file.read_bytes().split(b"\n") == [
        *(each.encode() for each in expected),
        b"raw\xff",
        b"1.50",
        b"2026-01-02",
        b"",
    ]


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    sink = sink_of(file, format="json")
    sink.resume([PLACE])
    sink.write(batch(record(0, "text\nmore"), record(1), record(2, {"b": b"\xff"})))
    sink.close()
    assert file.read_text() == '"text\\nmore"\nnull\n{"b":"/w=="}\n'
    sink = sink_of(tmp_path / "other", format="json")
    with pytest.raises(RecordFailed, match="orders-0 at offset 4"):
        sink.write(batch(record(3, 1), record(4, object())))
    sink.close()
    assert (tmp_path / "other").read_bytes() == b""


def test_what_was_not_flushed_is_cut_off_and_written_again(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    sink = sink_of(file)
    sink.resume([PLACE])
    sink.write(batch(record(0, "0"), record(1, "1")))
    sink.flush()
    sink.write(batch(record(2, "2")))
    sink.close()
    assert file.read_text() == "0\n1\n2\n"
    again = sink_of(file)
    assert again.resume([PLACE]) == {PLACE: 2}
    assert file.read_text() == "0\n1\n"
    again.write(batch(record(2, "2"), record(3, "3")))
    again.flush()
    again.close()
    assert file.read_text() == "0\n1\n2\n3\n"


def test_a_kill_at_any_byte_leaves_each_line_once(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tests.connect.killed_file_sink", str(tmp_path)], cwd=ROOT, check=True)
    files = list(tmp_path.glob("*.txt"))
    assert len(files) > 20
    for each in files:
        assert each.read_text().splitlines() == [f"line {offset}" for offset in range(20)], each.name


def test_a_file_of_someone_else_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    file.write_text("theirs, without newline")
    sink = sink_of(file)
    sink.resume([PLACE])
    sink.write(batch(record(0, "ours")))
    sink.close()
    again = sink_of(file)
    assert again.resume([PLACE]) == {}
    again.write(batch(record(0, "ours")))
    again.flush()
    again.close()
    assert file.read_text() == "theirs, without newline\nours\n"


def test_a_file_that_was_removed_begins_again_at_the_stored_offsets(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    sink = sink_of(file)
    sink.resume([PLACE])
    sink.write(batch(record(0, "0")))
    sink.flush()
    sink.close()
    file.unlink()
    again = sink_of(file)
    assert again.resume([PLACE]) == {PLACE: 1}
    again.write(batch(record(1, "1")))
    again.flush()
    again.close()
    assert file.read_text() == "1\n"


def test_plain_appending(tmp_path: Path) -> None:
    file = tmp_path / "out.txt"
    for _ in range(2):
        sink = sink_of(file, exactly_once="false")
        assert sink.resume([PLACE]) == {}
        sink.write(batch(record(0, "0")))
        sink.flush()
        sink.close()
    assert file.read_text() == "0\n0\n"
    assert [each.name for each in tmp_path.iterdir()] == ["out.txt"]


def test_a_file_for_each_partition(tmp_path: Path) -> None:
    settings = {"file": str(tmp_path / "${topic}-${partition}.txt")}
    assert len(FileSink.tasks(FileSink.Config(settings), 3)) == 3
    assert len(FileSink.tasks(FileSink.Config({"file": "one.txt"}), 3)) == 1
    sink = opened(FileSink, settings)
    other = TopicPosition("orders", 1)
    sink.resume([PLACE, other])
    both = batch(record(0, "a"), record(5, "b", partition=1), record(1, "c"))
    sink.write(both)
    sink.write(both)
    sink.flush()
    sink.revoked([other])
    assert (tmp_path / "orders-0.txt").read_text() == "a\nc\n"
    assert (tmp_path / "orders-1.txt").read_text() == "b\n"
    taken_over = opened(FileSink, settings)
    assert taken_over.resume([other]) == {other: 6}
    with pytest.raises(RetriableFailure, match="in use by another task"):
        taken_over.resume([PLACE])
    sink.close()
    taken_over.close()


def test_a_full_disk_leaves_whole_lines_and_is_tried_again(tmp_path: Path) -> None:
    import resource
    import signal

    file = tmp_path / "out.txt"
    sink = sink_of(file)
    sink.resume([PLACE])
    sink.write(batch(record(0, "0")))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(ConnectFailed, match="cannot be written"):
            sink.write(batch(record(1, "more than ten bytes")))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert file.read_text() == "0\n"
    sink.write(batch(record(1, "more than ten bytes")))
    sink.flush()
    sink.close()
    assert file.read_text() == "0\nmore than ten bytes\n"


def test_damaged_offsets_are_named(tmp_path: Path) -> None:
    (tmp_path / "out.txt.offsets").write_text("{")
    with pytest.raises(ConnectFailed, match=r"out\.txt\.offsets is damaged"):
        sink_of(tmp_path / "out.txt").resume([PLACE])


def test_only_allowed_paths_are_written(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to(tmp_path / "secret")
    for name in ("../out", "link", "/etc/out"):
        sink = FileSink(FileSink.Config({"file": os.path.join(allowed, name)}))
        sink.paths = PathRules([allowed])
        with pytest.raises(InvalidConnectorConfig, match="may not use the path"):
            sink.open()
