"""SQL over views: which names a query reads, and what DuckDB says when it cannot (in a sentence)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import duckdb
import pyarrow as pa

from strandline.views.failures import QueryRefused

_FILES: Final = (".parquet", ".csv", ".json", ".jsonl", ".ndjson")
"""DuckDB reads a file that stands where a table could: `join 'cities.csv' using (city)`."""
_LABEL: Final = re.compile(r"^(?:[A-Z][A-Za-z-]+ )+Error: ")


def names_in(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """The views that a query reads, as `name` or `pipeline.name`, in the order in which they come."""
    # Results are always fetched whole: one that is not would hold up the next.
    told = json.loads(connection.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()[0][0])
    if told.get("error"):
        if told.get("error_type") == "parser":
            raise QueryRefused(f"this is no SQL: {_one_line(told.get('error_message', ''))}")
        raise QueryRefused("a view is only read: say one SELECT")
    statements = told["statements"]
    if len(statements) != 1:
        raise QueryRefused(f"there are {len(statements)} statements: say one SELECT")
    names = dict.fromkeys(_tables(statements[0], frozenset()))
    return [name for name in names if not name.lower().endswith(_FILES)]


def _tables(node: Any, known: frozenset[str]) -> Iterator[str]:
    """The names of tables in a tree, without those that WITH gives a meaning of its own."""
    if isinstance(node, list):
        for each in node:
            yield from _tables(each, known)
        return
    if not isinstance(node, dict):
        return
    if isinstance(node.get("cte_map"), dict):
        known |= {each["key"].lower() for each in node["cte_map"].get("map", [])}
    if node.get("type") == "BASE_TABLE" and (name := node.get("table_name")):
        schema = node.get("schema_name") or ""
        if schema or name.lower() not in known:
            yield f"{schema}.{name}" if schema else name
    if node.get("type") == "SHOW_REF" and (name := str(node.get("table_name") or "").strip('"')):
        yield name
    for each in node.values():
        yield from _tables(each, known)


def words_of_sql(connection: duckdb.DuckDBPyConnection, columns: Iterable[str]) -> list[str]:
    """Those of the columns that SQL takes for words of its own, unless they are quoted."""
    wanted = sorted({name.lower() for name in columns})
    told = connection.execute(
        "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved' AND keyword_name IN "
        "(SELECT unnest(?))",
        [wanted],
    ).fetchall()
    return sorted(name for (name,) in told)


def run(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[object] = ()) -> pa.Table:
    try:
        relation = connection.sql(sql, params=list(parameters)) if parameters else connection.sql(sql)
        if relation is None:
            raise QueryRefused("a view is only read: say one SELECT")
        return relation.to_arrow_table()
    except duckdb.Error as error:
        raise QueryRefused(f"the query fails: {plain_words(error)}") from error


def plain_words(error: duckdb.Error) -> str:
    """DuckDB's message without its label and without the picture of the place."""
    text = str(error).split("\nLINE ")[0].split("\n\nStack Trace")[0]
    return _one_line(_LABEL.sub("", text))


def _one_line(text: str) -> str:
    return " ".join(text.split())
