"""What a change of a file means for state, as Spark's plans tell it: which changes count, and which do not."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.pipelines.changes.file_changes import Change, Verdict, changes_of
from strandline.pipelines.language.loading import load
from strandline.pipelines.run import compiling
from strandline.pipelines.versions.state import DatasetState, VersionState
from strandline.pipelines.versions.version_handle import datasets_of

NOWHERE = "127.0.0.1:9"

TOTALS = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.source(
    "orders", schema="customer STRING, region STRING, amount BIGINT, fee BIGINT, at TIMESTAMP, words ARRAY<STRING>",
    watermark=("at", "10 minutes"),
)

@pipeline.temporary_view
def paid(orders):
    return orders.where("amount > 0")

@pipeline.table(key="customer")
def totals(paid):
    return paid.groupBy("customer").agg(F.sum("amount").alias("total"), F.sum("fee").alias("fees"))

@pipeline.stream
def large(paid):
    return paid.where("amount > 100")
"""

SQL = """
CREATE SOURCE orders (customer STRING, amount BIGINT, at TIMESTAMP) WATERMARK at DELAY '10 minutes';
CREATE TEMPORARY VIEW paid AS SELECT * FROM orders WHERE amount > 0;
CREATE TABLE totals KEY (customer) AS
  WITH big AS (SELECT customer AS who, amount FROM paid)
  SELECT who AS customer, sum(amount) AS total FROM big GROUP BY who;
"""

OPERATORS = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.source("orders", schema="id STRING, customer STRING, amount BIGINT, at TIMESTAMP", watermark=("at", "1 hour"))
pipeline.source("bills", schema="id STRING, ref STRING, due BIGINT, on TIMESTAMP", watermark=("on", "1 hour"))

@pipeline.stream
def windows(orders):
    found = orders.groupBy(F.window("at", "10 minutes"), "customer").agg(F.sum("amount").alias("total"))
    return found.select(F.col("window.start").alias("begin"), "customer", "total")

@pipeline.stream
def sliding(orders):
    found = orders.groupBy(F.window("at", "20 minutes", "5 minutes")).agg(F.count("*").alias("n"))
    return found.select(F.col("window.start").alias("begin"), "n")

@pipeline.stream
def sessions(orders):
    found = orders.groupBy(F.session_window("at", "15 minutes"), "customer").agg(F.count("*").alias("n"))
    return found.select(F.col("session_window.start").alias("begin"), "customer", "n")

@pipeline.stream
def joined(orders, bills):
    b = bills.withColumnRenamed("id", "bill")
    found = orders.join(b, (F.col("id") == F.col("ref")) & (F.col("on") <= F.expr("at + INTERVAL 1 HOUR")))
    return found.select("id", "amount", "due")

@pipeline.stream
def unique(orders):
    return orders.dropDuplicates(["id", "at"])
