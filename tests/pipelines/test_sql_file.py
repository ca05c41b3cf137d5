"""Statements of a SQL file: what they declare, which relations a query reads, and what is refused. No Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from strandline import pipeline
from strandline.pipelines.language.model import Kind, Pipeline, Watermark
from strandline.pipelines.language.sql_tokens import relations, tokens

SHOP = """\
-- A shop; with a semicolon in a comment.
PIPELINE market;

CREATE SOURCE orders (
    order_id STRING, -- its number
    amount DECIMAL(10, 2),
    at TIMESTAMP
) FROM TOPIC 'shop-orders' WATERMARK at DELAY '10 minutes' DEAD LETTERS TO 'orders.dead'
  OPTIONS (maxOffsetsPerTrigger = '100', 'kafka.client.id' = 'it''s');
CREATE SOURCE people (id BIGINT, name STRING) KEY (id);
create source raw;

CREATE TEMPORARY VIEW paid AS SELECT * FROM orders WHERE note <> 'a;b';
CREATE STREAM large TO TOPIC 'large-orders' PARTITIONS 3 TRIGGER '10 seconds' COMMENT "Large ones" AS
  SELECT *
  FROM paid JOIN people ON paid.id = people.id;
CREATE OR REPLACE TABLE totals KEY (customer, `the day`) MODE complete AS
  SELECT customer, sum(amount) AS total FROM STREAM(paid) GROUP BY customer;
