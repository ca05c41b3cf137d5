"""Views: the rows that tables of a cluster have now, and a box for SQL over them that reads and nothing else."""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from strandline.cli.common.plain_words import count
from strandline.cli.view.sql_values import as_json_value, shown
from strandline.client.cluster_client import ClusterClient
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery, PageTable
from strandline.console.failures import PageFailed, denied_words
from strandline.console.reading.user_cluster import TIMEOUT_S
from strandline.console.tables import TableHead

if TYPE_CHECKING:
    from strandline.views.definition import ViewDefinition
    from strandline.views.view_session import ViewSession

VIEWS_S: Final = 5.0
SQL_MAX: Final = 10_000
ROWS_MAX: Final = 1000
COLUMNS_MAX: Final = 200
CELL_MAX: Final = 2000
"""Characters of a value."""
QUERY_S: Final = 10.0
RECORDS_MAX: Final = 1_000_000
"""Records of logs that one query reads."""
QUERIES_MAX: Final = 2
INSTALL: Final = "pip install 'strandline[spark]' where the console runs"
_room: Final = threading.BoundedSemaphore(QUERIES_MAX)
_VERSION: Final = re.compile(r"\.v\d+$")

HEADS: Final = (
    TableHead("view", "View", "name", link=lambda row: f"/views?{urlencode({'sql': _select(row['view'])})}"),
    TableHead("pipeline", "Pipeline", "text", is_wide=True),
    TableHead("topic", "Topic", "text", link=lambda row: f"/topics/{quote(row['topic'], safe='')}"),
    TableHead("key", "Key", "list"),
    TableHead("columns", "Columns", "list", is_wide=True),
)


async def views(context: PageContext) -> Mapping[str, Any]:
    """Answer which views there are, and what a query over them says."""
    sql = context.query.get("sql", "").strip()
    found = await _known(context)
    rows = [
        {
            "view": name,
            "pipeline": each.pipeline or None,
            "topic": each.topic,
            "key": list(each.key),
            "columns": [column.words for column in each.columns],
        }
        for name, each in found.items()
    ]
    model: dict[str, Any] = {
        "answer": f"There {'is' if len(rows) == 1 else 'are'} {count(len(rows), 'view')}.",
        "sql": sql,
        "failure": "",
        "result": None,
        "limits": f"At most {ROWS_MAX:,} rows, {RECORDS_MAX:,} records of logs and {QUERY_S:g} s.",
        "command": ["strandline", "view", "query", sql, "--bootstrap-server", context.cluster.bootstrap],
        "views": context.table(
            HEADS,
            rows,
            caption="Views",
            name="views",
            searched=("view", "topic", "pipeline"),
            sort="view",
            empty="There is no view: declare one in a pipeline, or make one with `strandline view create`.",
        ),
    }
    if not sql:
        return model
    if len(sql) > SQL_MAX:
        return model | {"failure": f"The query has more than {SQL_MAX:,} characters"}
    try:
        columns, values, took_s = await context.reading.shared.in_thread(lambda: _asked(context, sql))
    except PageFailed as failed:
        return model | {"failure": failed.words.sentence}
    is_cut = len(values) > ROWS_MAX
    cut = f"The first {ROWS_MAX:,} rows" if is_cut else count(len(values), "row")
    return model | {
        "answer": f"{cut}, in {took_s:.1f} s.",
        "result": context.table(
            _heads(columns, values),
            [dict(zip(columns, each, strict=True)) for each in values[:ROWS_MAX]],
            caption="Rows of the query",
            name="rows",
            empty="The query has no rows.",
        ),
    }


def _failed(error: Exception) -> PageFailed:
    """Return what a page says of a failure of a view: the visitor may lack the right to its topics."""
    if "AUTHORIZATION_FAILED" in str(error):
        words = denied_words(str(error))
        return PageFailed(words.status, words.sentence, words.advice)
    return PageFailed(503, f"Views cannot be read: {error}")


async def _known(context: PageContext) -> dict[str, ViewDefinition]:
    """Return each view once, by the shortest name that means it."""
    try:
        from strandline.views.catalog import Catalog
    except ModuleNotFoundError as error:
        raise PageFailed(501, f"Views need {error.name} to be read", INSTALL) from None
    from strandline.views.failures import ViewFailed

    def read(client: ClusterClient) -> dict[str, ViewDefinition]:
        catalog = Catalog(client)
        try:
            catalog.refresh()
        except ViewFailed as error:
            raise _failed(error) from None
        found: dict[str, ViewDefinition] = {}
        seen = set()
        for name, each in sorted(catalog.views.items(), key=lambda item: (len(item[0]), item[0])):
            if each not in seen:
                seen.add(each)
                found[name] = each
        return found

    return await context.reading.know("views", lambda: context.reading.shared.ask(read), VIEWS_S)