"""

STATE = '''
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import LongType
from strandline import pipeline

pipeline.source("orders", schema="customer STRING, amount BIGINT, words ARRAY<STRING>")
FACTOR = 2

def weighed(amount):
    return amount * FACTOR

class Keeper:
    def add(self, amount):
        return weighed(amount)

def count(key, frames, state):
    """Sum up."""
    import pandas as pd
    total = state.get[0] if state.exists else 0
    for frame in frames:
        total += sum(Keeper().add(each) for each in frame["amount"] if each not in {7, 11, 13, 17, 19})
    state.update((int(total),))
    yield pd.DataFrame({"customer": [key[0]], "total": [int(total)]})

@F.udf("string")
def loud(text):
    return text.upper()

@pipeline.table(key="customer")
def kept(orders):
    by = orders.groupBy("customer")
    return by.applyInPandasWithState(
        count, "customer STRING, total BIGINT", "total BIGINT", "update", GroupStateTimeout.NoTimeout
    )

@pipeline.table(key="customer")
def louder(orders):
    words = F.size(F.transform("words", lambda word: F.upper(word)))
    return orders.groupBy(loud("customer").alias("customer")).agg(F.sum(words).alias("words"))
'''

Planned = Callable[..., dict[str, DatasetState]]


@pytest.fixture(scope="module")
def planned(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Planned:
    """Most tests compare with the same text, and Spark takes a second or more for each: it plans each text once."""

    @functools.cache
    def plan(text: str, language: str = "py") -> dict[str, DatasetState]:
        file = tmp_path_factory.mktemp("planned") / f"shop.{language}"
        file.write_text(text)
        pipeline = load(file)
        found = datasets_of(pipeline, compiling.compile(spark, pipeline, compiling.Wiring(NOWHERE)))
        return {name: _started(each) for name, each in found.items()}

    return plan


def _started(dataset: DatasetState) -> DatasetState:
    from dataclasses import replace

    return replace(dataset, query_id="an id")


def edited(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def change(before: dict[str, DatasetState], after: dict[str, DatasetState], dataset: str) -> Change:
    found = changes_of(VersionState(1, datasets=before), after, is_same_text=False)
    return next(each for each in found if each.dataset == dataset)


COUNTS = {
    "another function": ('F.sum("amount")', 'F.max("amount")', r"functions: sum\(orders.amount\), .* before, max\("),
    "another column": ('F.sum("amount")', 'F.sum("fee")', "functions"),
    "another computation": (
        'orders.where("amount > 0")',
        'orders.withColumn("amount", F.expr("amount * 2"))',
        r"\* |mul",
    ),
    "another grouping": (
        'groupBy("customer")',
        'groupBy(F.col("region").alias("customer"))',
        "grouping: orders.customer before, orders.region now",
    ),
    "a watermark": ('"10 minutes"', '"20 minutes"', "watermark: orders.at 10 minutes before, orders.at 20 minutes now"),
    "one more": ('.alias("total"),', '.alias("total"), F.count("*").alias("n"),', "functions"),
    "one that is not used": ('.alias("fees"))', '.alias("fees")).drop("fees")', "functions"),
    "the order": (
        'F.sum("amount").alias("total"), F.sum("fee").alias("fees")',
        'F.sum("fee").alias("fees"), F.sum("amount").alias("total")',
        "functions",
    ),
    "how exact": (
        'F.sum("amount")',
        'F.approx_count_distinct("amount", 0.1)',
        "functions",
    ),
    "no state": (
        'paid.groupBy("customer").agg(F.sum("amount").alias("total"), F.sum("fee").alias("fees"))',
        "paid",
        "no such",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", COUNTS)
def test_what_state_means_counts(planned: Planned, what: str) -> None:
    old, new, reason = COUNTS[what]
    import re

    found = change(planned(TOTALS), planned(edited(TOTALS, (old, new))), "totals")
    assert found.verdict is Verdict.NEEDS_REBUILD, found
    assert re.search(reason, found.reason), found.reason


SAME = {
    "a comment": ("@pipeline.stream", "# Of a hundred and more.\n\n\n@pipeline.stream"),
    "another shape": ('groupBy("customer").agg(', 'groupBy(\n        F.col("customer")\n    ).agg('),
    "names in between": (
        'paid.groupBy("customer").agg(F.sum("amount")',
        'paid.withColumnRenamed("amount", "a").alias("orders").groupBy("customer").agg(F.sum("a")',
    ),
    "a column that is not used": ('orders.where("amount > 0")', 'orders.where("amount > 0").withColumn("x", F.lit(1))'),
    "one more column of the input": ("customer STRING, region", "extra STRING, customer STRING, region"),
}


@pytest.mark.parametrize("what", SAME)
def test_what_only_looks_other_is_the_same(planned: Planned, what: str) -> None:
    found = change(planned(TOTALS), planned(edited(TOTALS, SAME[what])), "totals")
    assert found.verdict is Verdict.SAME, found


CONTINUES = {
    "a filter before": ('"amount > 0"', '"amount > 1"', "totals"),
    "a filter behind": ('.alias("fees"))', '.alias("fees")).where("total > 5")', "totals"),
    "a name that is written": ('alias("total")', 'alias("sum")', "totals"),
    "a computation behind": ('F.sum("fee")', '(F.sum("fee") + 1)', "totals"),
    "a filter without state": ('"amount > 100"', '"amount > 200"', "large"),
    "a column without state": ('where("amount > 100")', 'where("amount > 100").withColumn("x", F.lit(1))', "large"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", CONTINUES)
def test_what_comes_in_or_goes_out_holds_for_new_rows(planned: Planned, what: str) -> None:
    old, new, dataset = CONTINUES[what]
    found = change(planned(TOTALS), planned(edited(TOTALS, (old, new))), dataset)
    assert found.verdict is Verdict.CONTINUES, found


def test_a_sql_file_is_compared_like_a_python_file(planned: Planned) -> None:
    before = planned(SQL, "sql")
    words = SQL.replace("SELECT", "select\n ").replace("CREATE TABLE", "-- All of them.\nCREATE TABLE")
    words = words.replace("who", "name").replace("big", "greater")
    assert change(before, planned(words, "sql"), "totals").verdict is Verdict.SAME
    found = change(before, planned(edited(SQL, ("sum(amount)", "max(amount)")), "sql"), "totals")
    assert (found.verdict, "sum(orders.amount)" in found.reason) == (Verdict.NEEDS_REBUILD, True), found
    found = change(before, planned(edited(SQL, ("amount > 0", "amount > 1")), "sql"), "totals")
    assert found.verdict is Verdict.CONTINUES, found
    found = change(before, planned(edited(SQL, ("10 minutes", "11 minutes")), "sql"), "totals")
    assert found.verdict is Verdict.NEEDS_REBUILD, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "old", "new", "verdict"),
    [
        ("windows", '"10 minutes"', '"5 minutes"', Verdict.NEEDS_REBUILD),
        ("windows", '"window.start").alias("begin"), "c', '"window.end").alias("begin"), "c', Verdict.CONTINUES),
        ("sliding", '"20 minutes"', '"30 minutes"', Verdict.NEEDS_REBUILD),
        ("sliding", '"5 minutes"', '"4 minutes"', Verdict.NEEDS_REBUILD),
        ("sessions", '"15 minutes"', '"16 minutes"', Verdict.NEEDS_REBUILD),
        ("joined", "INTERVAL 1 HOUR", "INTERVAL 2 HOUR", Verdict.NEEDS_REBUILD),
        (
            "joined",
            'select("id", "amount", "due")',
            'select("id", "amount", F.col("amount").alias("due"))',
            Verdict.NEEDS_REBUILD,
        ),
        ("joined", 'select("id", "amount", "due")', 'select("id", "due", "amount")', Verdict.CONTINUES),
        ("unique", '["id", "at"]', '["customer", "at"]', Verdict.NEEDS_REBUILD),
        ("unique", "orders.dropDuplicates", 'orders.where("amount > 3").dropDuplicates', Verdict.CONTINUES),
    ],
)
def test_windows_joins_and_deduplication(planned: Planned, dataset: str, old: str, new: str, verdict: Verdict) -> None:
    before = planned(OPERATORS)
    assert change(before, planned(f"# A line.\n{OPERATORS}"), dataset).verdict is Verdict.SAME
    found = change(before, planned(edited(OPERATORS, (old, new))), dataset)
    assert found.verdict is verdict, found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "old", "new", "verdict"),
    [
        ("kept", '"""Sum up."""', '"""Add."""  # Each of them.', Verdict.SAME),
        ("kept", "FACTOR = 2", "FACTOR = 3", Verdict.NEEDS_REBUILD),
        ("kept", "return amount * FACTOR", "return amount + FACTOR", Verdict.NEEDS_REBUILD),
        ("kept", "return weighed(amount)", "return weighed(amount) + 1", Verdict.NEEDS_REBUILD),
        ("kept", "{7, 11,", "{8, 11,", Verdict.NEEDS_REBUILD),
        (
            "kept",
            'orders.groupBy("customer")\n',
            'orders.withColumn("customer", F.upper("customer")).groupBy("customer")\n',
            Verdict.NEEDS_REBUILD,
        ),
        ("louder", "text.upper()", "text.lower()", Verdict.NEEDS_REBUILD),
        ("louder", "F.upper(word)", "F.lower(word)", Verdict.NEEDS_REBUILD),
    ],
)
def test_code_of_functions_counts(planned: Planned, dataset: str, old: str, new: str, verdict: Verdict) -> None:
    before = planned(STATE)
    assert change(before, planned(f"# A line.\n{STATE}"), dataset).verdict is Verdict.SAME
    found = change(before, planned(edited(STATE, (old, new))), dataset)
    assert found.verdict is verdict, found


PRINTED = """
import json, sys
import strandline.spark
from strandline.pipelines.run import compiling
from strandline.pipelines.language.loading import load
from strandline.pipelines.versions.version_handle import datasets_of

spark = strandline.spark.session("forms", master="local[1]")
for file in sys.argv[1:]:
    pipeline = load(file)
    found = datasets_of(pipeline, compiling.compile(spark, pipeline, compiling.Wiring("127.0.0.1:9")))
    print(json.dumps({name: [each.form, each.plan, each.form_made_with] for name, each in found.items()}))
"""


@pytest.mark.slow
def test_another_process_in_another_place_finds_the_same_forms(planned: Planned, tmp_path: Path) -> None:
    texts = {"state.py": STATE, "shop.py": OPERATORS, "shop.sql": SQL}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name, text in texts.items():
        (elsewhere / name).write_text(text)
    ended = subprocess.run(
        [sys.executable, "-c", PRINTED, *texts],
        cwd=elsewhere,
        env=os.environ | {"PYTHONHASHSEED": "4711", "TZ": "Asia/Tokyo", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    told = [json.loads(line) for line in ended.stdout.splitlines()]
    for (name, text), theirs in zip(texts.items(), told, strict=True):
        ours = planned(text, name.rpartition(".")[2])
        assert {each.name: [list(each.form), each.plan, each.form_made_with] for each in ours.values()} == theirs
