"""Tasks are shared evenly, moved as little as can be, and never given away before they were given up."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.connect.herder.assignment import Assignment, MemberMetadata, share_out
from strandline.connect.herder.config_state import TaskId

TASKS = [TaskId(connector, number) for connector in ("a", "b", "c-1") for number in range(4)]


def settled(wanted: list[TaskId], owned: Mapping[str, tuple[TaskId, ...]]) -> Mapping[str, tuple[TaskId, ...]]:
    """Rebalance until nothing moves any more."""
    for _ in range(5):
        shares = share_out(wanted, owned)
        if shares.tasks == owned and not shares.waiting:
            return owned
        owned = shares.tasks
    raise AssertionError("it never settles")


def test_a_new_worker_gets_its_share_in_two_rebalances() -> None:
    before = settled(TASKS, {"one": (), "two": ()})
    first = share_out(TASKS, {**before, "three": ()})
    assert first.tasks["three"] == ()
    assert len(first.waiting) == 4
    second = share_out(TASKS, first.tasks)
    assert sorted(len(each) for each in second.tasks.values()) == [4, 4, 4]
    assert all(set(second.tasks[each]) <= set(before[each]) for each in before), "only tasks for the new one moved"


def test_tasks_of_a_dead_worker_are_given_away_at_once_and_others_stay() -> None:
    before = settled(TASKS, {"one": (), "two": (), "three": ()})
    left = {each: before[each] for each in ("one", "two")}
    after = share_out(TASKS, left)
    assert not after.waiting
    assert all(set(left[each]) <= set(after.tasks[each]) for each in left)
    assert sorted(task for tasks in after.tasks.values() for task in tasks) == TASKS


def test_a_task_that_two_workers_hold_is_taken_from_both() -> None:
    both = share_out(TASKS[:2], {"one": (TASKS[0],), "two": (TASKS[0], TASKS[1])})
    assert TASKS[0] in both.waiting
    assert TASKS[0] not in both.tasks["one"] + both.tasks["two"]


def test_tasks_that_are_held_back_wait() -> None:
    shares = share_out(TASKS, {"one": tuple(TASKS[:6])}, held_back=TASKS[6:])
    assert set(shares.waiting) == set(TASKS[6:])


@given(
    st.lists(st.sampled_from(TASKS), unique=True),
    st.lists(st.lists(st.sampled_from(TASKS), unique=True), min_size=1, max_size=5),
)
@settings(max_examples=200, deadline=None)
def test_it_settles_evenly_from_anything(wanted: list[TaskId], owned: list[list[TaskId]]) -> None:
    members = {f"worker-{number}": tuple(tasks) for number, tasks in enumerate(owned)}
    first = share_out(wanted, members)
    held = {task for tasks in members.values() for task in tasks}
    given_away = [
        task for member, tasks in first.tasks.items() for task in tasks if task in held and task not in members[member]
    ]
    assert not given_away, "a task that another worker still holds"
    counts = sorted(len(each) for each in settled(wanted, first.tasks).values())
    assert sum(counts) == len(wanted)
    assert counts[-1] - counts[0] <= 1


def test_what_members_tell_one_another_comes_back() -> None:
    metadata = MemberMetadata("http://h:1", 7, (TaskId("a-b", 1),))
    assert MemberMetadata.decode(metadata.encode()) == metadata
    assignment = Assignment("http://h:1", (TaskId("ü", 0),), has_pending=True)
    assert Assignment.decode(assignment.encode()) == assignment
    assert MemberMetadata.decode(b"\x00\x01").owned == ()