def _asked(context: PageContext, sql: str) -> tuple[list[str], list[tuple[Any, ...]], float]:
    """Return the columns and rows of a query, in a database of its own that is gone afterwards."""
    try:
        from strandline.views.view_session import ViewSession
    except ModuleNotFoundError as error:
        raise PageFailed(501, f"SQL over views needs {error.name}, which is not installed: {INSTALL}") from None
    from strandline.views.failures import QueryRefused, ViewFailed, ViewUnknown

    if not _room.acquire(timeout=2.0):
        raise PageFailed(503, f"{QUERIES_MAX} queries run already: ask again in a moment")
    began = time.monotonic()
    try:
        # A directory of its own: what one visitor may read is not kept for another.
        with (
            tempfile.TemporaryDirectory(prefix="strandline-console-") as directory,
            ViewSession(
                context.cluster.bootstrap,
                directory=directory,
                timeout_s=TIMEOUT_S,
                client_config=context.reading.shared.user.security,
                is_confined=True,
            ) as session,
        ):
            timer = threading.Timer(QUERY_S, session.interrupt)
            timer.start()
            try:
                return (*_rows(context, session, sql, began), time.monotonic() - began)
            finally:
                timer.cancel()
    except ViewUnknown as error:
        raise PageFailed(404, str(error)) from None
    except QueryRefused as error:
        late = time.monotonic() - began >= QUERY_S
        raise PageFailed(400, f"The query took longer than {QUERY_S:g} s" if late else str(error)) from None
    except ViewFailed as error:
        raise _failed(error) from None
    finally:
        _room.release()


def _rows(
    context: PageContext, session: ViewSession, sql: str, began: float
) -> tuple[list[str], list[tuple[Any, ...]]]:
    from strandline.views.failures import QueryRefused

    for name in session.names_in(sql):
        meant = session.definition(name)
        for each in filter(None, (meant, meant.past)):
            # SQL could take a value apart before a mask sees it.
            if not all(context.masks(topic).is_empty for topic in (each.topic, _VERSION.sub("", each.topic))):
                raise PageFailed(403, f"Values of {each.topic} are masked, so that {name} cannot be asked in SQL")
    read = 0

    def on_read(records: int) -> None:
        nonlocal read
        read += records
        if read > RECORDS_MAX:
            raise QueryRefused(
                f"the views of this query have more than {RECORDS_MAX:,} records: `strandline view query` has no limit"
            )
        if time.monotonic() - began > QUERY_S:
            raise QueryRefused("the time is over")

    session.on_read = on_read
    answer = session.query(f"SELECT * FROM ({sql.rstrip().rstrip(';')}\n) LIMIT {ROWS_MAX + 1}")
    if len(answer.columns) > COLUMNS_MAX:
        raise QueryRefused(f"the query has more than {COLUMNS_MAX} columns: name those that you need")
    return _unique(answer.columns), [tuple(map(_cell, row)) for row in answer.rows]


def _unique(names: list[str]) -> list[str]:
    found: dict[str, None] = {}
    for at, name in enumerate(names):
        found[name if name not in found else f"{name} ({at + 1})"] = None
    return list(found)


def _cell(value: Any) -> Any:
    plain = as_json_value(value)
    if plain is None or isinstance(plain, bool | int | float):
        return plain
    text = plain if isinstance(plain, str) else shown(value)
    return text if len(text) <= CELL_MAX else f"{text[:CELL_MAX]}…"


def _heads(columns: list[str], rows: list[tuple[Any, ...]]) -> list[TableHead]:
    return [
        TableHead(
            name,
            name,
            "number" if rows and all(type(row[at]) is int or row[at] is None for row in rows) else "text",
        )
        for at, name in enumerate(columns)
    ]


def _select(view: str) -> str:
    name = ".".join(f'"{part}"' for part in view.replace('"', '""').split("."))
    return f"select * from {name} limit 100"


MODULE: Final = PageModule(
    pages=(
        ConsolePage(
            name="views",
            path="/views",
            title="Views",
            question="What do the views hold now?",
            model=views,
            template="views.html",
            tables=(PageTable("views", HEADS),),
            queries=(PageQuery("sql", "One SELECT over views"),),
            group="Data",
        ),
    ),
)
