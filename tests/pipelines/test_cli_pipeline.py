"""`strandline pipeline`: what it says, what it refuses, and a whole run from nothing."""

from __future__ import annotations

import io
import json
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import COMMAND, CommandLine
from tests.pipelines.running_ground import eventually, read_all

from strandline.cli.common.failures import CommandFailed, ExitCode, Interrupted
from strandline.cli.common.output import Output
from strandline.cli.pipeline import rebuild as pipeline_rebuild
from strandline.cli.pipeline.delete import _checkpoints_in_words
from strandline.cli.pipeline.run import Stopping, _logged, tell_end
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.language.loading import load
from strandline.pipelines.language.model import Kind
from strandline.pipelines.rebuild.phases import Phase
from strandline.pipelines.rebuild.rebuilding import RebuildEnd, Rebuilding
from strandline.pipelines.rebuild.switching import Removal
from strandline.pipelines.run.launching import RunPlace
from strandline.pipelines.run.run_log import RunLog, log_file_of
from strandline.pipelines.run.running import Outcome, Runner, RunOptions
from strandline.pipelines.run.stages import Stages
from strandline.pipelines.versions.state import (
    RUNNING,
    STARTING,
    STOPPED,
    DatasetState,
    PipelineState,
    QueryProgress,
    RebuildState,
    RunState,
    VersionState,
)
from strandline.pipelines.versions.version_files import digest_of
from strandline.pipelines.versions.version_store import Registry

SHOP = """
from pyspark.sql import functions as F
from strandline import pipeline

orders = pipeline.source("orders", schema="customer STRING, amount BIGINT", dead_letters="orders.dead")

@pipeline.temporary_view
def paid(orders):
    return orders.where("amount > 0")

@pipeline.stream
def large(paid):
    "Orders of more than a hundred."
    return paid.where("amount > 100")

@pipeline.table(key="customer")
def totals(large):
    return large.groupBy("customer").agg(F.sum("amount").alias("total"))

@pipeline.view(key="customer", changes="totals", mode="append")
def rich(totals):
    return totals.where("total > 500")
"""
PATIENCE_S = 300


def shop_of(topic: str) -> str:
    """The shop with topics that no other test has."""
    text = SHOP.replace('source("orders"', f'source("orders", topic="{topic}.orders"')
    text = text.replace("@pipeline.stream", f'@pipeline.stream(topic="{topic}.large")')
    for kind, name in (("table", "totals"), ("view", "rich")):
        text = text.replace(f"@pipeline.{kind}(", f'@pipeline.{kind}(topic="{topic}.{name}", ')
    return text.replace("orders.dead", f"{topic}.dead")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a user's, with a pipeline in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.fixture
def cli(broker: EmbeddedBroker) -> CommandLine:
    return CommandLine(broker.bootstrap)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def registry(broker: EmbeddedBroker) -> Iterator[Registry]:
    with Registry(broker.bootstrap) as registry:
        yield registry


def known(registry: Registry, name: str, **more: object) -> RunState:
    """A pipeline that runs, as the registry tells it."""
    datasets = {"totals": DatasetState("totals", Kind.TABLE, f"{name}.totals", f"{name}.totals", key=("customer",))}
    version = VersionState(1, "/home/anna/shop.py", checkpoints="/checkpoints", datasets=datasets)
    registry.change(name, lambda state: PipelineState(name, 1, {1: version}))
    progress = QueryProgress(RUNNING, 41, 2380, 12, 411.0, 3, written_rows=7)
    # From the future, so that a slow machine does not take it for dead.
    heard_ms = now_ms() + 600_000
    run = RunState(name, 1, "me", RUNNING, 4711, "anna", now_ms() - 90_000, heard_ms, queries={"totals": progress})
    run = replace(run, **more)  # type: ignore[arg-type]
    registry.put_run(run)
    return run


def test_status_says_how_far_each_dataset_is(cli: CommandLine, registry: Registry, topic: str) -> None:
    known(registry, topic)
    head, where, columns, totals = cli.ok("pipeline", "status", topic).lines
    assert head.startswith(f"{topic}, version 1: running, process 4711 on anna, for ")
    assert where == "  file /home/anna/shop.py, checkpoints in /checkpoints"
    assert columns.split() == [
        "DATASET",
        "KIND",
        "TOPIC",
        "STATE",
        "BATCH",
        "READ",
        "WRITTEN",
        "LATE",
        "BEHIND",
        "ROWS/S",
    ]
    assert totals.split() == ["totals", "table", f"{topic}.totals", "running", "41", "2,380", "7", "12", "3", "411"]
    told = cli.ok("pipeline", "status", topic, "--json").objects
    assert told[0]["state"] == "running"
    assert told[0]["datasets"]["totals"]["late_rows"] == 12


