"""A shard of any kind at work: what it asks for is written in order, whole where that is promised, and told after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.unit.coordinators.world import MemoryPartition, TurnedClock

from strandline.broker.coordinating import pending_appends
from strandline.broker.coordinating.coordinator_context import CoordinatorContext
from strandline.codec.columns import Columns, decode_batch
from strandline.coordinators.groups.events import Append, AppendWhole, Loaded, Reply
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.errors import ErrorCode


class Scripted:
    """A shard whose events are the effects that it answers them with."""

    def load(self, records: Iterable[Any]) -> None:
        assert not list(records)

    def step(self, event: Any, now_ms: int) -> list[Any]:
        return [] if isinstance(event, Loaded) else list(event)


class Submitted(list[Any]):
    """Such an event, with somebody who waits for it."""

    def __init__(self, token: object, effects: list[Any]) -> None:
        super().__init__(effects)
        self.token = token


class Hosting:
    def __init__(self) -> None:
        self.clock = TurnedClock()
        self.partition = MemoryPartition()
        self.performed: list[object] = []
        self.hosted: CoordinatorContext[Scripted] = CoordinatorContext(
            "shard",
            self.clock,
            Scripted(),
            _nothing,
            self.partition,  # type: ignore[arg-type]  # It knows no transactions.
            tell=self.performed.append,
            on_effect=self.performed.append,
            on_closed=lambda: None,
        )
        self.hosted.load_more()

    def written(self) -> list[list[str]]:
        """The keys of each batch."""
        return [
            [(record.key or b"").decode() for record in decode_batch(batch).records()]
            for batch in self.partition.batches
        ]


def _nothing(columns: Columns) -> Iterator[Any]:
    return iter(())


def append(*keys: str) -> Append:
    return Append(tuple(CoordinatorRecord(key.encode(), b"value") for key in keys))


def whole(*keys: str) -> AppendWhole:
    return AppendWhole(append(*keys).records)


@pytest.mark.parametrize("records_max", [2, 3, 100])
def test_records_that_belong_together_are_in_one_batch(monkeypatch: pytest.MonkeyPatch, records_max: int) -> None:
    monkeypatch.setattr(pending_appends, "RECORDS_PER_TURN_MAX", records_max)
    hosting = Hosting()
    hosting.hosted.step([append("a")])
    hosting.hosted.step([whole("b1", "b2", "b3", "b4")])
    hosting.hosted.step([append("c"), append("d")])
    hosting.hosted.step([whole("e1", "e2", "e3")])
    hosting.clock.run()
    assert hosting.written() == [["a"], ["b1", "b2", "b3", "b4"], ["c", "d"], ["e1", "e2", "e3"]]


def test_other_records_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_appends, "RECORDS_PER_TURN_MAX", 2)
    hosting = Hosting()
    hosting.hosted.step([append("a"), append("b1", "b2", "b3")])
    hosting.clock.run()
    assert hosting.written() == [["a", "b1"], ["b2", "b3"]]


def test_what_the_driver_does_is_done_when_all_before_is_committed() -> None:
    hosting = Hosting()
    hosting.partition.commits_at_once = False
    hosting.hosted.step(["first"])
    hosting.hosted.step([append("a"), "second"])
    hosting.hosted.step([whole("b1", "b2"), "third"])
    hosting.clock.run()
    assert hosting.performed == ["first"]
    hosting.partition.commit()
    assert hosting.performed == ["first", "second", "third"]


def test_what_the_log_did_not_keep_is_not_done() -> None:
    hosting = Hosting()
    hosting.partition.commits_at_once = False
    hosting.hosted.step([append("a"), "never"])
    hosting.clock.run()
    hosting.partition.commit(OSError("the disk is gone"))
    assert hosting.performed == []


class Asking:
    """A request that is asked by somebody who, once answered, takes the shard away."""

    def __init__(self, hosted: CoordinatorContext[Scripted]) -> None:
        self.hosted = hosted
        self.told: list[object] = []

    def answer(self, response: object) -> None:
        self.told.append(response)
        self.hosted.close(ErrorCode.NOT_COORDINATOR)

    def refuse(self, code: ErrorCode) -> None:
        self.told.append(code)


def test_a_shard_that_is_let_go_in_the_middle_of_an_event_does_nothing_more() -> None:
    hosting = Hosting()
    first, second = Asking(hosting.hosted), Asking(hosting.hosted)
    hosting.hosted.submit(Submitted(first, []))
    hosting.hosted.submit(Submitted(second, [Reply(first, "yes"), Reply(second, "no"), append("a"), "never"]))
    hosting.clock.run()
    assert (first.told, second.told) == (["yes"], [ErrorCode.NOT_COORDINATOR])
    assert (hosting.performed, hosting.written()) == ([], [])
