"""`strandline connect verify`: whether a sink's target holds what its topics say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster
from strandline.cli.common.failures import CommandFailed, ExitCode, NotFound, UsageFailed
from strandline.cli.common.options import AsJson, GroundBootstrap, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.connect.access import URL_DEFAULT, CaFile, TokenFile, WorkerUrl
from strandline.cli.connect.comparing import Comparing, TargetComparison, show, stored_offsets
from strandline.cli.connect.local_connector import (
    HIDDEN,
    LocalConnector,
    Methods,
    OneName,
    cluster_at,
    local_connector,
    plain_failures,
)
from strandline.cli.connect.topic_reading import Place, topics_of
from strandline.cli.connect.worker_api import ConnectApi

if TYPE_CHECKING:
    from strandline.connect.sinks.verifiable import VerifiableSink


def verify(
    subject: Annotated[str, typer.Argument(metavar="FILE|NAME", help="A file with the sink, or its name at a worker.")],
    name: OneName = None,
    url: WorkerUrl = URL_DEFAULT,
    ca: CaFile = None,
    token_file: TokenFile = None,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Compare the rows of a sink's target with the newest record of each key. Exit code 5 if they differ.

    The topics are read up to the offsets that the sink has committed, and rows are compared by digests. The sink may go
    on meanwhile. It needs a target that can be read back by key: a database, Redis, a search index, Iceberg or Delta.
    """
    found = _connector(subject, name, lambda: ConnectApi(url, timeout, ca=ca, token_file=token_file))
    output = Output(as_json=as_json)
    sink = found.sink("digests", "compared")
    with (
        cluster_at(bootstrap, timeout) as cluster,
        plain_failures(found.name),
        closing(found.conversion()) as conversion,
        Methods() as methods,
        methods.opened(sink),
    ):
        comparing = Comparing(cluster, conversion, topics_of(cluster, found.properties))
        outcome = _compared(cluster, comparing, found, sink)
    if as_json:
        output.json_line({"connector": found.name, **outcome.json()})
    else:
        show(output, outcome, f"the target of {found.name}")
    output.flush()
    if outcome.differences:
        raise CommandFailed(
            f"{found.name} differs from its topics in {count(outcome.differences, 'row')}",
            hint="`strandline connect rebuild FILE` fills a fresh target from the topics, and swaps it in",
            code=ExitCode.UNHEALTHY,
        )


def _compared(cluster: Cluster, comparing: Comparing, found: LocalConnector, sink: VerifiableSink) -> TargetComparison:
    from strandline.connect.herder.sink_positions import read
    from strandline.connect.tasks.sink_task import group_of

    group = group_of(found.name, found.properties)

    def stored() -> Mapping[Place, int]:
        return stored_offsets(read(cluster.servers, group))

    if not stored():
        raise NotFound(f"{found.name} has written nothing yet: the group {group} has no offsets")
    return comparing.run([sink], stored)[0]


def _connector(subject: str, name: str | None, api: Callable[[], ConnectApi]) -> LocalConnector:
    """Return the connector of a file, or the one that a worker runs."""
    path = Path(subject)
    if path.is_file() or path.suffix in (".yaml", ".yml", ".json", ".properties"):
        return local_connector(path, name)[0]
    if name is not None:
        raise UsageFailed("--name goes with a FILE")
    config = api().config(subject)
    if config is None:
        raise NotFound(f"there is neither a file nor a connector {subject!r}", hint="`strandline connect list`")
    hidden = [each for each, value in config.items() if value == HIDDEN]
    if hidden:
        raise UsageFailed(
            f"the worker does not show {', '.join(hidden)} of {subject}", hint="name the file of the connector instead"
        )
    return LocalConnector.of(subject, config, {"plugin.modules": _module_of(config)})


def _module_of(config: Mapping[str, str]) -> str:
    """Return the module that a config names, which the worker has allowed before."""
    module, colon, _ = config.get("connector.class", "").partition(":")
    return module if colon else ""