@pytest.mark.parametrize(
    ("phase", "owner", "words"),
    [
        ("building", "", "version 2 waits for another `pipeline rebuild`, or its --rollback"),
        ("building", "anna/4711/x", "building"),
        ("returning", "", "version 1 waits for another --rollback, or --finish"),
        ("switched", "", "switched"),
    ],
)
def test_a_rebuild_that_waits_for_the_user_says_so(
    phase: str, owner: str, words: str, cli: CommandLine, registry: Registry, topic: str
) -> None:
    known(registry, topic, state=STOPPED)
    versions = {number: VersionState(number, "shop.py") for number in (1, 2)}
    state = PipelineState(topic, 1, versions, RebuildState(phase, 1, 2, owner=owner))
    registry.change(topic, lambda _: state)
    listed = next(line for line in cli.ok("pipeline", "list").lines if line.split()[0] == topic)
    assert f" stopped (rebuild: {words}) " in listed
    assert f"  rebuild: {words}" in cli.ok("pipeline", "status", topic).lines
    told = {each["pipeline"]: each for each in cli.ok("pipeline", "list", "--json").objects}
    assert told[topic]["rebuild"] == phase


def test_a_run_that_says_nothing_any_more_is_lost(cli: CommandLine, registry: Registry, topic: str) -> None:
    known(registry, topic, heartbeat_ms=now_ms() - 61_000)
    assert cli.ok("pipeline", "status", topic).lines[0].startswith(f"{topic}, version 1: lost, last heard of 1 min")
    listed = {each["pipeline"]: each for each in cli.ok("pipeline", "list", "--json").objects}
    assert listed[topic]["state"] == "lost"
    assert listed[topic]["datasets"] == ["totals"]
    assert any(line.split()[:3] == [topic, "1", "lost"] for line in cli.ok("pipeline", "list").lines)
    assert "does not run" in cli.ok("pipeline", "stop", topic).lines[0]


def test_who_was_killed_on_this_machine_is_lost_at_once(cli: CommandLine, registry: Registry, topic: str) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    known(registry, topic, pid=ended.pid, host=platform.node())
    assert cli.ok("pipeline", "status", topic).lines[0].startswith(f"{topic}, version 1: lost, last heard of")
    assert cli.ok("pipeline", "stop", topic).lines == [f"{topic} does not run"]
    known(registry, topic, pid=os.getpid(), host=platform.node())
    assert cli.ok("pipeline", "status", topic, "--json").objects[0]["state"] == "running"


def test_a_run_that_starts_has_a_process_and_no_datasets_yet(cli: CommandLine, registry: Registry, topic: str) -> None:
    known(registry, topic, state=STARTING)
    registry.change(topic, lambda state: PipelineState(topic, 1, {1: VersionState(1, "shop.py", checkpoints="here")}))
    head, where = cli.ok("pipeline", "status", topic).lines
    assert head.startswith(f"{topic}, version 1: starting, process 4711 on anna, for ")
    assert where == "  file shop.py, checkpoints in here"


def test_a_failure_is_told_again(cli: CommandLine, registry: Registry, topic: str) -> None:
    known(registry, topic, state="failed", failure="totals failed: Division by zero")
    assert cli.ok("pipeline", "status", topic).lines[1] == "  totals failed: Division by zero"


def test_an_unknown_pipeline_is_3_with_a_guess(cli: CommandLine, registry: Registry, topic: str) -> None:
    known(registry, topic, state=STOPPED)
    for verb in ("status", "stop", "delete", "logs"):
        ended = cli.run("pipeline", verb, f"{topic}x")
        assert ended.status == 3
        assert f"did you mean '{topic}'?" in ended.stderr


def test_stop_waits_until_it_has_stopped(cli: CommandLine, registry: Registry, topic: str) -> None:
    run = known(registry, topic)

    def let_go() -> None:
        with Registry(registry.bootstrap) as other:
            eventually(lambda: other.refresh().command(topic))
            other.put_run(replace(run, state=STOPPED))

    runner = threading.Thread(target=let_go)
    runner.start()
    assert cli.ok("pipeline", "stop", topic).lines == [f"stopped {topic}, version 1"]
    runner.join()


def test_stop_that_is_not_heard_is_4(cli: CommandLine, registry: Registry, topic: str) -> None:
    known(registry, topic)
    ended = cli.run("pipeline", "stop", topic, "--timeout", "0.5")
    assert ended.status == 4
    assert "process 4711 on anna has not after 0.5 s" in ended.stderr