CREATE MATERIALIZED VIEW rich KEY (customer) NULL KEY 'nobody' AS SELECT * FROM STREAM totals WHERE total > 100;
CREATE STREAMING TABLE copies AS SELECT * FROM raw
"""


def load(directory: Path, text: str, **more: Any) -> Pipeline:
    file = directory / "shop.sql"
    file.write_text(text)
    return pipeline.load(file, **more)


def test_statements_declare_sources_and_datasets(tmp_path: Path) -> None:
    shop = load(tmp_path, SHOP)
    assert shop.name == "market"
    orders, people, raw = shop.sources.values()
    assert (orders.name, orders.topic, orders.dead_letters) == ("orders", "shop-orders", "orders.dead")
    assert orders.schema == "order_id STRING , amount DECIMAL ( 10 , 2 ) , at TIMESTAMP"
    assert orders.watermark == Watermark("at", "10 minutes")
    assert orders.options == {"maxOffsetsPerTrigger": "100", "kafka.client.id": "it's"}
    assert (people.is_table, people.key) == (True, ("id",))
    assert (raw.schema, raw.topic) == (None, "raw")
    paid, large, totals, rich, copies = shop.datasets.values()
    assert (paid.kind, paid.inputs) == (Kind.TEMPORARY, ("orders",))
    assert (large.kind, large.topic, large.inputs) == (Kind.STREAM, "large-orders", ("paid", "people"))
    assert (large.partitions, large.trigger, large.comment) == (3, "10 seconds", "Large ones")
    assert (totals.kind, totals.key, totals.mode) == (Kind.TABLE, ("customer", "the day"), "complete")
    # STREAM around a stream says nothing; around a table it means the changes.
    assert (totals.inputs, totals.changes) == (("paid",), frozenset())
    assert (rich.kind, rich.inputs, rich.changes) == (Kind.VIEW, ("totals",), {"totals"})
    assert (rich.null_key, totals.null_key) == ("nobody", None)
    assert (copies.kind, copies.inputs) == (Kind.STREAM, ("raw",))
    assert str(rich.at).endswith("shop.sql:19")


READS = [
    ("SELECT * FROM a", ["a"]),
    ("SELECT * FROM a x, b AS y, c", ["a", "b", "c"]),
    (
        "select * from a left outer join b using (id, day) inner join c on a.f(x, y) = c.z where 1 in (1, 2)",
        ["a", "b", "c"],
    ),
    ("SELECT * FROM (SELECT id FROM a WHERE x > 1) s JOIN (b CROSS JOIN c)", ["a", "b", "c"]),
    ("WITH t AS (SELECT * FROM a), u (x, y) AS (SELECT * FROM T) SELECT * FROM t JOIN u JOIN b", ["a", "b"]),
    ("SELECT extract(YEAR FROM at), trim(BOTH 'x' FROM name), substring(name FROM 2) FROM a", ["a"]),
    ("SELECT a.x IS DISTINCT FROM b.x, a.x IS NOT DISTINCT FROM b.y FROM a, b", ["a", "b"]),
    ("SELECT * FROM a WHERE id IN (SELECT id FROM b) AND EXISTS (SELECT 1 FROM c WHERE c.id = a.id)", ["a", "b", "c"]),
    ("SELECT * FROM a UNION ALL SELECT * FROM b", ["a", "b"]),
    ("SELECT * FROM a LATERAL VIEW explode(tags) t AS tag, more WHERE x = 1", ["a"]),
    ("SELECT * FROM a LATERAL VIEW OUTER explode(tags) t AS tag JOIN b ON tag = b.tag", ["a", "b"]),
    ("SELECT * FROM range(10) JOIN explode(array(1, 2))", []),
    ("SELECT * FROM VALUES (1, 2), (3, 4) AS t(x, y) JOIN b", ["b"]),
    ("SELECT * FROM parquet.`/tmp/a file` JOIN catalog.db.t JOIN b", ["b"]),
    ("SELECT 'FROM x', \"FROM y\", `FROM z` /* FROM c */ FROM `a b` -- FROM d", ["a b"]),
    ("SELECT * FROM STREAM(a) JOIN STREAM b JOIN STREAM(`c`) AS x", ["a", "b", "c"]),
    ("SELECT * FROM stream", ["stream"]),
    ("SELECT sum(x) OVER (PARTITION BY y ORDER BY z) FROM a GROUP BY window(at, '10 minutes'), b, c", ["a"]),
    ("SELECT x, y, (SELECT max(z) FROM b) AS m, u FROM a ORDER BY x, y", ["b", "a"]),
    ("SELECT * FROM a TABLESAMPLE (10 PERCENT), b", ["a", "b"]),
    ("FROM a SELECT x, y", ["a"]),
    (
        "FROM a, b |> JOIN c USING (id) |> EXTEND 1 AS x, z AS y |> UNION ALL (FROM d) |> AGGREGATE sum(x), y",
        list("abcd"),
    ),
    ("WITH t AS (FROM a) FROM t |> DROP x, y", ["a"]),
]


@pytest.mark.parametrize(("query", "names"), READS, ids=[query for query, _ in READS])
def test_a_query_reads_what_stands_after_from_and_join(query: str, names: list[str]) -> None:
    assert [each.name for each in relations(tokens(query))] == names


def test_stream_is_seen_around_names() -> None:
    assert [each.is_stream for each in relations(tokens("SELECT * FROM STREAM(a) JOIN b JOIN STREAM c"))] == [
        True,
        False,
        True,
    ]


START = "CREATE SOURCE orders (id STRING);\n\n"
REFUSED = [
    ("SELECT 1", 1, "here is SELECT and CREATE is missing"),
    ("CREATE STRAEM a AS SELECT 1", 1, "CREATE STRAEM is no statement of a pipeline (did you mean STREAM?)"),
    ("CREATE STREAM AS SELECT 1", 1, "here is SELECT"),
    ("CREATE STREAM a SELECT * FROM orders", 1, "here is SELECT: it can be TO, KEY"),
    ("CREATE STREAM a AS", 1, "a has nothing after AS"),
    ("CREATE STREAM a", 1, "here is the end of the statement"),
    ("CREATE TABLE a AS SELECT * FROM orders", 1, "the table a has no key"),
    ("CREATE STREAM a TO TOPIC x AS SELECT * FROM orders", 1, "here is x and a text in quotes is missing"),
    ("CREATE STREAM a PARTITIONS many AS SELECT * FROM orders", 1, "a number is missing"),
    ("CREATE TABLE a KEY customer AS SELECT * FROM orders", 1, "here is customer and ( is missing"),
    ("CREATE SOURCE b (id STRING", 1, "the parenthesis ( is not closed"),
    ("CREATE SOURCE b ()", 1, "there are no columns between the parentheses"),
    ("CREATE SOURCE b (id STRING) WATERMRAK id DELAY '1 hour'", 1, "here is WATERMRAK (did you mean WATERMARK?)"),
    ("CREATE STREAM a AS SELECT 'x FROM orders", 1, "the quote ' is not closed"),
    ("/* CREATE STREAM a AS SELECT * FROM orders", 1, "the comment is not closed"),
    ("CREATE STREAM a AS\n SELECT * FROM odrers", 1, "a reads odrers, which is neither declared"),
    ("CREATE STREAM a AS SELECT * FROM odrers", 1, "correct the name, or declare CREATE SOURCE odrers (...)"),
    ("CREATE STREAM a AS SELECT * FROM b; CREATE STREAM b AS\nSELECT * FROM a", 1, "is a cycle"),
    ("CREATE STREAM a AS SELECT * FROM orders;\nCREATE STREAM b TO TOPIC 'a' AS SELECT * FROM orders", 2, "both write"),
    ("CREATE STREAM orders AS SELECT 1", 1, "orders is declared already at"),
    (
        "CREATE TABLE t KEY (id) AS SELECT * FROM orders;\nCREATE STREAM a AS SELECT * FROM t JOIN STREAM(t)",
        2,
        "reads t and",
    ),
    ("PIPELINE a b", 1, "here is b and the statement should end"),
]


@pytest.mark.parametrize(("text", "line", "sentence"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_what_is_no_statement_is_told_with_its_line(tmp_path: Path, text: str, line: int, sentence: str) -> None:
    with pytest.raises(pipeline.PipelineRefused) as refused:
        load(tmp_path, START + text)
    words = str(refused.value)
    assert sentence in words
    assert "\n" not in words
    assert words.startswith(f"{tmp_path / 'shop.sql'}:{line + 2}: "), words


def test_an_empty_file_has_nothing_to_run(tmp_path: Path) -> None:
    with pytest.raises(pipeline.PipelineRefused, match="declares no stream, table or view"):
        load(tmp_path, " -- nothing\n")


def test_what_other_pipelines_write_may_be_read_and_be_a_table(tmp_path: Path) -> None:
    shop = load(tmp_path, "CREATE STREAM a AS SELECT * FROM STREAM(customers)", known={"customers"})
    assert (shop.datasets["a"].inputs, shop.datasets["a"].changes) == (("customers",), {"customers"})
