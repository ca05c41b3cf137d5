"""What the log remembers of a checkpoint, and a checkpoint made from it; no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.pipelines.run.checkpoint_files import LocalCheckpoint, Note, in_words, positions, settings, topic_ids

ABOUT = '{"batchWatermarkMs":7,"batchTimestampMs":9,"conf":{"spark.sql.shuffle.partitions":"2"}}'


def file_of(*sources: object) -> str:
    return "\n".join(["v1", ABOUT, *(each if isinstance(each, str) else json.dumps(each) for each in sources)])


def test_a_note_is_what_the_sink_kept_or_nothing() -> None:
    note = Note("v1\n...", "v1\n..")
    assert Note.parse(note.to_bytes()) == note
    assert Note.parse(note.sealed_by("me").to_bytes()) == Note("v1\n...", "v1\n..", "me")
    # As the sink itself writes it, for a first batch.
    assert Note.parse(json.dumps({"offsets": "v1", "before": None}).encode()) == Note("v1")
    for other in (b"", b"of another program", b"[]", b"{}", b'{"offsets": 1}', b"\xff"):
        assert Note.parse(other) is None


def test_positions_are_those_of_all_sources() -> None:
    assert positions(file_of({"a": {"0": 1, "1": 2}}, {"b": {"0": 3}})) == {"a": {"0": 1, "1": 2}, "b": {"0": 3}}
    # One that has nothing yet; and two that read the same topic.
    assert positions(file_of("-", {"a": {"0": 5}}, {"a": {"0": 4, "1": 1}})) == {"a": {"0": 4, "1": 1}}
    assert positions(file_of()) == {}
    with_id = file_of("-", "7", {"a": {"0": 5}, "#topic-ids": {"a": "x"}})
    assert topic_ids(with_id) == {"a": "x"}
    assert positions(file_of({"a": {"0": 5}, "#topic-ids": {"a": "x"}})) == {"a": {"0": 5}}
    for strange in ("17", '{"logOffset":3}', "not JSON"):
        assert positions(file_of({"a": {"0": 1}}, strange)) is None
    assert settings(file_of()) == {"spark.sql.shuffle.partitions": "2"}
    assert settings("v1\n{}") == settings("v1") == settings("") == {}


def test_positions_in_words() -> None:
    assert in_words({"orders": {"0": 12, "1": 7}, "clicks": {"0": 0}}) == "clicks 0:0, orders 0:12 1:7"
    assert in_words({"orders": {str(each): 1000 for each in range(10)}}) == "orders (offset 10,000 over 10 partitions)"
    assert in_words({}) == "the beginning"


def test_a_checkpoint_without_state_is_made_whole(tmp_path: Path) -> None:
    checkpoint = LocalCheckpoint(tmp_path / "v1" / "large")
    assert (checkpoint.last_batch, checkpoint.is_half_made) == (-1, False)
    assert checkpoint.put_aside() is None
    checkpoint.make("the-id", 9, Note("v1\nend", "v1\nstart"))
    assert json.loads((checkpoint.directory / "metadata").read_text()) == {"id": "the-id"}
    assert checkpoint.last_batch == 9
    assert (checkpoint.directory / "offsets" / "8").read_text() == "v1\nstart"
    assert (checkpoint.directory / "offsets" / "9").read_text() == "v1\nend"
    assert (checkpoint.directory / "commits" / "9").read_text().startswith("v1\n{")
    # Lost again, but for a part of it; twice.
    for number in (1, 2):
        (checkpoint.directory / "metadata").unlink()
        assert checkpoint.put_aside() == tmp_path / "v1" / f"large.lost-{number}"
        checkpoint.make("the-id", 0, Note("v1\nend"))
        assert [each.name for each in (checkpoint.directory / "offsets").iterdir()] == ["0"]


def test_a_checkpoint_with_state_is_marked_until_it_is_complete(tmp_path: Path) -> None:
    checkpoint = LocalCheckpoint(tmp_path / "v1" / "totals")
    checkpoint.begin("first")
    assert checkpoint.plan("v1\na") == 0
    assert checkpoint.plan("v1\nb") == 1
    assert checkpoint.is_half_made
    # Killed, and begun anew.
    checkpoint.begin("second")
    assert json.loads((checkpoint.directory / "metadata").read_text()) == {"id": "second"}
    assert checkpoint.last_batch == -1
    checkpoint.complete()
    assert not checkpoint.is_half_made
    checkpoint.complete()


@pytest.mark.parametrize("location", ["s3a://bucket/checkpoints", "hdfs://host/checkpoints"])
def test_only_checkpoints_of_this_machine(location: str) -> None:
    assert LocalCheckpoint.of(location) is None
