"""Taking a sink over from its note: whoever wrote to it before is locked out, and nobody else comes in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.spark.sink_ground import counts, fresh_sink, options_for, rows, sinks, until

from strandline.client.connection import BrokerConnection
from strandline.codec.message import Message
from strandline.codec.messages.commit_batch_response import CommitBatchResponse
from strandline.errors import Disconnected
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.run.checkpoint_files import Note
from strandline.pipelines.run.sink_notes import LastBatch, SinkNotes
from strandline.spark.sink import driver
from strandline.spark.sink.commit_message import TaskWritten
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.pool import Pool
from strandline.spark.sink.task_writer import Task, write_task


class OldDriver:
    """Of a query whose checkpoint says what `note_of` reads there."""

    def __init__(self, broker: EmbeddedBroker, topic: str) -> None:
        broker.create_topic(topic)
        self.options = options_for(broker.bootstrap, topic)
        self.sink_id = fresh_sink()
        self.pool = Pool()

    def task(self, batch: int, value: str) -> TaskWritten:
        return write_task(self.pool, self.options, Task(self.sink_id, batch, 0), [rows([value])])

    def commit(self, batch: int, *messages: TaskWritten) -> None:
        driver.commit(self.pool.cluster(self.options), messages, batch)


@pytest.fixture
def old(broker: EmbeddedBroker, topic: str) -> Iterator[OldDriver]:
    made = OldDriver(broker, topic)
    yield made
    made.pool.close()


@pytest.fixture
def notes(broker: EmbeddedBroker) -> Iterator[SinkNotes]:
    with SinkNotes(broker.bootstrap) as opened:
        yield opened


def test_a_driver_that_is_still_alive_is_locked_out(
    old: OldDriver, notes: SinkNotes, broker: EmbeddedBroker, topic: str
) -> None:
    assert notes.are_kept
    old.commit(0, old.task(0, "zero"))
    under_way = old.task(1, "one")
    found, sealed = notes.seal(old.sink_id)
    assert (found, sealed) == (LastBatch(0), 2)
    with pytest.raises(SinkRefused, match="the checkpoint is older than the log"):
        old.commit(1, under_way)
    # Nor does it go on by itself.
    until("the markers", lambda: counts(broker.bootstrap, topic) == {"zero": 1})
    assert sinks(broker.bootstrap)[old.sink_id] == 2


def test_one_that_is_faster_is_taken_into_account(
    old: OldDriver, notes: SinkNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.commit(0, old.task(0, "zero"))
    under_way = old.task(1, "one")
    last = notes.last

    def overtaken(sink_id: str) -> LastBatch:
        found = last(sink_id)
        if found.batch_id == 0:
            old.commit(1, under_way)
        return found

    monkeypatch.setattr(notes, "last", overtaken)
    found, sealed = notes.seal(old.sink_id)
    assert (found.batch_id, sealed) == (1, 3)


def test_a_seal_whose_answer_is_lost_is_one_seal(
    old: OldDriver, notes: SinkNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    old.commit(0, old.task(0, "zero"))
    received, lost = BrokerConnection.receive_message, []

    def losing(connection: BrokerConnection, response_class: type[Message], *, wait_s: float = 0.0) -> Message:
        answer = received(connection, response_class, wait_s=wait_s)
        if response_class is CommitBatchResponse and not lost:
            lost.append(answer)
            connection.close()
            raise Disconnected("this answer was lost")
        return answer

    monkeypatch.setattr(BrokerConnection, "receive_message", losing)
    assert notes.seal(old.sink_id)[1] == 2
    assert len(lost) == 1


def test_a_seal_keeps_the_note_and_a_new_sink_begins_with_it(notes: SinkNotes) -> None:
    sink_id, heir = fresh_sink(), fresh_sink()
    assert notes.last(sink_id) == LastBatch()
    assert notes.seal(sink_id) == (LastBatch(), 1)
    note = Note("v1\nend", "v1\nstart")
    notes.begin(heir, 6, note)
    assert notes.last(heir) == LastBatch(6, note)
    for batch_id in (6, 8, 10):
        # Every recovery takes it over from the one before, should that be alive.
        found, sealed = notes.seal(heir)
        assert (found.batch_id, sealed) == (batch_id, batch_id + 2)
        assert found.note is not None
        assert (found.note.offsets, found.note.before) == ("v1\nend", "v1\nstart")