def test_the_group_of_a_query_says_whether_its_pipeline_runs(
    cli: CommandLine, broker: EmbeddedBroker, registry: Registry, topic: str
) -> None:
    run = known(registry, topic)
    group = f"pipeline.{topic}.totals"
    broker.create_topic(f"{topic}.orders")
    cli.ok("group", "reset", group, "--topic", f"{topic}.orders", "--to-earliest", "--yes")
    told = cli.ok("group", "list", "--json", "--pattern", f"{group}*").objects
    assert told[0]["pipeline"] == {"pipeline": topic, "version": 1, "state": "running"}
    assert f"pipeline {topic}, running" in cli.ok("group", "list", "--pattern", f"{group}*").lines[1]
    shown = cli.ok("group", "describe", group).lines
    assert shown[2:5:2] == [
        f"state        pipeline {topic}, running",
        "members      none: Spark reads, and commits how far each query is",
    ]
    registry.put_run(replace(run, state=STOPPED))
    assert cli.ok("group", "describe", group, "--json").objects[0]["pipeline"]["state"] == "stopped"


def logged(registry: Registry, name: str, home: Path, **more: object) -> tuple[RunState, RunLog]:
    path = log_file_of(home, name, 1)
    run = known(registry, name, log=str(path), host=platform.node(), pid=os.getpid(), **more)
    return run, RunLog(path)


def test_logs_shows_what_the_last_run_said_beside_sparks_log(
    cli: CommandLine, registry: Registry, topic: str, home: Path
) -> None:
    for words in ("the run before", "  planning      3.0 s  2 queries"):
        _, log = logged(registry, topic, home, state=STOPPED)
        log.line(words, 1_700_000_000.0)
        log.close()
    try:
        raise ValueError("no such column")
    except ValueError as error:
        log.failure(error)
    log.close()
    Path(log_file_of(home, topic, 1)).with_name("spark.log").write_text("2024-01-01 00:00:00 WARN Task: lost\n  at x\n")
    first, *rest = cli.ok("pipeline", "logs", topic).lines
    assert first.endswith(" planning      3.0 s  2 queries")
    assert rest[:2] == ["2024-01-01 00:00:00 WARN Task: lost", "  at x"], "in the order of time"
    assert rest[-1] == "ValueError: no such column"
    assert cli.ok("pipeline", "logs", topic, "--last", "1").lines == ["ValueError: no such column"]
    told = cli.ok("pipeline", "logs", topic, "--json").objects
    assert [each["log"] for each in told[:3]] == ["run", "spark", "spark"]
    assert {each["version"] for each in told} == {1}


def test_logs_follows_until_the_run_ends(cli: CommandLine, registry: Registry, topic: str, home: Path) -> None:
    run, log = logged(registry, topic, home)
    log.line("it begins")
    with closing(log), cli.start("pipeline", "logs", topic, "--follow") as process:
        assert process.stdout is not None
        # What the Spark of this process warns of comes in between.
        shown = iter(process.stdout.readline, b"")
        assert any(b"it begins" in line for line in shown)
        log.line("a batch")
        assert any(b"a batch" in line for line in shown)
        log.line("done")
        registry.put_run(replace(run, state=STOPPED))
        assert any(b"done" in line for line in shown)
        assert process.wait(PATIENCE_S) == 0


def test_a_run_goes_on_without_a_log_that_cannot_be_written(home: Path) -> None:
    (home / "file").write_text("")
    said = io.StringIO()
    runner = cast(Runner, SimpleNamespace(log_path=home / "file" / "run.log"))
    with _logged(Stages(said), runner) as begin:
        begin()
    assert said.getvalue().startswith("  no log is kept: ")


def test_logs_says_where_the_log_is_that_is_not_here(
    cli: CommandLine, registry: Registry, topic: str, home: Path
) -> None:
    known(registry, topic, log="/home/anna/.strandline/logs/shop/v1/run.log")
    ended = cli.run("pipeline", "logs", topic)
    assert ended.status == 1
    assert "ran as process 4711 on anna, so its log is there" in ended.stderr
    assert "on anna: `tail -f /home/anna/.strandline/logs/shop/v1/run.log`" in ended.stderr
    known(registry, topic)
    assert "kept no log" in cli.run("pipeline", "logs", topic).stderr
    known(registry, topic, log=str(home / "gone.log"), host=platform.node())
    assert cli.run("pipeline", "logs", topic).status == 3


