"""`strandline pipeline stop`."""

from __future__ import annotations

import time
import uuid
from typing import Annotated

import typer

from strandline.cli.common.failures import CommandFailed, Unreachable
from strandline.cli.common.options import AsJson, GroundBootstrap
from strandline.cli.common.output import Output
from strandline.cli.pipeline.reading import PipelineName, is_there, known_pipeline, registry_of

LOOK_S = 0.25
TIMEOUT_S_DEFAULT = 60.0


def stop(
    name: PipelineName,
    bootstrap: GroundBootstrap = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait until it has stopped.")
    ] = TIMEOUT_S_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Stop a pipeline, on whichever machine it runs, and wait until it has stopped.

    A batch that is soon done is completed first. The next `pipeline run` continues from there.
    """
    output = Output(as_json=as_json)
    with registry_of(bootstrap) as registry:
        from strandline.pipelines.run.run_record import now_ms
        from strandline.pipelines.versions.state import STOP, Command

        known_pipeline(registry, name)
        alive = [number for number, run in registry.runs(name).items() if is_there(run, now_ms())]
        if not alive:
            _tell(output, name, None, f"{name} does not run")
            return
        registry.put_command(Command(name, STOP, uuid.uuid4().hex, now_ms()))
        until = time.monotonic() + timeout
        while runs := [run for run in registry.refresh().runs(name).values() if is_there(run, now_ms())]:
            if time.monotonic() > until:
                who = f"process {runs[0].pid} on {runs[0].host}"
                raise Unreachable(
                    f"{name} was asked to stop, but {who} has not after {timeout:g} s",
                    hint="see `strandline pipeline status`, or end the process",
                )
            time.sleep(LOOK_S)
        for number in alive:
            run = registry.run(name, number)
            if run is not None and run.failure:
                raise CommandFailed(f"{name}, version {number}, failed before it stopped: {run.failure}")
            _tell(output, name, number, f"stopped {name}, version {number}")


def _tell(output: Output, name: str, version: int | None, words: str) -> None:
    if output.as_json:
        output.json_line({"pipeline": name, "version": version, "stopped": version is not None})
    else:
        output.line(words)
