"""`strandline topic list`. It imports little, because people type it often and wait for it."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import UsageFailed
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output


def list_topics(
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="GLOB", help="Only names like this: 'orders-*'; /.../ is a regex."),
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics (__...) too.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """List topics."""
    wanted = matcher(pattern)
    cluster = connect(bootstrap, properties, timeout)
    with cluster.errors("cannot list topics"):
        topics = cluster.admin().list_topics(timeout=timeout).topics
    rows = [
        (
            name,
            len(topics[name].partitions),
            max((len(p.replicas) for p in topics[name].partitions.values()), default=0),
        )
        for name in sorted(topics)
        if (internal or not name.startswith("__")) and wanted.search(name)
    ]
    output = Output(as_json=as_json)
    if as_json:
        for name, partitions, replication_factor in rows:
            output.json_line({"topic": name, "partitions": partitions, "replication_factor": replication_factor})
    elif rows:
        output.table(["topic", "partitions", "replication"], rows)
    elif pattern is not None:
        output.talk(f"no topic is like {pattern!r}")
    else:
        output.talk("no topics yet: create one with `strandline topic create NAME`")


def matcher(pattern: str | None) -> re.Pattern[str]:
    if pattern is None:
        return re.compile("")
    import fnmatch

    is_regex = len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")
    try:
        return re.compile(pattern[1:-1] if is_regex else rf"\A{fnmatch.translate(pattern)}")
    except re.error as error:
        raise UsageFailed(f"--pattern {pattern!r} is no regular expression: {error}") from None
