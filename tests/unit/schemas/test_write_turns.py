"""Writes that wait go into one transaction. None is seen, nor answered, before all of them are in the state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from tests.unit.schemas.fields_type import FieldsType
from tests.unit.schemas.list_topic import ListTopic, ListWatch
from tests.unit.schemas.test_two_registries import write

from strandline.schemas import registry as registry_module
from strandline.schemas.failures import INCOMPATIBLE_SCHEMA, INVALID_SCHEMA, STORE_FAILED, RegistryError
from strandline.schemas.records import SchemaVersion
from strandline.schemas.registry import RegistrySettings, SchemaRegistry


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> ListTopic:
    return ListTopic(0).use(monkeypatch)


@pytest_asyncio.fixture
async def registry(topic: ListTopic) -> AsyncIterator[SchemaRegistry]:
    registry = SchemaRegistry(RegistrySettings("none:1"), [FieldsType()])
    await registry.start()
    await write(registry, "first", "a")
    topic.turns.clear()
    yield registry
    topic.may_write.set()
    await registry.stop()


def begin(registry: SchemaRegistry, subject: str, text: str) -> asyncio.Task[SchemaVersion]:
    return asyncio.get_running_loop().create_task(write(registry, subject, text))


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # threads make it true
            await asyncio.sleep(0.001)


async def test_writes_that_wait_share_a_transaction(
    registry: SchemaRegistry, topic: ListTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "TURN_S_MAX", 60.0)
    topic.may_write.clear()
    begun = topic.begun
    alone = begin(registry, "shared", "a?")
    await wait_until(lambda: topic.begun > begun)
    others = [begin(registry, "shared", " ".join(f"f{each}?" for each in range(number))) for number in range(1, 9)]
    await wait_until(lambda: len(registry._pending) == len(others))
    topic.may_write.set()
    made = [await each for each in (alone, *others)]
    assert [each.version for each in made] == list(range(1, 10))
    assert len({each.id for each in made}) == 9
    assert topic.turns == [1, 8]


async def test_nothing_is_seen_before_it_is_written(registry: SchemaRegistry, topic: ListTopic) -> None:
    topic.may_write.clear()
    before, begun = set(registry.state.subjects), topic.begun
    pending = [begin(registry, f"s{number}", "a") for number in range(3)]
    await wait_until(lambda: topic.begun > begun)
    assert set(registry.state.subjects) == before
    assert not any(each.done() for each in pending)
    topic.may_write.set()
    await asyncio.gather(*pending)
    assert set(registry.state.subjects) == before | {"s0", "s1", "s2"}


async def test_a_write_that_is_rejected_leaves_the_others_alone(registry: SchemaRegistry) -> None:
    pending = [begin(registry, f"s{number}", text) for number, text in enumerate(["a", "!", "b"])]
    outcomes = await asyncio.gather(*pending, return_exceptions=True)
    assert isinstance(outcomes[1], RegistryError)
    assert outcomes[1].code == INVALID_SCHEMA
    assert [each.version for each in (outcomes[0], outcomes[2]) if isinstance(each, SchemaVersion)] == [1, 1]


async def test_what_was_decided_upon_a_write_that_failed_is_decided_again(
    registry: SchemaRegistry, topic: ListTopic
) -> None:
    """The second is rejected because of the first, which is written by the second attempt alone."""
    topic.failures = 1
    first, second = begin(registry, "shared", "a"), begin(registry, "shared", "a b")
    made = await first
    assert (made.version, registry.state.versions("shared")) == (1, [made])
    with pytest.raises(RegistryError) as caught:
        await second
    assert caught.value.code == INCOMPATIBLE_SCHEMA


async def test_slow_decisions_leave_the_rest_to_the_next_turn(
    registry: SchemaRegistry, topic: ListTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "TURN_S_MAX", 0.0)
    made = await asyncio.gather(*(begin(registry, f"s{number}", "a") for number in range(4)))
    assert {each.id for each in made} == {1}, "one schema has one id"
    assert topic.turns == [1, 1, 1, 1]


async def test_a_topic_that_is_made_again_is_read_again(registry: SchemaRegistry, topic: ListTopic) -> None:
    (watch,) = ListWatch.made
    watch.on_id(topic.topic_id)
    topic.make_again()
    watch.on_id(topic.topic_id)
    await wait_until(lambda: not registry.state.subjects and registry.is_ready)
    made = await write(registry, "new", "a")
    assert (made.id, made.version, list(registry.state.subjects)) == (1, 1, ["new"])


async def test_a_write_to_a_topic_that_was_made_again_is_decided_again(
    registry: SchemaRegistry, topic: ListTopic
) -> None:
    """Its offset says so, before the watch does: the answer is what the new topic has."""
    for number in range(5):
        await write(registry, "old", " ".join(f"f{each}?" for each in range(number + 1)))
    topic.make_again()
    made = await write(registry, "old", "z?")
    assert made.version == registry.state.versions("old")[-1].version
    assert registry.state.subjects.keys() == {"old"}


async def test_a_topic_that_is_gone_takes_no_writes_and_is_still_read(
    registry: SchemaRegistry, topic: ListTopic
) -> None:
    (watch,) = ListWatch.made
    watch.on_id(None)
    await wait_until(lambda: registry.trouble)
    with pytest.raises(RegistryError, match="is gone") as caught:
        await write(registry, "new", "a")
    assert caught.value.code == STORE_FAILED
    assert registry.is_ready
    assert "first" in registry.state.subjects
    watch.on_id(topic.topic_id)
    await wait_until(lambda: not registry.trouble)
    assert (await write(registry, "new", "a")).id == 1
