"""Judgements that must hold for every description, and single signs of anti-patterns."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.advice.anti_patterns import (
    ObservedCommits,
    ObservedGroup,
    ObservedTopic,
    SampledRecord,
    find_patterns,
)
from strandline.advice.description import (
    ACCESS,
    ORDER,
    PER_RECORD,
    WORTH,
    WorkloadProfile,
    WorkloadReader,
    read_workload,
)
from strandline.advice.gates import WorkloadVerdict
from strandline.advice.judgement import judge_workload
from strandline.advice.sizing import sizing, with_many_divisors
from strandline.documents.units import Rate


def flags() -> st.SearchStrategy[bool | None]:
    return st.sampled_from([None, True, False])


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadProfile:
    readers = st.builds(
        WorkloadReader, st.just("r"), st.none() | st.integers(1, 500), st.none(), st.none() | st.integers(0, 10**7)
    )
    return WorkloadProfile(
        name="w",
        access=draw(st.sampled_from([None, *ACCESS])),
        current_state=draw(flags()),
        reply_within_ms=draw(st.none() | st.integers(1, 100_000)),
        keep_requests=draw(flags()),
        per_record=tuple(draw(st.sets(st.sampled_from(PER_RECORD)))),
        priority=draw(flags()),
        routing=draw(flags()),
        write=draw(st.none() | st.builds(Rate, st.floats(0, 1e10), st.none() | st.floats(0, 1e8))),
        record_bytes=draw(st.none() | st.integers(1, 10**6)),
        readers=draw(st.none() | st.lists(readers, max_size=4).map(tuple)),
        workers=draw(st.none() | st.integers(1, 1000)),
        order=draw(st.sampled_from([None, *ORDER])),
        replay=draw(flags()),
        audit=draw(flags()),
        buffer=draw(flags()),
        teams=draw(st.none() | st.integers(1, 9)),
        retention_ms=draw(st.none() | st.integers(-1, 10**12)),
        partitions=draw(st.none() | st.integers(1, 10_000)),
        replicas=draw(st.none() | st.integers(1, 5)),
        brokers=draw(st.none() | st.integers(1, 50)),
        worth=draw(st.sampled_from([None, *WORTH])),
    )


@pytest.mark.slow
@given(workloads())
def test_the_first_gate_decides(workload: WorkloadProfile) -> None:
    judgement = judge_workload(workload)
    first = next((gate for gate in judgement.gates if gate.answer), None)
    if first is not None:
        assert judgement.verdict is first.verdict
        assert judgement.deciding[0].startswith(f"{first.name} gate")
    else:
        assert judgement.verdict in (
            WorkloadVerdict.LOG,
            WorkloadVerdict.LOG_WITH_VIEW,
            WorkloadVerdict.UNDECIDED,
            WorkloadVerdict.QUEUE_SUSPECTED,
        )
    assert 0 <= judgement.score <= 7
    assert len(judgement.rules) == 6
    assert judgement.as_json()["verdict"] == str(judgement.verdict)
    for figure in judgement.figures:
        assert (figure.value is None) == bool(figure.lacks)


@given(workloads())
def test_replay_and_fan_out_decide(workload: WorkloadProfile) -> None:
    decided = replace(workload, replay=True, readers=(WorkloadReader("a"), WorkloadReader("b")))
    judgement = judge_workload(decided)
    if not any(gate.answer for gate in judgement.gates):
        assert judgement.verdict.is_log


@given(workloads().filter(lambda each: each.order != "global"))
def test_partitions_leave_room(workload: WorkloadProfile) -> None:
    figure = sizing(workload)[0]
    if figure.value is not None:
        needed = max(workload.largest_group or 1, (workload.bytes_per_s or 0) / 10e6)
        assert needed * 1.49 <= figure.value
        assert figure.value <= 2 * max(1, needed) + 2


def test_a_number_with_many_divisors() -> None:
    assert with_many_divisors(18, 24) == 24
    assert with_many_divisors(2, 2) == 2


def test_a_long_job_whose_requests_are_kept() -> None:
    workload = read_workload({"workload": "w", "reply_within": "30s", "keep_requests": True})
    assert judge_workload(workload).verdict is WorkloadVerdict.ASYNC_JOB


def topic(name: str = "orders", partitions: int = 3, **more: object) -> ObservedTopic:
    return replace(ObservedTopic(name, partitions, "delete", 1000, -1), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "names", "pattern"),
    [
        (topic(groups=(ObservedGroup("g", commits=ObservedCommits(9, 3, 0, 0, 5)),)), [], "log as a database"),
        (topic(groups=(), bytes_in=100, bytes_out=1000, size_bytes=90), [], "log as a database"),
        (topic(groups=(ObservedGroup("g", members=4, idle_members=1),)), [], "log as a task queue on classic groups"),
        (topic(), ["orders.retry.1m", "orders.retry.5m"], "log as a task queue on classic groups"),
        (topic(), ["retry-orders", "orders_retry_2"], "log as a task queue on classic groups"),
        (
            topic(groups=(ObservedGroup("g", members=1, lags={0: 0, 1: 50, 2: 0}, stalled=(1,)),)),
            [],
            "log as a task queue on classic groups",
        ),
        (topic(sample=(SampledRecord(0, {"replyto": "answers"}, False),) * 3), [], "log as RPC"),
    ],
)
def test_a_strong_sign_is_enough(seen: ObservedTopic, names: list[str], pattern: str) -> None:
    found = find_patterns([seen], [seen.name, *names])
    assert [(each.pattern, each.is_found) for each in found] == [(pattern, True)]


@pytest.mark.parametrize(
    ("seen", "names"),
    [
        # Nothing unusual: a compacted topic kept for good, read as often as its groups explain.
        (topic(cleanup_policy="compact", retention_ms=-1), []),
        (topic(groups=(ObservedGroup("a"),) * 4, bytes_in=100, bytes_out=1200, size_bytes=90), []),
        # Read once over by a group that catches up after the node started.
        (topic(groups=(ObservedGroup("a"),), bytes_in=1, bytes_out=1000, size_bytes=1000), []),
        # As many members as partitions.
        (topic(groups=(ObservedGroup("g", members=3),)), ["orders-audit", "orders-v2"]),
        # All partitions are behind.
        (topic(groups=(ObservedGroup("g", members=1, lags={0: 9, 1: 50, 2: 9}),)), []),
        # A slow topic commits single records, too.
        (topic(groups=(ObservedGroup("g", commits=ObservedCommits(50, 1, 1, 3, 49)),)), []),
        (topic(sample=(SampledRecord(0, {}, True),) * 9 + (SampledRecord(0, {"correlationid": "1"}, True),)), []),
    ],
)
def test_what_is_no_sign(seen: ObservedTopic, names: list[str]) -> None:
    assert find_patterns([seen], [seen.name, *names]) == []


def test_ids_that_trace_events_are_a_weak_sign() -> None:
    sample = tuple(SampledRecord(number, {"correlationid": str(number)}, True) for number in range(9))
    groups = (ObservedGroup("a"), ObservedGroup("b"))
    events = [topic("orders", groups=groups, sample=sample), topic("invoices", groups=groups, sample=sample)]
    assert [each.is_found for each in find_patterns(events, ["orders", "invoices"])] == [False, False]
    alone = [replace(events[0], groups=groups[:1]), events[1]]
    assert [each.is_found for each in find_patterns(alone, ["orders", "invoices"])] == [True, False]
