"""`strandline view create`: a compacted topic that is no pipeline's becomes a view."""

from __future__ import annotations

import json
import re
from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import CommandFailed, UsageFailed, topic_not_found
from strandline.cli.common.options import GroundBootstrap, Timeout
from strandline.cli.common.output import Output
from strandline.cli.view.access import VIEWS_DEFAULT, desk_at


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What queries call it.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="The topic of its records; by default the view's name."),
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", metavar="COLUMN", help="A column of the key; may be repeated.")
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="DDL", help="The columns: 'id STRING, total DOUBLE'; none: key and value."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also if there is one of that name.")] = False,
    bootstrap: GroundBootstrap = None,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Make a topic with keys a view: its values are JSON objects, the newest of each key is a row."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageFailed(f"{name!r} cannot be a name in SQL: say letters, digits and _")
    topic = topic or name
    output = Output()
    with desk_at(bootstrap, VIEWS_DEFAULT, timeout) as desk:
        from strandline.pipelines.versions.version_store import Registry
        from strandline.views.definition import define

        definition = define(name, topic, schema=schema, key=tuple(key or ()))
        known = desk.views().get(name)
        if known is not None and known.pipeline:
            raise CommandFailed(f"{name} is a {known.kind} of the pipeline {known.pipeline}: choose another name")
        if known is not None and not replace:
            raise CommandFailed(f"there is a view {name} of the topic {known.topic}: use --replace to define it again")
        if desk.client.topic(topic) is None:
            raise topic_not_found(topic, desk.client.topics(None))
        definition_json = {"topic": topic, "schema": schema, "key": list(definition.key) if schema else []}
        with Registry(desk.bootstrap, timeout_s=timeout) as registry:
            registry.put(f"view/{name}", json.dumps(definition_json))
        output.talk(f"{name} ({', '.join(column.words for column in definition.columns)}) is a view of {topic}:")
        output.line(f'strandline view query "select * from {name} limit 10"')
