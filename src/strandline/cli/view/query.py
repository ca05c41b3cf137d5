"""`strandline view query`: SQL over views, current or as of a moment."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT
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


def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A SELECT, in DuckDB's SQL; the names in it are views.")],
    as_of_offset: AsOfOffset = None,
    as_of_time: AsOfTime = None,
    views: Directory = VIEWS_DEFAULT,
    bootstrap: GroundBootstrap = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
) -> None:
    """Ask views in SQL: strandline view query "select * from totals order by total desc limit 10"."""
    output = Output(as_json=as_json)
    with desk_at(bootstrap, views, timeout) as desk:
        asked = moment(as_of_offset, as_of_time)
        with reading(desk):
            answer = desk.query(sql, as_of=asked)
        if as_json:
            for row in answer.rows:
                values = map(as_json_value, row)
                output.json_line(dict(zip(answer.columns, values, strict=True)))
        else:
            output.table(answer.columns, [[shown(value) for value in row] for row in answer.rows])
        output.flush()
        if answer.views:
            output.talk(freshness_words(answer.freshness, desk.reach(answer.views), asked))
        if asked is None:
            # Behind the answer, so that the user does not wait for what only the next question needs.
            desk.refresh(answer.views)