def deletable(broker: EmbeddedBroker, registry: Registry, name: str, home: Path) -> Path:
    """A pipeline that has stopped, with a table, dead letters and checkpoints; another one reads its stream."""
    topics = [f"{name}.{each}" for each in ("orders", "totals", "dead", "large")]
    for each in topics:
        broker.create_topic(each)
    kinds = {"totals": Kind.TABLE, "dead letters of orders": Kind.STREAM, "large": Kind.STREAM}
    datasets = {
        each: DatasetState(each, kind, topic, topic, reads=(topics[0],))
        for (each, kind), topic in zip(kinds.items(), topics[1:], strict=True)
    }
    version = VersionState(1, "shop.py", checkpoints=str(home / "checkpoints"), datasets=datasets)
    registry.change(name, lambda _: PipelineState(name, 1, {1: version}))
    registry.put_run(RunState(name, 1, "me", STOPPED, 4711, "anna"))
    reader = {"copy": DatasetState("copy", Kind.STREAM, f"{name}.copy", f"{name}.copy", reads=(topics[3],))}
    registry.change(
        f"{name}-reader", lambda _: PipelineState(f"{name}-reader", 1, {1: VersionState(1, datasets=reader)})
    )
    checkpoint = home / "checkpoints" / name / "v1" / "totals"
    checkpoint.mkdir(parents=True)
    return checkpoint


def test_delete_shows_a_plan_and_removes_what_only_the_pipeline_has(
    cli: CommandLine, broker: EmbeddedBroker, registry: Registry, topic: str, home: Path
) -> None:
    checkpoint = deletable(broker, registry, topic, home)
    cli.ok("produce", f"{topic}.totals", "-k", "ann", stdin=b"1\n")
    cli.ok("consume", f"{topic}.totals", "--group", f"{topic}-readers")
    planned = cli.run("pipeline", "delete", topic)
    assert planned.status == 2
    assert f"  topic {topic}.totals and every record in it; read by group {topic}-readers\n" in planned.stderr
    assert f"  topic {topic}.dead and every record in it\n" in planned.stderr
    assert f"  topic {topic}.large stays: the pipeline {topic}-reader reads it\n" in planned.stderr
    assert f"  its checkpoints in {checkpoint.parent}/\n" in planned.stderr
    assert f"{topic}.orders" not in planned.stderr
    assert checkpoint.exists()
    assert cli.ok("pipeline", "delete", topic, "--yes").lines == [f"deleted {topic}"]
    assert not checkpoint.parent.exists()
    left = {each["topic"] for each in cli.ok("topic", "list", "--json").objects}
    assert {each for each in left if each.startswith(f"{topic}.")} == {f"{topic}.orders", f"{topic}.large"}
    assert registry.refresh().pipeline(topic) is None
    assert registry.runs(topic) == {}
    assert cli.run("pipeline", "delete", topic, "--yes").status == 3


def test_the_plan_of_a_delete_says_which_checkpoints_stay(home: Path) -> None:
    gone = home / "elsewhere"
    assert _checkpoints_in_words(str(gone)) == (
        f"its checkpoints stay: remove {gone} on the machine where the pipeline ran"
    )
    assert _checkpoints_in_words("s3a://here/c") == "its checkpoints stay in s3a://here/c: remove them there"


def test_delete_can_keep_topics_and_refuses_a_pipeline_that_runs(
    cli: CommandLine, broker: EmbeddedBroker, registry: Registry, topic: str, home: Path
) -> None:
    deletable(broker, registry, topic, home)
    run = replace(registry.runs(topic)[1], state=RUNNING, heartbeat_ms=now_ms() + 600_000)
    registry.put_run(run)
    refused = cli.run("pipeline", "delete", topic, "--yes")
    assert refused.status == 1
    assert refused.stderr.splitlines() == [
        f"error: {topic} runs, as process 4711 on anna, so it cannot be deleted",
        f"next:  stop it first: `strandline pipeline stop {topic}`",
    ]
    registry.put_run(replace(run, state=STOPPED))
    assert cli.ok("pipeline", "delete", topic, "--keep-topics", "-y", "--json").objects == [
        {"pipeline": topic, "deleted": True, "topics": [], "kept": []}
    ]
    assert f"{topic}.totals" in {each["topic"] for each in cli.ok("topic", "list", "--json").objects}


