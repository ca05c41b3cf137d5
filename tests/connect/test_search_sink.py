"""SearchSink on real indexes of tantivy: what is found, that it is there once, and that there is one writer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.connect.sink_records import PLACE, TOPIC, batch, opened, record

from strandline.connect import schema
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sinks.search import SearchSink, search
from strandline.runtime.fault_points import VARIABLE, PlantedFault


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some" / "index"


@pytest.fixture
def sinks(path: Path) -> Iterator[Any]:
    made: list[SearchSink] = []

    def make(kind: type[SearchSink] = SearchSink, **more: str) -> Any:
        named = {name.replace("_", "."): value for name, value in more.items()}
        properties = {"name": "books", "index.path": str(path), "writer.memory.bytes": "15000000"} | named
        made.append(opened(kind, properties))
        return made[-1]

    yield make
    for each in made:
        each.close()


def ids(path: Path, query: str) -> list[str]:
    return sorted(hit.id for hit in search(path, query, 1000))


def book(offset: int, title: str, key: str = "", **more: Any) -> SinkRecord:
    return record(offset, {"title": title} | more, key or f"b{offset}")


def test_documents_are_found_by_their_text_and_attributes(path: Path, sinks: Any) -> None:
    sink = sinks(text_fields="title,tags")
    sink.write(
        batch(
            book(0, "Über den Fluss", tags=["old", "river"], price=7, author={"name": "Ada Lovelace"}),
            book(1, "The old bridge", price=30, at=datetime(2026, 1, 2, tzinfo=UTC), cost=Decimal("1.5"), raw=b"\xff"),
            book(2, "A bridge too far", price=9, tags=None),
        )
    )
    with pytest.raises(ConnectFailed, match="no index"):
        search(path.parent / "other", "x")
    assert search(path, "*") == []
    sink.flush()
    assert ids(path, "über") == ["b0"]
    assert ids(path, "bridge") == ["b1", "b2"]
    assert ids(path, '"old bridge"') == ["b1"]
    assert ids(path, "old") == ["b0", "b1"]
    assert ids(path, "attributes.price:[5 TO 10]") == ["b0", "b2"]
    assert ids(path, "attributes.author.name:lovelace") == ["b0"]
    assert ids(path, "*") == ["b0", "b1", "b2"]
    assert search(path, "fluss")[0].value["author"] == {"name": "Ada Lovelace"}
    assert len(search(path, "*", 2)) == 2
    with pytest.raises(ValueError, match="Syntax Error"):
        search(path, "title:[")


def test_a_key_has_one_document_and_a_tombstone_deletes_it(path: Path, sinks: Any) -> None:
    sink = sinks()
    sink.write(
        batch(book(0, "first", "k"), book(1, "second", "k"), book(2, "other", "schlüssel"), record(3, "x", b"\xff"))
    )
    sink.flush()
    assert ids(path, "*") == ["base64:/w==", "k", "schlüssel"]
    assert ids(path, "first") == []
    sink.write(batch(record(4, None, "k"), record(5, None, "never there"), record(6, None, b"\xff")))
    sink.flush()
    assert ids(path, "*") == ["schlüssel"]


def test_fields_come_from_the_schema_or_the_first_value(path: Path, sinks: Any, tmp_path: Path) -> None:
    described = schema.struct({"body": schema.OPTIONAL_STRING, "n": schema.INT64})
    sink = sinks()
    sink.write(batch(record(0, None, "gone")))
    sink.flush()
    assert not path.exists()
    sink.write(batch(record(1, {"body": None, "n": 1}, "a", value_schema=described), record(2, {"body": "sea"}, "b")))
    sink.flush()
    assert ids(path, "body:sea") == ["b"]
    text = opened(SearchSink, {"index.path": str(tmp_path / "text")})
    text.write(batch(record(0, "plain words", "a"), record(1, {"_id": "x", "title": "words"}, "b")))
    text.flush()
    text.close()
    assert ids(tmp_path / "text", "words") == ["a"]
    assert ids(tmp_path / "text", "attributes.title:words") == ["b"]


def test_documents_by_their_place_and_without_values(path: Path, sinks: Any) -> None:
    sink = sinks(document_id="record", stored="false")
    for _ in range(2):
        sink.write(batch(record(0, {"t": "a"}), record(1, {"t": "a"}), record(2, None)))
    sink.flush()
    assert ids(path, "a") == ["orders+0+0", "orders+0+1"]
    assert search(path, "a")[0].value is None


def test_a_task_goes_on_from_the_offsets_in_the_index(path: Path, sinks: Any) -> None:
    sink = sinks()
    sink.write(batch(book(0, "one"), record(7, {"title": "two"}, "p1", partition=1)))
    sink.flush()
    sink.write(batch(book(1, "lost")))
    sink.close()
    places = [PLACE, TopicPosition(TOPIC, 1), TopicPosition(TOPIC, 2)]
    later = sinks()
    assert later.resume(places) == {PLACE: 1, (TOPIC, 1): 8}
    assert ids(path, "lost") == []
    later.write(batch(book(0, "changed", "b0"), book(1, "found")))
    later.flush()
    later.flush()
    later.close()
    # A record below the stored offset is in the index already.
    assert ids(path, "changed") == []
    assert ids(path, "found") == ["b1"]
    assert sinks(name="another").resume(places) == {}


def test_partitions_that_come_back_are_committed_first(path: Path, sinks: Any) -> None:
    sink = sinks()
    sink.write(batch(book(0, "one"), book(1, "two")))
    sink.revoked([PLACE])
    assert sink.resume([PLACE]) == {PLACE: 2}
    assert ids(path, "*") == ["b0", "b1"]


class Killed(BaseException):
    """The process ends here."""


class Mortal(SearchSink):
    """A sink that is killed before one of its steps."""

    steps_left = 0

    def _step(self) -> None:
        type(self).steps_left -= 1
        if self.steps_left == 0:
            raise Killed

    def _apply(self, changes: Any) -> None:
        for each in changes:
            self._step()
            super()._apply([each])

    def _writer_of_index(self) -> Any:
        self._step()
        return super()._writer_of_index()


def test_killed_at_any_step_each_record_is_there_once(tmp_path: Path, sinks: Any) -> None:
    records = [book(each, "word", f"k{each % 4}", n=each) for each in range(10)] + [record(10, None, "k0")]
    for step in range(1, 36, 4):
        Mortal.steps_left = step
        path = tmp_path / str(step)
        mortal = sinks(Mortal, index_path=str(path), text_fields="title")
        try:
            for first in range(0, 11, 5):
                mortal.write(batch(*records[first : first + 5]))
                mortal.flush()
        except Killed:
            pass
        mortal._writer = None
        heir = sinks(index_path=str(path))
        begin = heir.resume([PLACE]).get(PLACE, 0)
        heir.write(batch(*records[begin:]))
        heir.flush()
        heir.close()
        assert {hit.id: hit.value["n"] for hit in search(path, "word")} == {"k1": 9, "k2": 6, "k3": 7}


def test_an_index_has_one_writer(path: Path, sinks: Any) -> None:
    assert SearchSink.tasks(None, 5) == [{}]
    first, second = sinks(text_fields="title"), sinks(text_fields="title")
    first.resume([PLACE])
    for _ in range(2):
        with pytest.raises(RetriableFailure, match="another task or process writes the index"):
            second.resume([PLACE])
    with pytest.raises(RetriableFailure, match="another task or process writes the index"):
        second.write(batch(book(0, "zombie")))
    first.write(batch(book(0, "one")))
    first.flush()
    first.close()
    second.write(batch(book(0, "zombie"), book(1, "two")))
    second.flush()
    assert ids(path, "*") == ["b0", "b1"]
    assert ids(path, "zombie") == []


def test_a_disk_that_fails_and_comes_back(path: Path, sinks: Any) -> None:
    sink = sinks()
    sink.write(batch(book(0, "before")))
    sink.flush()
    sink.write(batch(book(1, "kept"), book(0, "before", n=1)))
    aside = path.with_name("aside")
    path.rename(aside)
    path.write_text("no directory")
    for _ in range(2):
        with pytest.raises(RetriableFailure, match="index"):
            sink.flush()
    path.unlink()
    aside.rename(path)
    sink.write(batch(book(2, "after")))
    sink.flush()
    assert ids(path, "*") == ["b0", "b1", "b2"]
    assert sink.resume([PLACE]) == {PLACE: 3}


def test_bad_records_fail_before_anything_is_written(path: Path, sinks: Any) -> None:
    sink = sinks()
    for bad, message in (
        (record(1, {"t": "x"}), "orders-0 at offset 1 has no key"),
        (record(1, {"t": "x"}, "k" * 40_000), "longer than 32000 bytes"),
        (record(1, {"t": "x", "n": float("nan")}, "k"), "cannot be written as JSON"),
        (record(1, {"t": "\ud800"}, "k"), "offset 1"),
    ):
        with pytest.raises(RecordFailed, match=message) as caught:
            sink.write(batch(book(0, "good"), bad))
        assert caught.value.record is bad
    sink.flush()
    assert ids(path, "*") == []
    sink.write(batch(book(0, "good"), book(1, "w" * 70_000 + " end"), book(2, "huge", n=2**70)))
    sink.flush()
    assert ids(path, "end") == ["b1"]
    assert search(path, "huge")[0].value["n"] == 2**70


def test_text_fields_that_the_index_does_not_have(path: Path, sinks: Any) -> None:
    first = sinks(text_fields="title")
    first.resume([PLACE])
    first.close()
    with pytest.raises(InvalidConnectorConfig, match=r"has the text fields title, and text\.fields says body"):
        sinks(text_fields="body")
    wrong = SearchSink.Config.errors_of({"index.path": "x", "text.fields": "_id,ok"})
    assert list(wrong) == ["text.fields"]


def test_an_index_is_compared_with_its_topic(path: Path, sinks: Any) -> None:
    sink = sinks()
    records = [book(0, "one", n=1.5), book(1, "two", raw=b"\xff"), record(2, None, "b9")]
    assert sink.digests([sink.expected(records[0]).key]) == {}
    assert list(sink.scan()) == []
    sink.write(batch(*records))
    sink.flush()
    reader = sinks()
    rows = {each.key: each.digest for each in map(reader.expected, records)}
    present = {key: digest for key, digest in rows.items() if digest is not None}
    assert len(present) == 2
    assert reader.digests(list(rows)) == present == dict(reader.scan())
    assert reader.expected(book(0, "One", n=1.5)).digest != reader.expected(records[0]).digest
    with pytest.raises(InvalidConnectorConfig, match="stored=false"):
        sinks(stored="false").expected(records[0])


def test_an_index_is_built_again_beside_the_old_one(path: Path, sinks: Any) -> None:
    sink = sinks()
    sink.write(batch(book(0, "wrong"), book(1, "surplus")))
    sink.flush()
    fresh = sink.fresh_target()
    fresh.open()
    assert fresh.resume([PLACE]) == {}
    fresh.write(batch(*(book(each, f"right {each}") for each in range(20))))
    fresh.flush()
    fresh.close()
    fresh = sink.fresh_target()
    fresh.open()
    assert fresh.resume([PLACE]) == {PLACE: 20}
    fresh.write(batch(record(20, None, "b3")))
    assert ids(path, "*") == ["b0", "b1"]
    with pytest.raises(RetriableFailure, match="another task"):
        fresh.swap()
    assert ids(path, "wrong") == ["b0"]
    sink.close()
    fresh.swap()
    assert len(ids(path, "right")) == 19
    assert ids(path, "wrong OR surplus") == []
    assert {each.name for each in path.parent.iterdir()} == {"index", "index.old-1"}
    assert ids(path.with_name("index.old-1"), "wrong OR surplus") == ["b0", "b1"]
    sink = sinks()
    assert sink.resume([PLACE]) == {PLACE: 21}
    sink.write(batch(book(21, "right behind")))
    sink.flush()
    assert len(ids(path, "right")) == 20
    # The writer removes what the new index does not need, and the old one keeps it.
    assert ids(path.with_name("index.old-1"), "wrong OR surplus") == ["b0", "b1"]
    sink.drop_old()
    assert [each.name for each in path.parent.iterdir()] == ["index"]
    with pytest.raises(ConnectFailed, match="is no fresh one"):
        sink.swap()


@pytest.mark.parametrize("point", ["switch-copied", "switch-copy-named", "switch-committed"])
def test_a_swap_that_fails_is_said_again(
    point: str, path: Path, sinks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sinks()
    sink.write(batch(book(0, "wrong")))
    sink.flush()
    sink.close()
    fresh = sink.fresh_target()
    fresh.open()
    fresh.write(batch(book(0, "right")))
    monkeypatch.setenv(VARIABLE, f"{point}:fail:{tmp_path / 'failed'}")
    with pytest.raises(PlantedFault):
        fresh.swap()
    assert len(ids(path, "*")) == 1
    again = sinks().fresh_target()
    again.open()
    assert again.resume([PLACE]) == {PLACE: 1}
    again.swap()
    assert (ids(path, "right"), ids(path, "wrong")) == (["b0"], [])
    assert not path.with_name("index.rebuild").exists()
    sinks().drop_old()
    assert [each.name for each in path.parent.iterdir() if each.is_dir()] == ["index"]


def test_offsets_are_set_in_the_index(path: Path, sinks: Any) -> None:
    sink = sinks()
    sink.set_offsets({PLACE: 7})
    assert sink.resume([PLACE]) == {}
    sink.write(batch(book(0, "one"), book(1, "two")))
    sink.flush()
    with pytest.raises(RetriableFailure, match="another task"):
        sinks().set_offsets({PLACE: 0})
    sink.close()
    for offset, found in ((1, {PLACE: 1}), (0, {PLACE: 0}), (None, {})):
        sink = sinks()
        sink.set_offsets({PLACE: offset})
        assert sink.resume([PLACE]) == found
        sink.close()
    sink = sinks()
    sink.write(batch(book(0, "again")))
    sink.flush()
    assert (ids(path, "again"), ids(path, "two")) == (["b0"], ["b1"])


def test_a_fresh_index_is_discarded_or_becomes_the_first(path: Path, sinks: Any) -> None:
    for ends in ("discard", "swap"):
        fresh = sinks().fresh_target()
        fresh.open()
        fresh.write(batch(book(0, "one")))
        getattr(fresh, ends)()
        assert path.exists() == (ends == "swap")
        assert not path.with_name("index.rebuild").exists()
    assert ids(path, "one") == ["b0"]


@pytest.mark.slow
def test_processes_that_are_killed_write_each_record_once(path: Path) -> None:
    program = Path(__file__).parent / "killed_sink.py"
    properties = {"name": "books", "index.path": str(path), "document.id": "record", "text.fields": "value"}
    task = [sys.executable, str(program), "search:SearchSink", json.dumps(properties), "600"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for kill in range(3):
        process = subprocess.Popen(task, env=environment)
        while process.poll() is None and (not (path / "meta.json").exists() or len(ids(path, "*")) < 150 * kill + 50):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(task, env=environment, check=True, timeout=60)
    assert ids(path, "*") == sorted(f"orders+0+{each}" for each in range(600))
