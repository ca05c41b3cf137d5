"""The replay guard in `strandline.parallel`: effects do not run again after a rewind, and it costs nothing unasked."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.outbox.relays import messages_of, wait_until

import strandline
from strandline import EmbeddedBroker, effects
from strandline.effects.guard import EffectsGuard
from strandline.effects.marks_topic import TOPIC
from strandline.queue import QueueTask, Retry


def settings_of(broker: EmbeddedBroker, group: str) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}


def write(broker: EmbeddedBroker, topic: str, count: int) -> None:
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 3))
    assert producer.flush(60) == 0


def rewind(broker: EmbeddedBroker, group: str, topic: str) -> None:
    consumer = Consumer(settings_of(broker, group))
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


class Mails:
    """Handlers that send a mail for each record whose effects may run."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.seen: list[int] = []

    def handle(self, task: QueueTask) -> None:
        if effects.allowed(task):
            self.sent.append(task.offset)
        effects.done(task)
        self.seen.append(task.offset)

    async def handle_async(self, task: QueueTask) -> None:
        self.handle(task)


@pytest.mark.parametrize("kind", ["handle", "handle_async"])
def test_effects_run_once_although_the_group_is_rewound(broker: EmbeddedBroker, kind: str) -> None:
    topic, group = f"mails-{kind}", f"mailers-{kind}"
    write(broker, topic, 12)
    first, again = Mails(), Mails()
    with strandline.parallel(settings_of(broker, group), topic, getattr(first, kind), workers=4):
        wait_until(lambda: len(first.seen) == 12, "all are handled")
    assert sorted(first.sent) == list(range(12))
    rewind(broker, group, topic)
    with strandline.parallel(settings_of(broker, group), topic, getattr(again, kind), workers=4):
        wait_until(lambda: len(again.seen) == 12, "all are handled again")
    assert again.sent == []


@pytest.mark.slow
def test_a_record_that_is_not_finished_keeps_its_effects_after_a_restart(broker: EmbeddedBroker) -> None:
    """The handlers of later records have ended, and have said so, when the consumer is stopped."""
    write(broker, "unfinished", 9)
    mails, again = Mails(), Mails()

    def handle(task: QueueTask) -> None:
        if task.offset == 1:
            raise Retry
        mails.handle(task)

    with strandline.parallel(settings_of(broker, "unfinished"), "unfinished", handle, workers=4):
        # Those of the key of offset 1 wait for it.
        wait_until(lambda: len(mails.seen) == 6, "the others are handled")
    with strandline.parallel(settings_of(broker, "unfinished"), "unfinished", again.handle, workers=4):
        wait_until(lambda: len(again.seen) == 3, "the rest is handled")
    assert sorted(again.sent) == [1, 4, 7]


def test_marks_are_stored_before_offsets_are_committed(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    write(broker, "before", 5)
    mails = Mails()
    is_away = threading.Event()
    flush = EffectsGuard.flush

    def flush_or_fail(guard: EffectsGuard) -> None:
        if is_away.is_set():
            raise effects.EffectsUnknown("the topic of marks is away")
        flush(guard)

    monkeypatch.setattr(EffectsGuard, "flush", flush_or_fail)
    is_away.set()
    with strandline.parallel(settings_of(broker, "before"), "before", mails.handle, workers=2):
        wait_until(lambda: len(mails.seen) == 5, "all are handled")
    reader = Consumer(settings_of(broker, "before"))
    (found,) = reader.committed([TopicPartition("before", 0)], 30)
    reader.close()
    assert found.offset < 0, "nothing is committed without its mark"


def test_a_consumer_that_never_asks_pays_nothing(broker: EmbeddedBroker) -> None:
    write(broker, "unasked", 5)
    seen: list[int] = []
    consumer = strandline.parallel(settings_of(broker, "unasked"), "unasked", lambda task: seen.append(task.offset))
    with consumer:
        wait_until(lambda: len(seen) == 5, "all are handled")
    assert not consumer._guard.is_used
    if TOPIC in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics:
        assert not [each for each in messages_of(broker.bootstrap, TOPIC) if b"unasked" in (each.key() or b"")]
    # Nothing of the guard is between the consumer and its handler.
    handle: Callable[..., Any] = consumer._pool._handler
    assert handle.__name__ == "<lambda>"


def test_the_guard_of_a_consumer_loads_no_client() -> None:
    import subprocess

    text = "import strandline.effects.guard, sys; print('strandline.client.cluster_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", text], capture_output=True, check=True).stdout.strip() == b"False"
