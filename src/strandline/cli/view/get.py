"""`strandline view get`: the row of one key."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.options import AsJson, GroundBootstrap, Timeout
from strandline.cli.common.output import Output
from strandline.cli.view.access import (
    VIEWS_DEFAULT,
    AsOfOffset,
    AsOfTime,
    Directory,
    desk_at,
    freshness_words,
    moment,
    reading,
)
from strandline.cli.view.sql_values import as_json_value, shown


def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The view.")],
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its key; of several columns: a=1,b=x or JSON.")],
    as_of_offset: AsOfOffset = None,
    as_of_time: AsOfTime = None,
    views: Directory = VIEWS_DEFAULT,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Show the row of a key; exit code 1 if there is none."""
    output = Output(as_json=as_json)
    with desk_at(bootstrap, views, timeout) as desk:
        asked = moment(as_of_offset, as_of_time)
        with reading(desk):
            answer = desk.get(name, key, as_of=asked)
        for row in answer.rows:
            if as_json:
                output.json_line(dict(zip(answer.columns, map(as_json_value, row), strict=True)))
            else:
                output.table(["column", "value"], list(zip(answer.columns, map(shown, row), strict=True)))
        output.flush()
        words = freshness_words(answer.freshness, desk.reach([name]), asked)
        if not answer.rows:
            raise CommandFailed(f"{name} has no row with the key {key!r} ({words})")
        output.talk(words)
        if asked is None:
            desk.refresh([name])
