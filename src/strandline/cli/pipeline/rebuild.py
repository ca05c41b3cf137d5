"""`strandline pipeline rebuild`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.key_values import key_values
from strandline.cli.common.options import AsJson, GroundBootstrap
from strandline.cli.common.output import Output
from strandline.cli.common.plans import confirm
from strandline.cli.pipeline.failures import check_file, plain_failures
from strandline.cli.pipeline.reading import PipelineName, known_pipeline, registry_of
from strandline.cli.pipeline.run import Checkpoints, Master, Recover, SparkSettings, Stopping, Verbose

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.pipelines.rebuild.comparing import Comparison
    from strandline.pipelines.rebuild.rebuilding import Means, RebuildEnd
    from strandline.pipelines.rebuild.switching import Removal
    from strandline.pipelines.run.launching import RunPlace
    from strandline.pipelines.run.running import Runner
    from strandline.pipelines.run.stages import Stages
    from strandline.pipelines.versions.state import PipelineState
    from strandline.pipelines.versions.version_store import Registry
    from strandline.spark.display import Display


def rebuild(
    name: PipelineName,
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="The file of the new version. Default: that of the last run.")
    ] = None,
    bootstrap: GroundBootstrap = None,
    master: Master = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show how the versions differ, and ask before the switch.")
    ] = False,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="Give up the new version; after the switch, go back to the old one.")
    ] = False,
    finish: Annotated[bool, typer.Option("--finish", help="Remove the old version that the switch kept.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask. A switch that removes many rows also needs --remove-rows.")
    ] = False,
    remove_rows: Annotated[
        bool, typer.Option("--remove-rows", help="Switch even if that removes more than a tenth of a table's rows.")
    ] = False,
    from_beginning: Annotated[
        bool,
        typer.Option(
            "--from-beginning", help="Read sources from their first record, not from where the old version began."
        ),
    ] = False,
    checkpoints: Checkpoints = None,
    recover: Recover = False,
    settings: SparkSettings = None,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Build a new version of a pipeline beside the old one, from where that one began, then switch to it.

    Readers see the old version until the switch, and the new one after it. The old version is kept until --finish. If
    the command is killed, run it again: it continues where it was. Without a terminal, --compare switches only with
    --yes.
    """
    if rollback and finish:
        raise UsageFailed(
            "--rollback and --finish cannot go together", hint="one keeps the old version, one removes it"
        )
    if file is not None:
        check_file(file)
    spark_settings = key_values(settings, option="--set")
    output = Output(as_json=as_json)
    with ExitStack() as stack:
        stopping = stack.enter_context(Stopping())
        registry = stack.enter_context(registry_of(bootstrap))
        state = known_pipeline(registry, name)
        with plain_failures(verbose=verbose):
            from strandline.pipelines.rebuild.phases import Wish
            from strandline.pipelines.rebuild.rebuilding import Rebuilding
            from strandline.pipelines.run.launching import RunPlace
            from strandline.pipelines.run.stages import Stages

            wish = Wish.ROLL_BACK if rollback else Wish.FINISH if finish else Wish.REBUILD
            if wish is Wish.FINISH:
                _confirm_finish(output, registry, state, yes=yes)
            stages = stack.enter_context(closing(Stages(sys.stderr)))
            place = RunPlace(registry.bootstrap, master, checkpoints, spark_settings, verbose=verbose)
            means = _means(stack, place, stages, name, stopping, output, yes=yes, removes=remove_rows)
            means = replace(means, recovers=recover, from_beginning=from_beginning)
            ended = Rebuilding(registry, name, means).carry_out(wish, file=file, compares=compare)
            _tell(output, name, ended)
            _check_switched(ended, name, file, {"--bootstrap": bootstrap, "--master": master})


def _means(
    stack: ExitStack,
    place: RunPlace,
    stages: Stages,
    name: str,
    stopping: Stopping,
    output: Output,
    *,
    yes: bool,
    removes: bool,
) -> Means:
    from strandline.pipelines.language.loading import load
    from strandline.pipelines.rebuild.rebuilding import Means
    from strandline.pipelines.run.launching import Launch
    from strandline.pipelines.run.local_node import checkpoints_of

    started: list[SparkSession] = []

    def spark() -> SparkSession:
        # Neither a file that is refused nor the removal of a version needs Spark.
        if not started:
            started.append(stack.enter_context(Launch(place, stages, name=name)).spark())
            stopping.arm()
        return started[0]

    def checkpoints() -> str:
        said = place.checkpoints
        if said is None:
            assert place.bootstrap is not None
            return checkpoints_of(place.bootstrap, home=place.home)
        return said if "://" in said else str(Path(said).resolve())

    def display(runner: Runner) -> Display:
        from strandline.cli.pipeline.rebuild_display import BuildDisplay

        stages.close()
        words, expected = f"version {runner.version}", expected_records(runner)
        return BuildDisplay(words, expected, stages.say, is_terminal=stages.is_terminal)

    return Means(
        load=lambda path: load(path, known=None),
        spark=spark,
        checkpoints=checkpoints,
        display=display,
        tell=lambda words: stages.say(f"  {words}"),
        stop=stopping.event,
        may_switch=lambda comparisons: _may_switch(output, comparisons, yes=yes),
        may_remove=lambda removals: removes or _confirm_removal(output, removals),
        home=place.home,
    )


