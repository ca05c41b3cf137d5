"""The config topic is read as Kafka Connect reads it."""

from __future__ import annotations

from strandline.connect.herder.config_state import (
    ConfigState,
    RestartRequest,
    StateRecord,
    TaskId,
    connector_record,
    fencing_record,
    level_record,
    restart_record,
    target_record,
    task_records,
)


def state_of(*records: StateRecord) -> ConfigState:
    state = ConfigState()
    for each in records:
        state.apply(each)
    return state


def test_records_have_kafkas_bytes() -> None:
    assert connector_record("x", {"a": "1"}) == (b"connector-x", b'{"properties":{"a":"1"}}')
    assert task_records("x", [{"a": "ü"}]) == [
        (b"task-x-0", '{"properties":{"a":"ü"}}'.encode()),
        (b"commit-x", b'{"tasks":1}'),
    ]
    assert target_record("x", "STOPPED") == (b"target-state-x", b'{"state":"PAUSED","state.v2":"STOPPED"}')
    assert fencing_record("x", 2) == (b"tasks-fencing-x", b'{"task-count":2}')
    restart = restart_record(RestartRequest("x", include_tasks=True, only_failed=False))
    assert restart == (b"restart-connector-x", b'{"include-tasks":true,"only-failed":false}')
    assert level_record("a.b", "DEBUG") == (b"logger-cluster-a.b", b'{"level":"DEBUG"}')


def test_tasks_count_when_they_are_committed() -> None:
    *tasks, commit = task_records("x-1", [{"n": "0"}, {"n": "1"}])
    state = state_of(connector_record("x-1", {}), *tasks)
    assert state.connectors["x-1"].tasks is None
    state.apply(commit)
    assert state.connectors["x-1"].tasks == ({"n": "0"}, {"n": "1"})
    assert list(state.task_ids()) == [TaskId("x-1", 0), TaskId("x-1", 1)]


def test_a_commit_without_all_its_tasks_leaves_them_unknown() -> None:
    tasks = task_records("x", [{"n": "0"}, {"n": "1"}])
    state = state_of(connector_record("x", {}), *tasks, *tasks[1:])
    assert state.connectors["x"].tasks is None, "compaction took a task away; the leader writes them again"


def test_tasks_of_an_older_config_are_out_of_date() -> None:
    state = state_of(connector_record("x", {}), *task_records("x", [{}]))
    known = state.connectors["x"]
    assert known.tasks_config_number == known.config_number
    state.apply(connector_record("x", {"a": "2"}))
    assert known.tasks_config_number != known.config_number


def test_a_source_is_fenced_by_a_record_behind_its_tasks() -> None:
    state = state_of(connector_record("x", {}), fencing_record("x", 3), *task_records("x", [{}]))
    known = state.connectors["x"]
    assert (known.is_fenced, known.fenced_tasks) == (False, 3)
    state.apply(fencing_record("x", 1))
    assert (known.is_fenced, known.fenced_tasks) == (True, 1)


def test_a_deleted_connector_takes_its_state_with_it_but_not_its_producers() -> None:
    state = state_of(
        connector_record("x", {}), target_record("x", "PAUSED"), fencing_record("x", 4), connector_record("x", None)
    )
    assert not state.connectors
    state.apply(connector_record("x", {}))
    assert state.connectors["x"].target == "STARTED"
    assert state.connectors["x"].fenced_tasks == 4, "tasks of the old one may still run somewhere"


def test_a_stopped_connector_has_no_tasks_to_run() -> None:
    state = state_of(target_record("x", "STOPPED"), connector_record("x", {}), *task_records("x", [{}]))
    assert list(state.task_ids()) == []


def test_what_cannot_be_read_is_left_out() -> None:
    state = state_of(
        StateRecord(b"connector-x", b"{"),
        StateRecord(b"\xff\xfe", b"{}"),
        StateRecord(b"task-x-a", b"{}"),
        StateRecord(b"commit-y", b"[]"),
        StateRecord(b"session-key", b'{"key":"k"}'),
    )
    assert not state.connectors


def test_orders_to_restart_are_handed_on() -> None:
    order = RestartRequest("x", include_tasks=True, only_failed=True)
    assert ConfigState().apply(restart_record(order)) == order