def test_nothing_is_started_for_a_file_that_is_wrong(cli: CommandLine, home: Path) -> None:
    (home / "wrong.py").write_text("from strandline import pipeline\n\n@pipeline.stream\ndef large(orders:\n")
    ended = cli.run("pipeline", "run", "wrong.py")
    assert ended.status == 1
    assert "wrong.py:4: '(' was never closed" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Java" not in ended.stderr
    (home / "mistyped.py").write_text(SHOP.replace("def paid(orders)", "def paid(order)"))
    ended = cli.run("pipeline", "run", "mistyped.py")
    assert ended.status == 1
    assert "mistyped.py:7: paid reads order, which is neither declared" in ended.stderr
    assert "Java" not in ended.stderr
    assert "did you mean orders?" in ended.stderr
    assert "created" not in ended.stderr
    assert "mistyped" not in {each["pipeline"] for each in cli.ok("pipeline", "list", "--json").objects}
    ended = cli.run("pipeline", "run", "nowhere.py")
    assert ended.status == 3
    assert "there is no file nowhere.py" in ended.stderr
    assert cli.run("pipeline", "run", "shop.py", "-b", "127.0.0.1:9").status == 4
    ended = cli.run("pipeline", "run", "shop.py", "--master", "spark://127.0.0.1:9")
    assert ended.status == 1
    assert ended.stderr.startswith("error: no Spark master answers at spark://127.0.0.1:9 ")
    assert cli.run("pipeline", "run", "shop.py", "--set", "x").status == 2
    ended = cli.run("pipeline", "run", "shop.py", "--every", "often")
    assert (ended.status, ended.stderr.splitlines()[0]) == (2, "error: --every 'often' is no time")


def test_a_missing_topic_and_a_lost_checkpoint_are_refused_before_java(
    cli: CommandLine, registry: Registry, topic: str, home: Path
) -> None:
    """Within a second or two, and without creating anything."""
    (home / f"{topic}.py").write_text(shop_of(topic))
    ended = cli.run("pipeline", "run", f"{topic}.py")
    assert ended.status == 1
    assert f"the topic {topic}.orders of the source orders does not exist" in ended.stderr
    assert "Java" not in ended.stderr
    assert registry.refresh().pipeline(topic) is None

    cli.ok("topic", "create", f"{topic}.orders")
    written = f"{topic}.totals"
    datasets = {"totals": DatasetState("totals", Kind.TABLE, written, written, query_id="7")}
    version = VersionState(1, f"{topic}.py", checkpoints=str(home / "checkpoints"), datasets=datasets)
    registry.change(topic, lambda _: PipelineState(topic, 1, {1: version}))
    ended = cli.run("pipeline", "run", f"{topic}.py", "--checkpoints", "checkpoints")
    assert ended.status == 1
    assert f"the checkpoint of totals is gone from {home / 'checkpoints'}" in ended.stderr
    assert "Java" not in ended.stderr
    assert registry.refresh().runs(topic) == {}
    assert f"{topic}.dead" not in {each["topic"] for each in cli.ok("topic", "list", "--json").objects}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_file_that_spark_refuses_creates_nothing(cli: CommandLine, topic: str, home: Path) -> None:
    (home / f"{topic}.py").write_text(shop_of(topic).replace("amount > 100", "amoun > 100"))
    cli.ok("topic", "create", f"{topic}.orders")
    said = subprocess.run(
        [*COMMAND, "pipeline", "run", f"{topic}.py", "-b", str(cli.bootstrap), "--master", "local[2]"],
        cwd=home,
        capture_output=True,
        text=True,
    )
    assert said.returncode == 1
    assert "large failed:" in said.stderr
    assert "created" not in said.stderr
    assert f"{topic}.dead" not in {each["topic"] for each in cli.ok("topic", "list", "--json").objects}
    assert topic not in {each["pipeline"] for each in cli.ok("pipeline", "list", "--json").objects}


def test_explain_says_what_a_file_declares_without_java(home: Path) -> None:
    lonely = CommandLine()
    shown = lonely.ok("pipeline", "explain", "shop.py").stdout.decode()
    assert "pipeline shop (shop.py)" in shown
    assert "what does not parse goes to the topic orders.dead" in shown
    assert "stream large: Orders of more than a hundred.\n  reads    paid (as a part)\n" in shown
    assert "  writes   topic totals, compacted, a record for each customer; mode update;" in shown
    assert "  reads    totals (its changes, a stream)\n" in shown
    told = {each["dataset"]: each for each in lonely.ok("pipeline", "explain", "shop.py", "--json").objects}
    assert (told["paid"]["topic"], told["paid"]["kind"]) == (None, "temporary")
    assert (told["rich"]["key"], told["rich"]["mode"], told["rich"]["changes"]) == (["customer"], "append", ["totals"])


def test_explain_says_first_that_a_name_is_not_there(home: Path) -> None:
    """Only a cluster knows of other pipelines; that none answers is not what is wrong with a mistyped name."""
    (home / "mistyped.py").write_text(SHOP.replace("def paid(orders)", "def paid(order)"))
    ended = CommandLine().run("pipeline", "explain", "mistyped.py", "-b", "127.0.0.1:9")
    assert ended.status == 1
    refused, hint = ended.stderr.splitlines()
    assert refused.startswith("error: mistyped.py:7: paid reads order, which is neither declared")
    assert "did you mean orders?" in refused
    assert hint.startswith("next:  or name the cluster of that pipeline with --bootstrap: cannot reach 127.0.0.1:9 (")


