"""Who may run a version, which topics it writes, and in which order its queries may run; without a cluster."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strandline.pipelines.failures import PipelineRefused
from strandline.pipelines.language.model import Dataset, Kind, Pipeline, SourceTopic
from strandline.pipelines.run.outputs import Wanted, topics_of, wanted_topics
from strandline.pipelines.run.progress import taken
from strandline.pipelines.versions.state import (
    ALIVE_MS_MAX,
    RUNNING,
    STOPPED,
    DatasetState,
    PipelineState,
    QueryProgress,
    RebuildState,
    RunState,
    VersionState,
    checkpoint_of,
    text_of,
)
from strandline.pipelines.versions.version_lease import Claim, claimed

NOW_MS = 1_700_000_000_000


def dataset(name: str, kind: Kind, *inputs: str, **more: Any) -> Dataset:
    key = ("id",) if kind.has_keys else ()
    return Dataset(
        name, kind, lambda **frames: None, inputs, topic=f"t-{name}" if kind.has_topic else "", key=key, **more
    )


SHOP = Pipeline(
    "shop",
    "shop.py",
    {
        "orders": SourceTopic("orders", "t-orders", dead_letters="t-dead"),
        "rates": SourceTopic("rates", "t-rates", key=("id",), is_table=True),
    },
    {
        "paid": dataset("paid", Kind.TEMPORARY, "rates", "orders"),
        "large": dataset("large", Kind.STREAM, "paid"),
        "totals": dataset("totals", Kind.TABLE, "large", partitions=5),
        "rich": dataset("rich", Kind.VIEW, "totals", changes=frozenset(["totals"])),
    },
)


def claim(**more: Any) -> Claim:
    given = {"checkpoints": "/c", "version": None, "once": False, "takeover": False} | more
    return Claim(SHOP, "me", os.getpid(), platform.node(), NOW_MS, **given)


def entries(*states: PipelineState | RunState) -> dict[str, dict[str, Any]]:
    told = {}
    for each in states:
        key = f"run/{each.pipeline}/{each.version}" if isinstance(each, RunState) else f"pipeline/{each.name}"
        told[key] = json.loads(text_of(each))
    return told


def test_the_first_run_makes_version_one() -> None:
    run, changes = claimed(claim(), {})
    assert (run.version, run.owner, run.heartbeat_ms) == (1, "me", NOW_MS)
    state = PipelineState.from_json(json.loads(changes["pipeline/shop"] or ""))
    assert state.active == 1
    assert state.versions[1].checkpoints == "/c"
    assert state.versions[1].file == str(Path("shop.py").resolve())


def test_a_run_is_of_the_version_that_the_name_means() -> None:
    state = PipelineState("shop", 2, {1: VersionState(1), 2: VersionState(2)})
    assert claimed(claim(), entries(state))[0].version == 2
    assert claimed(claim(version=1), entries(state))[0].version == 1


def alive(**more: Any) -> RunState:
    return replace(RunState("shop", 1, "other", RUNNING, os.getpid(), "elsewhere", 0, NOW_MS - 1), **more)


def test_another_process_is_waited_for_until_its_heartbeat_is_old() -> None:
    with pytest.raises(PipelineRefused, match="runs already, as process"):
        claimed(claim(), entries(alive()))
    for free in (
        alive(heartbeat_ms=NOW_MS - ALIVE_MS_MAX),
        alive(state=STOPPED),
        alive(owner="me"),
        alive(version=2),
    ):
        assert claimed(claim(), entries(free))[0].owner == "me"
    assert claimed(claim(takeover=True), entries(alive()))[0].owner == "me"


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = alive(host=platform.node())
    with pytest.raises(PipelineRefused):
        claimed(claim(), entries(here))
    assert claimed(claim(), entries(replace(here, pid=gone.pid)))[0].owner == "me"


def test_a_run_goes_on_counting_where_the_last_one_ended() -> None:
    before = alive(state=STOPPED, queries={"large": QueryProgress(STOPPED, 3, 100, 7)})
    run, _ = claimed(claim(), entries(before))
    assert run.queries["large"].late_rows == 7


def test_nobody_runs_a_version_while_two_are_switched() -> None:
    state = PipelineState("shop", 1, {1: VersionState(1)}, RebuildState("switching", 1, 2))
    with pytest.raises(PipelineRefused, match="is being switched"):
        claimed(claim(), entries(state))
    assert claimed(claim(), entries(replace(state, rebuild=RebuildState("building", 1, 2))))[0].version == 1


def test_two_pipelines_do_not_write_one_topic() -> None:
    theirs = DatasetState("sums", Kind.TABLE, "t-totals.v2", "t-totals")
    other = PipelineState("bank", 2, {2: VersionState(2, datasets={"sums": theirs})})
    with pytest.raises(PipelineRefused, match="the topic t-totals is written by sums of the pipeline bank already"):
        claimed(claim(), entries(other))


def test_checkpoints_that_lie_elsewhere_are_not_begun_anew(tmp_path: Path) -> None:
    known = {"large": DatasetState("large", Kind.STREAM, "t-large", "t-large", query_id="q")}
    old, new = tmp_path / "old", tmp_path / "new"
    Path(checkpoint_of(str(old), "shop", 1, "large")).mkdir(parents=True)
    state = PipelineState("shop", 1, {1: VersionState(1, checkpoints=str(old), datasets=known)})
    with pytest.raises(PipelineRefused, match=f"say --checkpoints {old}, or move them"):
        claimed(claim(checkpoints=str(new)), entries(state))
    old.rename(new)
    assert claimed(claim(checkpoints=str(new)), entries(state))[0].version == 1


def test_a_version_that_is_not_the_active_one_writes_to_topics_of_its_own() -> None:
    assert topics_of(SHOP, 1, None, is_active=True) == {"large": "t-large", "totals": "t-totals", "rich": "t-rich"}
    second = {"large": "t-large.v2", "totals": "t-totals.v2", "rich": "t-rich.v2"}
    assert topics_of(SHOP, 2, None, is_active=False) == second
    # A table moves to the public topic with the switch; a stream stays where it is.
    told = VersionState(
        2,
        datasets={
            "large": DatasetState("large", Kind.STREAM, "t-large.v2", "t-large"),
            "totals": DatasetState("totals", Kind.TABLE, "t-totals", "t-totals"),
            "rich": DatasetState("rich", Kind.VIEW, "t-other", "t-other"),
        },
    )
    assert topics_of(SHOP, 2, told, is_active=True) == {
        "large": "t-large.v2",
        "totals": "t-totals",
        "rich": "t-rich",
    }


def test_a_topic_has_as_many_partitions_as_the_first_stream_that_it_is_made_from() -> None:
    topics = topics_of(SHOP, 1, None, is_active=True)
    assert wanted_topics(SHOP, 1, topics, {}) == [
        Wanted("t-dead", False, None, "t-orders"),
        Wanted("t-large", False, None, "t-orders"),
        Wanted("t-totals", True, 5, "t-large"),
        Wanted("t-rich", True, None, "t-totals"),
    ]


def test_late_rows_of_all_operators_are_counted() -> None:
    report = {
        "batchId": 4,
        "numInputRows": 10,
        "processedRowsPerSecond": float("nan"),
        "stateOperators": [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 1}],
        "eventTime": {"watermark": "2024-05-01T10:00:00.000Z"},
    }
    after = taken(QueryProgress(RUNNING, 3, 100, 7), report)
    assert after == QueryProgress(RUNNING, 4, 110, 10, 0.0, None, "2024-05-01T10:00:00.000Z")
    assert taken(after, {**report, "stateOperators": [], "eventTime": {}}).watermark == after.watermark
