"""The replay guard: effects do not run again when a group is rewound."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.outbox.relays import messages_of, wait_until

from strandline import EmbeddedBroker, effects
from strandline.effects.guard import EffectsGuard
from strandline.effects.marks_topic import TOPIC
from strandline.queue import QueueTask


def at(topic: str, offset: int, partition: int = 0) -> QueueTask:
    return QueueTask(topic, partition, offset, None, b"", (), 0, 1)


def guard_of(broker: EmbeddedBroker, group: str) -> EffectsGuard:
    return EffectsGuard({"bootstrap.servers": broker.bootstrap, "group.id": group})


def test_effects_of_a_rewound_group_do_not_run_again(broker: EmbeddedBroker) -> None:
    broker.create_topic("mails", 2)
    guard = guard_of(broker, "mailers")
    for offset in range(10):
        assert guard.allowed(at("mails", offset))
        guard.done(at("mails", offset))
    guard.flush()
    assert [guard.allowed(at("mails", each)) for each in (0, 9, 10)] == [False, False, True]
    again = guard_of(broker, "mailers")
    assert [again.allowed(at("mails", each)) for each in (0, 9, 10)] == [False, False, True]
    assert again.allowed(at("mails", 0, partition=1))
    assert guard_of(broker, "others").allowed(at("mails", 0))


def test_a_mark_never_goes_back_and_can_be_reset(broker: EmbeddedBroker) -> None:
    broker.create_topic("monotonic", 1)
    guard = guard_of(broker, "g")
    guard.mark("monotonic", 0, 5)
    guard.mark("monotonic", 0, 3)
    guard.flush()
    late = guard_of(broker, "g")
    late.mark("monotonic", 0, 4)
    late.flush()
    assert [guard_of(broker, "g").allowed(at("monotonic", each)) for each in (4, 5)] == [False, True]
    late.reset("monotonic", 0)
    assert late.allowed(at("monotonic", 0))
    assert guard_of(broker, "g").allowed(at("monotonic", 0))


def test_a_member_that_was_cut_off_does_not_move_the_mark_back(broker: EmbeddedBroker) -> None:
    broker.create_topic("cutoff", 1)
    late, other = guard_of(broker, "c"), guard_of(broker, "c")
    assert late.allowed(at("cutoff", 0))
    other.mark("cutoff", 0, 8)
    other.flush()
    # It does not know yet that the partition is not its own any more.
    late.done(at("cutoff", 2))
    late.flush()
    assert [guard_of(broker, "c").allowed(at("cutoff", each)) for each in (7, 8)] == [False, True]


def test_partitions_of_the_clients_callback_are_read_again(broker: EmbeddedBroker) -> None:
    broker.create_topic("callback", 1)
    one, other = guard_of(broker, "cb"), guard_of(broker, "cb")
    one.mark("callback", 0, 2)
    one.flush()
    other.mark("callback", 0, 8)
    other.flush()
    one.assigned([TopicPartition("callback", 0)])
    assert not one.allowed(at("callback", 5))


def test_a_partition_that_comes_back_has_the_mark_of_its_other_member(broker: EmbeddedBroker) -> None:
    broker.create_topic("moves", 1)
    one, other = guard_of(broker, "m"), guard_of(broker, "m")
    one.mark("moves", 0, 2)
    one.flush()
    other.mark("moves", 0, 8)
    other.flush()
    assert one.allowed(at("moves", 5))
    one.assigned([("moves", 0)])
    assert not one.allowed(at("moves", 5))


def test_a_topic_that_is_made_again_begins_without_a_mark(broker: EmbeddedBroker) -> None:
    broker.create_topic("remade", 1)
    guard = guard_of(broker, "g")
    guard.mark("remade", 0, 5)
    guard.flush()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["remade"])["remade"].result()
    wait_until(lambda: "remade" not in admin.list_topics().topics, "the topic is gone")
    broker.create_topic("remade", 1)
    assert guard_of(broker, "g").allowed(at("remade", 0))


def test_the_functions_use_the_guard_that_was_set(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("set", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("set", b"x")
    producer.flush()
    (message,) = messages_of(broker.bootstrap, "set")
    monkeypatch.setattr("strandline.effects.guard._installed", None)
    with pytest.raises(RuntimeError, match=r"effects\.install"):
        effects.allowed(message)
    guard = effects.install({"bootstrap.servers": broker.bootstrap}, group="installed")
    assert effects.allowed(message)
    effects.done(message)
    assert not effects.allowed(message)
    guard.flush()
    with effects.guarding(guard_of(broker, "another")):
        assert effects.allowed(message)
    assert not effects.allowed(message)


async def test_handlers_of_a_worker_have_its_guard(broker: EmbeddedBroker) -> None:
    broker.create_topic("worker", 1)
    guard = guard_of(broker, "worker")
    assert not guard.is_used

    async def handle_async(task: QueueTask) -> bool:
        return effects.allowed(task)

    handle = effects.guarded(guard, effects.allowed)
    assert handle(at("worker", 0))
    assert guard.is_used
    guard.mark("worker", 0, 1)
    assert not handle(at("worker", 0))
    assert not await effects.guarded(guard, handle_async)(at("worker", 0))


def test_marks_are_on_a_compacted_topic(broker: EmbeddedBroker) -> None:
    broker.create_topic("kept", 1)
    guard = guard_of(broker, "kept")
    guard.mark("kept", 0, 1)
    guard.flush()
    keys: list[Any] = [each.key() for each in messages_of(broker.bootstrap, TOPIC)]
    assert b'["kept", "kept", 0]' in keys
    from confluent_kafka.admin import ConfigResource

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, TOPIC)]).values()
    assert future.result()["cleanup.policy"].value == "compact"


def test_a_guard_without_a_group_is_refused() -> None:
    with pytest.raises(ValueError, match="group"):
        EffectsGuard({"bootstrap.servers": "localhost:1"})