def expected_records(runner: Runner) -> int:
    """Return what the queries of a version that never ran have to read of the topics that others write."""
    from strandline.client.cluster_client import EARLIEST, LATEST, ClientSettings, ClusterClient
    from strandline.ids import TopicPartition

    state = runner.registry.pipeline(runner.pipeline.name)
    version = None if state is None else state.versions.get(runner.version)
    if version is None or any(each.query_id for each in version.datasets.values()):
        return 0
    topics = {each.topic for each in runner.pipeline.sources.values() if not each.is_table}
    client = ClusterClient(ClientSettings(runner.registry.bootstrap, client_id="strandline-rebuild"))
    try:
        places = [
            TopicPartition(topic, part)
            for topic, told in client.topics(sorted(topics)).items()
            for part in told.leaders
        ]
        ends = client.list_offsets(dict.fromkeys(places, LATEST))
        first = client.list_offsets(dict.fromkeys(places, EARLIEST))
        expected = 0
        for query in runner.compiled:
            # Where it began, by topic; a partition that is not named there from its first record on.
            began = {each.topic: each.offsets for each in version.starts.get(query.name, {}).values()}
            for place in (each for each in places if each.topic in query.reads):
                start = max(first[place], began.get(place.topic, {}).get(str(place.partition), 0))
                expected += max(0, ends[place] - start)
        return expected
    finally:
        client.close()


def _may_switch(output: Output, comparisons: list[Comparison], *, yes: bool) -> bool:
    from strandline.pipelines.rebuild.comparing import words_of

    if not output.as_json:
        for each in comparisons:
            for line in words_of(each):
                output.line(line)
        output.flush()
    return yes or (sys.stdin.isatty() and typer.confirm("Switch to the new version?", err=True))


def _check_switched(ended: RebuildEnd, name: str, file: str | None, options: Mapping[str, str | None]) -> None:
    """Raise for a command that only compared, and name the commands that can follow."""
    from strandline.pipelines.rebuild.phases import Phase

    if not _has_only_compared(ended):
        return
    place = [word for option, value in options.items() if value for word in (option, value)]
    rebuild = ["strandline", "pipeline", "rebuild", name]
    if ended.phase is Phase.RETURNING:
        switch, give_up = [*rebuild, *place, "--rollback", "--yes"], [*rebuild, *place, "--finish"]
    else:
        switch, give_up = [*rebuild, *([file] if file else []), *place, "--yes"], [*rebuild, *place, "--rollback"]
    hint = f"`{shlex.join(switch)}`, or `{shlex.join(give_up)}`"
    if sys.stdin.isatty():
        raise CommandFailed(ended.words, hint=hint)
    raise UsageFailed(ended.words, hint=hint)


def _has_only_compared(ended: RebuildEnd) -> bool:
    from strandline.pipelines.rebuild.phases import Phase

    return ended.phase in (Phase.BUILDING, Phase.RETURNING)


def _confirm_removal(output: Output, removals: list[Removal]) -> bool:
    """Ask the user at a terminal, whatever --yes says of the switch itself."""
    if not sys.stdin.isatty():
        return False
    for each in removals:
        output.talk(f"  the switch removes {each}")
    return typer.confirm("Remove these rows?", err=True)


def _confirm_finish(output: Output, registry: Registry, state: PipelineState, *, yes: bool) -> None:
    from strandline.pipelines.rebuild.phases import Phase, Wish, is_unwanted, next_step, phase_of, with_phase
    from strandline.pipelines.rebuild.removing import doomed

    # What can only be refused is refused before anybody is asked; a way back is taken for one that can be given up.
    next_step(state, Wish.FINISH, is_given_up=state.rebuild is not None and is_unwanted(state.rebuild, Wish.FINISH))
    assert state.rebuild is not None
    if phase_of(state.rebuild) is not Phase.DROPPING:
        state = with_phase(state, Phase.FINISHING)
    others = {name: each for name, each in registry.pipelines.items() if name != state.name}
    what = doomed(state, others)
    plan = [f"version {what.version} of {state.name} is removed, with"]
    plan += [f"  topic {each}" for each in what.topics]
    if what.checkpoints:
        plan.append(f"  its checkpoints in {what.checkpoints}")
    confirm(output, plan, yes=yes, question="Remove it?", undone="nothing was removed")


def _tell(output: Output, name: str, ended: RebuildEnd) -> None:
    if output.as_json:
        told = {
            "pipeline": name,
            "active": ended.active,
            "phase": None if ended.phase is None else ended.phase.value,
            "said": ended.words,
            "written": ended.written,
            "comparisons": [each.to_json() for each in ended.comparisons],
        }
        output.json_line(told)
        output.flush()
        return
    if ended.written:
        parts = ", ".join(f"{count:,} records to {topic}" for topic, count in ended.written.items())
        output.talk(f"  the differences: {parts}")
    if not _has_only_compared(ended):
        output.line(ended.words)
    if ended.phase is not None and ended.phase.value == "switched":
        output.talk("the old version is kept: --finish removes it, --rollback goes back to it")
