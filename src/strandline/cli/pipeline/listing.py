"""`strandline pipeline list`."""

from __future__ import annotations

import time

from strandline.cli.common.options import AsJson, GroundBootstrap
from strandline.cli.common.output import Output
from strandline.cli.pipeline.reading import rebuild_in_words, registry_of, state_in_words


def list_pipelines(bootstrap: GroundBootstrap = None, as_json: AsJson = False) -> None:
    """List pipelines. For each: its active version, whether that runs, how many datasets it has, and its file."""
    output = Output(as_json=as_json)
    rows = []
    with registry_of(bootstrap) as registry:
        now_ms = time.time_ns() // 1_000_000
        for name, state in registry.pipelines.items():
            run = registry.run(name, state.active)
            version = state.current
            datasets = [] if version is None else list(version.datasets)
            words = state_in_words(run, now_ms)
            if as_json:
                output.json_line(
                    {
                        "pipeline": name,
                        "version": state.active,
                        "state": words,
                        "rebuild": None if state.rebuild is None else state.rebuild.phase,
                        "datasets": datasets,
                        "file": "" if version is None else version.file,
                    }
                )
            rebuild = "" if state.rebuild is None else f" (rebuild: {rebuild_in_words(state.rebuild)})"
            rows.append(
                (name, state.active, f"{words}{rebuild}", len(datasets), "" if version is None else version.file)
            )
    if as_json:
        return
    if rows:
        output.table(["pipeline", "version", "state", "datasets", "file"], rows)
    else:
        output.talk("no pipelines yet: `strandline pipeline run FILE` makes one")