def test_where_there_is_no_pipeline_it_is_said_what_makes_one(lonely: EmbeddedBroker) -> None:
    ended = CommandLine(lonely.bootstrap).run("pipeline", "status")
    assert (ended.status, ended.stderr.splitlines()) == (
        3,
        ["error: there is no pipeline yet", "next:  `strandline pipeline run FILE` makes one"],
    )


@pytest.mark.slow
def test_explain_asks_spark_for_columns_and_state(home: Path) -> None:
    ended = subprocess.run(
        [*COMMAND, "pipeline", "explain", "shop.py", "--plan", "--json"], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    told = {each["dataset"]: each for each in map(json.loads, ended.stdout.splitlines())}
    assert told["totals"]["state"] == ["aggregate"]
    assert told["totals"]["columns"] == "customer string, total bigint"
    assert told["rich"]["state"] == []
    assert told["rich"]["reads"] == ["totals"]


@pytest.mark.slow
def test_a_query_in_sql_is_checked_by_spark_alone(home: Path) -> None:
    """As docs/pipelines.md says: without --plan nothing is known of what stands after AS."""
    (home / "shop.sql").write_text(
        "CREATE SOURCE orders (id BIGINT);\n\nCREATE STREAM large AS\n  SELEC id FROM orders;\n"
    )
    CommandLine().ok("pipeline", "explain", "shop.sql")
    ended = subprocess.run([*COMMAND, "pipeline", "explain", "shop.sql", "--plan"], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        1,
        "error: shop.sql:4: large failed: Syntax error at or near 'SELEC'",
    )


@pytest.mark.parametrize("removes", [False, True])
def test_a_yes_to_the_switch_is_none_to_the_rows_that_it_removes(
    removes: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a script, which nobody can ask."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with ExitStack() as stack, Stopping() as stopping, closing(Stages(io.StringIO())) as stages:
        place = RunPlace("nowhere:1", home=home)
        means = pipeline_rebuild._means(stack, place, stages, "shop", stopping, Output(), yes=True, removes=removes)
        assert means.may_switch([])
        assert means.may_remove([Removal("totals", 10, 2)]) is removes


NOT_SWITCHED = {
    (Phase.BUILDING, "new/my shop.py"): (
        "`strandline pipeline rebuild shop 'new/my shop.py' --bootstrap here:1 --yes`, "
        "or `strandline pipeline rebuild shop --bootstrap here:1 --rollback`"
    ),
    (Phase.BUILDING, None): (
        "`strandline pipeline rebuild shop --bootstrap here:1 --yes`, "
        "or `strandline pipeline rebuild shop --bootstrap here:1 --rollback`"
    ),
    (Phase.RETURNING, None): (
        "`strandline pipeline rebuild shop --bootstrap here:1 --rollback --yes`, "
        "or `strandline pipeline rebuild shop --bootstrap here:1 --finish`"
    ),
}


@pytest.mark.parametrize(("phase", "file"), NOT_SWITCHED)
@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_switch_that_nobody_confirmed_names_the_commands_that_can_follow(
    phase: Phase, file: str | None, is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: is_terminal))
    ended = RebuildEnd(1, phase, "nothing was switched")
    with pytest.raises(CommandFailed) as raised:
        pipeline_rebuild._check_switched(ended, "shop", file, {"--bootstrap": "here:1", "--master": None})
    failure = raised.value
    assert failure.code == (ExitCode.ERROR if is_terminal else ExitCode.USAGE)
    assert (failure.message, failure.hint) == ("nothing was switched", NOT_SWITCHED[phase, file])


@pytest.mark.parametrize("as_json", [False, True])
def test_a_rebuild_that_only_compared_is_2(
    as_json: bool, cli: CommandLine, registry: Registry, topic: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The build itself needs Spark, and is that of another test."""
    known(registry, topic, state=STOPPED)
    words = "nothing was switched: say it again with --yes"
    monkeypatch.setattr(Rebuilding, "carry_out", lambda *_, **__: RebuildEnd(1, Phase.BUILDING, words))
    ended = cli.run("pipeline", "rebuild", topic, "shop.py", "--compare", *(["--json"] if as_json else []))
    command = f"strandline pipeline rebuild {topic} shop.py --bootstrap {cli.bootstrap} --yes"
    assert ended.status == 2
    assert ended.stderr.splitlines()[0] == f"error: {words}"
    assert f"`{command}`" in ended.stderr
    assert [each["said"] for each in ended.objects] == ([words] if as_json else [])


def test_a_signal_ends_the_start_and_is_only_noted_once_spark_is_there() -> None:
    """An exception in the middle of a call to Java would leave its answer behind for the next call."""
    with Stopping() as stopping:
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        assert not stopping.is_urgent
    with Stopping() as stopping:
        stopping.arm()
        signal.raise_signal(signal.SIGTERM)
        assert stopping.event.is_set()
        with pytest.raises(Interrupted):
            signal.raise_signal(signal.SIGINT)
        assert stopping.is_urgent


def test_who_stops_a_run_of_once_is_not_told_that_its_work_is_done(registry: Registry, home: Path) -> None:
    runners = {once: Runner(load("shop.py"), registry, RunOptions(str(home), once=once)) for once in (True, False)}
    output = Output()
    for once, outcome in [(False, Outcome.STOPPED), (False, Outcome.ASKED), (True, Outcome.DONE)]:
        tell_end(runners[once], outcome, output)
    with pytest.raises(Interrupted):
        tell_end(runners[True], Outcome.STOPPED, output)
    with pytest.raises(CommandFailed, match="shop was asked to stop before everything"):
        tell_end(runners[True], Outcome.ASKED, output)


class Run:
    """`strandline pipeline run shop.py` as a user starts it, in a directory."""

    def __init__(self, home: Path, *options: str) -> None:
        self._said = (home / f"said-{time.monotonic_ns()}").open("w+")
        environ = os.environ | {"PYTHONUNBUFFERED": "1"}
        environ.pop("STRANDLINE_BOOTSTRAP", None)
        self.process = subprocess.Popen(
            [*COMMAND, "pipeline", "run", "shop.py", "--master", "local[2]", *options],
            cwd=home,
            env=environ,
            stderr=self._said,
        )

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._said.close()

    @property
    def said(self) -> str:
        self._said.seek(0)
        return self._said.read()

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)


def where(home: Path) -> str:
    told = home / ".strandline" / "node.json"
    eventually(told.exists)
    return str(json.loads(told.read_text())["bootstrap"])


def feed(bootstrap: str, *amounts: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for amount in amounts:
        producer.produce("orders", value=json.dumps({"customer": "ann", "amount": amount}))
    assert producer.flush(30) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_from_nothing_to_output_through_a_kill_and_a_stop(home: Path) -> None:
    """With no option: a node of its own, three steps, a `kill -9`, and `pipeline stop` from the same directory."""
    lonely = CommandLine()
    lonely.environ.pop("STRANDLINE_BOOTSTRAP", None)
    with Run(home) as run:
        bootstrap = where(home)
        feed(bootstrap, 200)
        eventually(lambda: "first batch" in run.said)
        eventually(lambda: len(read_all(bootstrap, "totals")) == 1)
        for stage in ("node", "file", "Java", "Spark", "planning"):
            assert f"\n  {stage} " in f"\n{run.said}"
        assert lonely.run("pipeline", "run", "shop.py").status == 1, "one process at a time"
    with Run(home) as run:
        eventually(lambda: (home / ".strandline" / "node.json").exists() and "planning" in run.said)
        bootstrap = where(home)
        feed(bootstrap, 400)
        eventually(lambda: len(read_all(bootstrap, "rich")) == 1)
        assert [value["total"] for _, value in read_all(bootstrap, "totals")] == [200, 600]
        assert lonely.ok("pipeline", "status", "--json").objects[0]["state"] == "running"
        assert lonely.ok("pipeline", "stop", "shop").lines == ["stopped shop, version 1"]
        assert run.wait() == 0
        assert "shop, version 1: asked to stop" in run.said
    # The node is gone with the run, and is started for a look.
    assert not (home / ".strandline" / "node.json").exists()
    assert lonely.ok("pipeline", "list", "--json").objects[0]["state"] == "stopped"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_once_and_a_signal(home: Path, lonely: EmbeddedBroker) -> None:
    lonely.create_topic("orders")
    feed(lonely.bootstrap, 200, 700)
    ended = subprocess.run(
        [*COMMAND, "pipeline", "run", "shop.py", "--once", "--json", "-b", lonely.bootstrap, "--master", "local[2]"],
        cwd=home,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    told = {each["dataset"]: each for each in map(json.loads, ended.stdout.splitlines())}
    assert told["large"]["rows"] == 2
    assert read_all(lonely.bootstrap, "rich") == [("ann", {"total": 900})]
    with Run(home, "-b", lonely.bootstrap) as run:
        eventually(lambda: "planning" in run.said)
        run.process.send_signal(signal.SIGTERM)
        assert run.wait() == 0, run.said
    logs = CommandLine(lonely.bootstrap).ok("pipeline", "logs", "shop").stdout.decode()
    assert " planning " in logs
    assert logs.rstrip().endswith(" stopped")
    with Registry(lonely.bootstrap) as registry:
        ran = registry.refresh().run("shop", 1)
        assert ran is not None
        assert (ran.state, ran.host) == (STOPPED, platform.node())


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_change_is_told_before_it_happens_and_a_failure_in_a_sentence(home: Path, lonely: EmbeddedBroker) -> None:
    def said(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "pipeline", *words, "-b", lonely.bootstrap]
        return subprocess.run(command, cwd=home, capture_output=True, text=True)

    lonely.create_topic("orders")
    feed(lonely.bootstrap, 200, 700)
    run = ("run", "shop.py", "--once", "--master", "local[2]")
    assert said(*run).returncode == 0
    (home / "shop.py").write_text(SHOP.replace("F.sum", "F.max").replace("> 500", "> 600") + "# Changed.\n")
    told = said("explain", "shop.py", "--diff", "--plan", "--json")
    assert told.returncode == 0, told.stderr
    changes = {each["dataset"]: each["change"] for each in map(json.loads, told.stdout.splitlines())}
    expected = {"large": "same", "totals": "needs rebuild", "rich": "continues with old state"}
    assert changes == {"dead letters of orders": "same", **expected}
    shown = said("explain", "shop.py", "--diff", "--plan").stdout
    assert "functions: sum(large.amount) before, max(large.amount) now" in shown
    refused = said(*run)
    assert refused.returncode == 1
    assert "  totals: needs rebuild (functions: sum(large.amount) before" in refused.stderr
    assert "error: totals needs a rebuild: functions: sum(large.amount) before" in refused.stderr
    assert read_all(lonely.bootstrap, "rich") == [("ann", {"total": 900})]
    assert said(*run, "--accept").returncode == 0

    # A table is written by a function of ours that Java calls.
    (home / "shop.py").write_text(SHOP.replace("large.groupBy", 'large.where("1 / (amount - 300) > 0").groupBy'))
    feed(lonely.bootstrap, 300)
    failed = said(*run)
    assert failed.returncode == 1
    assert "error: totals failed: Division by zero" in failed.stderr
    for trace in ("Traceback", "\tat ", 'File "'):
        assert trace not in failed.stderr
    assert "Traceback" in said(*run, "--verbose").stderr


def test_a_diff_says_without_spark_what_the_declarations_tell(
    cli: CommandLine, registry: Registry, topic: str, home: Path
) -> None:
    (home / f"{topic}.py").write_text(shop_of(topic))
    never = cli.ok("pipeline", "explain", f"{topic}.py", "--diff")
    assert never.lines[0] == (
        f"{topic} has not run on the cluster {cli.bootstrap} yet: "
        "every dataset would be built from the beginning of its inputs"
    )
    assert [line.split()[-1] for line in never.lines[1:]] == ["CHANGE", "new", "new", "new", "new"]
    assert {each["version"] for each in cli.ok("pipeline", "explain", f"{topic}.py", "--diff", "--json").objects} == {
        None
    }
    latest = shop_of(topic).replace("dead_letters=", 'options={"startingOffsets": "latest"}, dead_letters=')
    (home / f"{topic}.py").write_text(latest)
    never = cli.ok("pipeline", "explain", f"{topic}.py", "--diff")
    assert never.lines[0].endswith("the beginning of its inputs, or from the startingOffsets of a source")
    (home / f"{topic}.py").write_text(shop_of(topic))
    kinds = {"large": Kind.STREAM, "totals": Kind.TABLE, "old": Kind.STREAM, "dead letters of orders": Kind.STREAM}
    topics = {name: f"{topic}.{name}" for name in kinds} | {"dead letters of orders": f"{topic}.dead"}
    datasets = {
        name: DatasetState(
            name, kind, topics[name], topics[name], key=("id",) if kind is Kind.TABLE else (), query_id="7"
        )
        for name, kind in kinds.items()
    }
    version = VersionState(1, f"{topic}.py", digest="other", checkpoints="here", datasets=datasets)
    registry.change(topic, lambda _: PipelineState(topic, 1, {1: version}))
    told = cli.ok("pipeline", "explain", f"{topic}.py", "--diff", "--json").objects
    assert {each["dataset"]: each["change"] for each in told} == {
        "dead letters of orders": "only Spark knows",
        "large": "only Spark knows",
        "totals": "needs rebuild",
        "rich": "new",
        "old": "gone",
    }
    assert "its key was id and is customer" in cli.ok("pipeline", "explain", f"{topic}.py", "--diff").stdout.decode()
    same = replace(version, digest=digest_of((home / f"{topic}.py").read_bytes()))
    registry.change(topic, lambda _: PipelineState(topic, 1, {1: same}))
    told = cli.ok("pipeline", "explain", f"{topic}.py", "--diff", "--json").objects
    assert {each["dataset"]: each["change"] for each in told}["large"] == "same"
