"""Which worker runs which task: as even as can be, and moved as little as can be (KIP-415).

A task that moves is taken from its worker in one rebalance and given to another in the next, so it never runs twice.
Tasks whose worker stays are never touched. Two workers that both hold a task lose it both: one of them is a zombie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.connect.herder.config_state import TaskId, json_object, to_json


@dataclass(frozen=True)
class MemberMetadata:
    """What a worker tells the leader when it joins."""

    url: str
    config_end: int
    """The offset up to which it has read the config topic."""
    owned: tuple[TaskId, ...] = ()

    def encode(self) -> bytes:
        owned = [list(each) for each in self.owned]
        return to_json({"version": 0, "url": self.url, "config_end": self.config_end, "owned": owned})

    @classmethod
    def decode(cls, data: bytes) -> MemberMetadata:
        value = json_object(data) or {}
        end = value.get("config_end")
        return cls(str(value.get("url", "")), end if isinstance(end, int) else 0, _task_ids(value.get("owned")))


@dataclass(frozen=True)
class Assignment:
    """What the leader tells a worker: all tasks that it is to run, and where the leader serves."""

    leader_url: str
    tasks: tuple[TaskId, ...] = ()
    has_pending: bool = False
    """Whether some tasks wait until the workers that run them have stopped them."""

    def encode(self) -> bytes:
        tasks = [list(each) for each in self.tasks]
        return to_json({"version": 0, "leader_url": self.leader_url, "tasks": tasks, "has_pending": self.has_pending})

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        value = json_object(data) or {}
        return cls(str(value.get("leader_url", "")), _task_ids(value.get("tasks")), value.get("has_pending") is True)


@dataclass(frozen=True)
class Shares:
    """The tasks of each worker after this rebalance."""

    tasks: Mapping[str, tuple[TaskId, ...]]
    waiting: frozenset[TaskId]
    """Tasks that no worker gets yet: they are taken from one first, or their worker may come back."""


def share_out(
    wanted: Iterable[TaskId], owned: Mapping[str, Collection[TaskId]], held_back: Collection[TaskId] = ()
) -> Shares:
    """Return the tasks of each worker. `held_back` are those of a worker that is gone and may come back."""
    all_tasks = sorted(set(wanted))
    holders = Counter(task for tasks in owned.values() for task in set(tasks))
    keeps = {
        member: sorted(task for task in set(tasks) & set(all_tasks) if holders[task] == 1)
        for member, tasks in owned.items()
    }
    base, extra = divmod(len(all_tasks), len(owned))
    # Workers with the most tasks may keep one more than the others.
    limits = {}
    for rank, member in enumerate(sorted(keeps, key=lambda each: (-len(keeps[each]), each))):
        limits[member] = base + (1 if rank < extra else 0)
    waiting = {task for task in all_tasks if holders[task] > 1}
    for member, tasks in keeps.items():
        while len(tasks) > limits[member]:
            waiting.add(_least_alone(tasks))
            tasks.remove(_least_alone(tasks))
    free = [task for task in all_tasks if holders[task] == 0]
    waiting.update(task for task in free if task in set(held_back))
    for task in free:
        if task not in waiting:
            member = min(keeps, key=lambda each: (len(keeps[each]) - limits[each], _siblings(task, keeps[each]), each))
            keeps[member].append(task)
    return Shares({member: tuple(sorted(tasks)) for member, tasks in keeps.items()}, frozenset(waiting))


def _least_alone(tasks: Sequence[TaskId]) -> TaskId:
    """Return a task of the connector that has the most tasks here, so that connectors are spread."""
    counts = Counter(each.connector for each in tasks)
    return max(tasks, key=lambda each: (counts[each.connector], each))


def _siblings(task: TaskId, tasks: Iterable[TaskId]) -> int:
    return sum(each.connector == task.connector for each in tasks)


def _task_ids(value: Any) -> tuple[TaskId, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(TaskId(str(each[0]), int(each[1])) for each in value if isinstance(each, list) and len(each) == 2)
