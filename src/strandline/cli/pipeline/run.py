"""`strandline pipeline run`."""

from __future__ import annotations

import os
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed, Interrupted, UsageFailed
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import AsJson, GroundBootstrap
from strandline.cli.common.output import Output
from strandline.cli.pipeline.failures import check_file, plain_failures

if TYPE_CHECKING:
    from strandline.pipelines.language.model import Pipeline
    from strandline.pipelines.run.launching import Launch
    from strandline.pipelines.run.running import Outcome, Runner, RunOptions
    from strandline.pipelines.run.stages import Stages

SWITCH_LOOK_S = 0.5

Master = Annotated[
    str | None,
    typer.Option("--master", metavar="MASTER", help="The Spark to run on: spark://host:7077. Default: this machine."),
]
Checkpoints = Annotated[
    str | None,
    typer.Option("--checkpoints", metavar="DIR", help="Where queries keep their positions and state."),
]
SparkSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of Spark. May be repeated.")
]
Recover = Annotated[bool, typer.Option("--recover", help="Restore lost checkpoints from the log.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show Spark's log, and whole traces of failures.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="The pipeline: a Python or SQL file.")]


def run(
    file: File,
    bootstrap: GroundBootstrap = None,
    master: Master = None,
    once: Annotated[bool, typer.Option("--once", help="Process the records that are there now, then end.")] = False,
    every: Annotated[
        str | None, typer.Option("--every", metavar="TIME", help="Time between two batches, such as '10 seconds'.")
    ] = None,
    checkpoints: Checkpoints = None,
    takeover: Annotated[
        bool, typer.Option("--takeover", help="Run it although another process does: that one is fenced.")
    ] = False,
    recover: Recover = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Continue with the old state although the file now means something else.")
    ] = False,
    settings: SparkSettings = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline's file on Spark until Ctrl-C. Each row is written exactly once.

    The next run continues where this one stopped. Without options it runs on this machine, with a node of its own.
    """
    spark_settings = key_values(settings, option="--set")
    check_file(file)
    _check_every(every)
    if bootstrap is not None:
        bootstrap = connect(bootstrap, None, TIMEOUT_S_DEFAULT).servers
    output = Output(as_json=as_json)
    with plain_failures(verbose=verbose), Stopping() as stopping, _stopped_early(stopping, file, once=once):
        from strandline.pipelines.run import preflight
        from strandline.pipelines.run.launching import Launch, RunPlace
        from strandline.pipelines.run.run_record import now_ms
        from strandline.pipelines.run.stages import Stages
        from strandline.pipelines.versions.version_lease import Claim

        place = RunPlace(bootstrap, master, checkpoints, spark_settings, verbose=verbose)
        with closing(Stages(sys.stderr)) as stages, Launch(place, stages, name=Path(file).stem, file=file) as launch:
            assert launch.pipeline is not None
            registry = launch.registry()
            claim = Claim(
                launch.pipeline, "", os.getpid(), platform.node(), now_ms(), launch.checkpoints(), None, once, takeover
            )
            with stages.stage("checks") as stage:
                version = preflight.check(
                    registry,
                    claim,
                    makes_sources=bootstrap is None,
                    recovers=recover,
                    files_are_here=launch.files_are_here,
                )
                stage.detail = f"{launch.pipeline.name}, version {version}"
            launch.begin_spark()
            # Imported while Java starts.
            from strandline.pipelines.run.running import RunOptions

            options = RunOptions(
                claim.checkpoints,
                once=once,
                takeover=takeover,
                makes_sources=bootstrap is None,
                recovers=recover,
                accepts=accept,
                log_home=place.home,
            )
            _run(launch.pipeline, launch, replace(options, every=every) if every else options, output, stopping)


def _check_every(every: str | None) -> None:
    from strandline.pipelines.language.checks import is_time

    if every is not None and not is_time(every):
        raise UsageFailed(f"--every {every!r} is no time", hint="say one like '10 seconds' or '500 milliseconds'")


def _run(pipeline: Pipeline, launch: Launch, options: RunOptions, output: Output, stopping: Stopping) -> None:
    """Run the version that the name means; when a rebuild has switched to another, run that one."""
    from strandline.pipelines.run.running import Outcome, Runner

    while True:
        runner = Runner(pipeline, launch.registry(), options, tell=lambda words: launch.stages.say(f"  {words}"))
        outcome = _run_version(runner, launch, stopping)
        if outcome is not Outcome.HANDED_OVER:
            tell_end(runner, outcome, output)
            return
        launch.stages.say(f"{pipeline.name} is being rebuilt: version {runner.version} has stopped for the switch")
        file = _await_switch(launch, pipeline.name, stopping)
        if file is None:
            return
        options = replace(options, takeover=False, accepts=False)
        pipeline = launch.load(file)


def _run_version(runner: Runner, launch: Launch, stopping: Stopping) -> Outcome:
    from strandline.cli.pipeline.display import RunDisplay

    stages = launch.stages
    with _logged(stages, runner) as begin_log:
        with _given_up(runner):
            # What the cluster knows is claimed at once. A new pipeline creates nothing until its frames are made.
            is_leased = runner.choose_version()
            if is_leased:
                runner.lease()
                begin_log()
            spark = launch.spark()
            stopping.arm()
            with stages.stage("planning") as stage:
                runner.rehearse(spark)
                stage.detail = f"{len(runner.compiled)} queries"
            with stages.stage("topics"):
                if not is_leased:
                    runner.lease()
                    begin_log()
                runner.make_topics()
                runner.plan(spark)
        runner.display = RunDisplay(stages)
        outcome = runner.run(stopping.event)
        stages.note(outcome.value)
        return outcome


@contextmanager
def _logged(stages: Stages, runner: Runner) -> Iterator[Callable[[], None]]:
    """Yield what begins the log of a run that is claimed: it gets all that is said, and the trace of a failure."""
    from strandline.pipelines.run.run_log import RunLog

    opened: list[RunLog] = []

    def begin() -> None:
        if path := runner.log_path:
            try:
                opened.append(RunLog(path))
            except OSError as error:
                stages.say(f"  no log is kept: {error}")
                return
            stages.keep(opened[0])

    try:
        yield begin
    except Exception as error:
        for log in opened:
            log.failure(error)
        raise
    finally:
        stages.keep(None)
        for log in opened:
            log.close()


def _await_switch(launch: Launch, name: str, stopping: Stopping) -> str | None:
    """Return the file of the version that the name means after the switch; None if the user does not want to wait."""
    from strandline.pipelines.rebuild.phases import is_switching
    from strandline.pipelines.versions.version_files import file_of

    while not stopping.event.wait(SWITCH_LOOK_S):
        state = launch.registry().refresh().pipeline(name)
        if state is None or state.current is None:
            return None
        if not is_switching(state.rebuild):
            launch.stages.say(f"{name} goes on as version {state.active}")
            return file_of(state.current, name, home=launch.place.home)
    return None


def tell_end(runner: Runner, outcome: Outcome, output: Output) -> None:
    from strandline.pipelines.run.running import Outcome

    name = runner.pipeline.name
    if output.as_json:
        for dataset, each in runner.progress().items():
            output.json_line({"pipeline": name, "version": runner.version, "dataset": dataset, **each.to_json()})
        output.flush()
    else:
        output.talk(f"{name}, version {runner.version}: {outcome.value}")
    if runner.options.once and outcome is Outcome.STOPPED:
        raise Interrupted
    if runner.options.once and outcome is Outcome.ASKED:
        raise CommandFailed(
            f"{name} was asked to stop before everything that was there had been written",
            hint="run it again: it goes on where it was",
        )


@contextmanager
def _given_up(runner: Runner) -> Iterator[None]:
    """Record that a run failed before its queries began, so that other commands do not take it for alive."""
    try:
        yield
    except BaseException as error:
        from strandline.spark.error_translation import in_a_sentence

        runner.give_up(in_a_sentence(error) if isinstance(error, Exception) else None)
        raise


@contextmanager
def _stopped_early(stopping: Stopping, file: str, *, once: bool) -> Iterator[None]:
    """End quietly if the user stops a run that has not begun; with `once` the work is not done, so that is an error."""
    try:
        yield
    except Interrupted:
        if once or stopping.is_urgent:
            raise
        Output().talk(f"{Path(file).stem}: stopped before it began")


class Stopping:
    """Ctrl-C and SIGTERM: before there is a Spark they end the command; then they set `event`, and end it the second
    time.

    An exception in the middle of a call to Java would leave its answer to the next call, so what speaks with it looks
    at `event` when it can, and queries are stopped by the loop that watches them.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.is_urgent = False
        """It was said twice."""
        self._is_armed = False

    def arm(self) -> None:
        self._is_armed = True

    def __enter__(self) -> Stopping:
        self._before = [signal.signal(each, self._heard) for each in (signal.SIGINT, signal.SIGTERM)]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), self._before, strict=True):
            signal.signal(number, handler)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.is_urgent = self.event.is_set()
        self.event.set()
        if self.is_urgent or not self._is_armed:
            raise Interrupted
