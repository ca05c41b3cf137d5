"""Files become queries that run: sources, dead letters, tables, changes, temporary views, SQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.spark.sink_ground import consume

from strandline import pipeline
from strandline.pipelines.language.model import Kind, KnownDataset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.local.embedded_broker import EmbeddedBroker
    from strandline.pipelines.run.compiling import CompiledQuery


class Ground:
    """A directory for a file, a log to run it on, and a word that no other test has."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, directory: Path, word: str) -> None:
        self.spark = spark
        self.bootstrap = broker.bootstrap
        self.directory = directory
        self.word = word

    def send(self, topic: str, *records: Any) -> None:
        """Values, or pairs of key and value."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            producer.produce(topic, key=key, value=json.dumps(value) if isinstance(value, dict) else value)
        assert producer.flush(60) == 0

    def compiled(self, text: str, language: str = "py", /, **wiring: Any) -> list[CompiledQuery]:
        from strandline.pipelines.run.compiling import Wiring, compile

        file = self.directory / f"shop.{language}"
        file.write_text(text.replace("WORD", self.word))
        loaded = pipeline.load(file, known=None)
        return compile(self.spark, loaded, Wiring(self.bootstrap, **wiring))

    def run(self, *queries: CompiledQuery) -> None:
        import strandline.spark

        for query in queries:
            checkpoint = str(self.directory / "checkpoints" / query.name.replace(" ", "-"))
            for attempts_left in reversed(range(5)):
                writer = query.writer(self.bootstrap, checkpoint).trigger(availableNow=True)
                try:
                    strandline.spark.await_end(writer.start())
                    break
                except strandline.spark.SparkFailed as failed:
                    # Spark gives a Python process ten seconds to come up, which a busy machine may need.
                    if "within ten seconds" not in str(failed) or not attempts_left:
                        raise

    def rows(self, topic: str) -> list[Any]:
        """Values, or pairs of key and value, in an order of their own."""
        found = []
        for message in consume(self.bootstrap, topic):
            value = message.value() and json.loads(message.value())
            found.append(value if message.key() is None else (message.key().decode(), value))
        return sorted(found, key=repr)


@pytest.fixture
def ground(spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, topic: str) -> Ground:
    return Ground(spark, broker, tmp_path, topic)


SHOP = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from shop_words import louder
from strandline import pipeline

pipeline.source("orders", topic="WORD", schema="id STRING, customer STRING, amount DOUBLE, at TIMESTAMP",
                watermark=("at", "10 minutes"), dead_letters="WORD.dead")

shout = F.udf(lambda text: louder(text), StringType())


@pipeline.temporary_view
def paid(orders):
    return orders.where("amount > 0")


@pipeline.stream(topic="WORD.large", options={"kafka.compression.type": "lz4"})
def large(paid):
    return paid.where("amount > 100").withColumn("customer", shout("customer"))


@pipeline.table(topic="WORD.totals", key="customer")
def totals(paid):
    return paid.groupBy("customer").agg(F.sum("amount").alias("total"))


@pipeline.view(topic="WORD.rich", key="customer", changes="totals")
def rich(totals):
    return totals.select("customer", "total", F.expr("_deleted OR total < 100").alias("_deleted"))
"""


def test_a_file_with_everything_runs(ground: Ground) -> None:
    (ground.directory / "shop_words.py").write_text("def louder(text):\n    return text.upper()\n")
    at = "2026-01-31T09:30:00.5Z"
    ground.send(
        ground.word,
        {"id": "1", "customer": "ann", "amount": 60, "at": at},
        {"id": "2", "customer": "bob", "amount": 500.5, "at": at},
        (b"k", b"\xffno json"),
        {"id": "3", "customer": "cyd", "amount": "much", "at": at},
        {"id": "4", "customer": "dan", "amount": -1, "at": at},
    )
    queries = ground.compiled(SHOP)
    letters, _, totals, rich = queries
    assert [each.name for each in queries] == ["dead letters of orders", "large", "totals", "rich"]
    assert [each.output_mode for each in queries] == ["append", "append", "update", "update"]
    assert [each.reads for each in queries] == [(ground.word,), (ground.word,), (ground.word,), (totals.default_topic,)]
    assert totals.known.kind is Kind.TABLE
    assert [each["name"] for each in json.loads(totals.schema)["fields"]] == ["customer", "total"]
    assert [each["name"] for each in json.loads(rich.schema)["fields"]] == ["customer", "total"]
    ground.run(*queries)

    assert letters.topic == f"{ground.word}.dead"
    dead = consume(ground.bootstrap, letters.topic)
    assert [(each.key(), each.value()) for each in dead] == [
        (b"k", b"\xffno json"),
        (None, json.dumps({"id": "3", "customer": "cyd", "amount": "much", "at": at}).encode()),
    ]
    assert dead[1].headers() == [
        ("source.topic", ground.word.encode()),
        ("source.partition", b"0"),
        ("source.offset", b"3"),
        ("reason", b"the value does not fit the schema"),
    ]
    assert ground.rows(f"{ground.word}.large") == [
        {"id": "2", "customer": "BOB", "amount": 500.5, "at": "2026-01-31T09:30:00.500000Z"}
    ]
    assert ground.rows(f"{ground.word}.totals") == [("ann", {"total": 60.0}), ("bob", {"total": 500.5})]
    assert ground.rows(f"{ground.word}.rich") == [("ann", None), ("bob", {"total": 500.5})]

    # The next batch of an aggregate in update mode has the rows that changed, and a checkpoint goes on.
    ground.send(ground.word, {"id": "5", "customer": "ann", "amount": 45, "at": at})
    ground.run(totals, rich)
    assert ground.rows(f"{ground.word}.totals")[1:] == [("ann", {"total": 60.0}), ("bob", {"total": 500.5})]
    assert ("ann", {"total": 105.0}) in ground.rows(f"{ground.word}.totals")
    assert ("ann", {"total": 105.0}) in ground.rows(f"{ground.word}.rich")


@pytest.mark.slow
def test_a_table_is_what_it_is_when_a_batch_begins(ground: Ground) -> None:
    word = ground.word
    ground.send(f"{word}.people", ("7", {"name": "Ann"}), ("8", {"name": "Bob"}), ("9", {"name": "Cyd"}), ("9", None))
    ground.send(word, {"value": 1, "key": 7}, {"value": 2, "key": 9})
    text = """
CREATE SOURCE `all-readings` (key BIGINT, value INT) FROM TOPIC 'WORD';
CREATE SOURCE people (key BIGINT, name STRING) FROM TOPIC 'WORD.people' KEY (key);
CREATE STREAM named TO TOPIC 'WORD.named' AS
SELECT r.key, value, name FROM `all-readings` r LEFT JOIN people p ON r.key = p.key;
"""
    [named] = ground.compiled(text, "sql")
    assert named.reads == (word, f"{word}.people")
    ground.run(named)
    assert ground.rows(f"{word}.named") == [
        {"key": 7, "value": 1, "name": "Ann"},
        {"key": 9, "value": 2, "name": None},
    ]
    ground.send(f"{word}.people", ("7", {"name": "Anna"}), ("9", {"name": "Cyd"}), ("8", None))
    ground.send(word, {"value": 3, "key": 7}, {"value": 4, "key": 8}, {"value": 5, "key": 9})
    ground.run(named)
    assert ground.rows(f"{word}.named")[1:4] == [
        {"key": 7, "value": 3, "name": "Anna"},
        {"key": 8, "value": 4, "name": None},
        {"key": 9, "value": 2, "name": None},
    ]


def test_a_value_that_does_not_fit_ends_a_query_without_dead_letters(ground: Ground) -> None:
    from strandline.spark import SparkFailed

    ground.send(ground.word, {"id": 1, "on": "2026-01-31"}, b"{nothing")
    text = """
CREATE SOURCE things (id BIGINT, on DATE) FROM TOPIC 'WORD';
CREATE STREAM copies TO TOPIC 'WORD.copies' AS SELECT * FROM things;
"""
    with pytest.raises(SparkFailed) as failed:
        ground.run(*ground.compiled(text, "sql"))
    assert f"a value of the topic {ground.word} does not fit the schema of the source things: {{nothing" in str(
        failed.value
    )
    assert "dead_letters" in str(failed.value)


@pytest.mark.slow
def test_dead_letters_of_a_table_and_of_what_only_spark_parses(ground: Ground) -> None:
    word = ground.word
    ground.send(
        f"{word}.people", ("7", {"on": "2026-01-31"}), ("8", b"no json"), ("9", b""), ("9", {"on": "2026-02-01"})
    )
    ground.send(word, {"key": 7, "value": 0.5, "tags": {"a": 1}}, b"[1]", b"", b'{"key": "seven"}', {"key": 8}, None)
    text = """
CREATE SOURCE readings (key BIGINT, value DOUBLE, tags MAP<STRING, INT>) FROM TOPIC 'WORD' DEAD LETTERS TO 'WORD.dead'
  OPTIONS (columns = 'offset');
CREATE SOURCE people (key BIGINT, on DATE) FROM TOPIC 'WORD.people' KEY (key) DEAD LETTERS TO 'WORD.dead';
CREATE STREAM named TO TOPIC 'WORD.named' AS SELECT r.*, on FROM readings r LEFT JOIN people p ON r.key = p.key;
CREATE STREAM changed TO TOPIC 'WORD.changed' KEY (key) AS SELECT key, on FROM STREAM(people);
"""
    ground.run(*ground.compiled(text, "sql"))
    assert ground.rows(f"{word}.named") == [
        {"key": 7, "value": 0.5, "tags": {"a": 1}, "offset": 0, "on": "2026-01-31"},
        {"key": 8, "value": None, "tags": None, "offset": 4, "on": None},
        {"key": None, "value": None, "tags": None, "offset": 5, "on": None},
    ]
    assert ground.rows(f"{word}.changed") == [('{"key":7}', {"on": "2026-01-31"}), ('{"key":9}', {"on": "2026-02-01"})]
    dead = {(each.key(), each.value()) for each in consume(ground.bootstrap, f"{word}.dead")}
    strange = {(None, b""), (None, b"[1]"), (None, b'{"key": "seven"}')}
    assert dead == {(b"8", b"no json"), (b"9", b""), *strange}


def letters(ground: Ground, topic: str) -> list[tuple[bytes | None, Any, dict[str, str]]]:
    """Key, value and headers of dead letters."""
    found = consume(ground.bootstrap, topic)
    return [(each.key(), each.value(), {name: value.decode() for name, value in each.headers()}) for each in found]


@pytest.mark.slow
def test_a_key_that_does_not_fit_goes_to_dead_letters_with_the_reason(ground: Ground) -> None:
    word = ground.word
    records = [
        ("7", {"n": 1}),
        ("abc", {"n": 2}),
        (None, {"n": 3}),
        ('{"id":8}', {"n": 4}),
        ("9.5", None),
        ("abc", b"x"),
    ]
    ground.send(f"{word}.people", *records)
    ground.send(word, {"id": 7}, {"id": 8}, {"id": None})
    text = """
CREATE SOURCE people (id BIGINT, n INT) FROM TOPIC 'WORD.people' KEY (id) DEAD LETTERS TO 'WORD.dead';
CREATE SOURCE orders (id BIGINT) FROM TOPIC 'WORD';
CREATE STREAM changed TO TOPIC 'WORD.changed' AS SELECT id, n FROM STREAM(people);
CREATE STREAM joined TO TOPIC 'WORD.joined' AS SELECT id, n FROM orders LEFT JOIN people USING (id);
"""
    ground.run(*ground.compiled(text, "sql"))
    assert ground.rows(f"{word}.changed") == [{"id": 7, "n": 1}, {"id": 8, "n": 4}]
    assert ground.rows(f"{word}.joined") == [{"id": 7, "n": 1}, {"id": 8, "n": 4}, {"id": None, "n": None}]
    found = [
        (key, value, int(headers["source.offset"]), headers["reason"])
        for key, value, headers in letters(ground, f"{word}.dead")
    ]
    assert found == [
        (b"abc", b'{"n": 2}', 1, "the key does not fit the schema"),
        (None, b'{"n": 3}', 2, "the record has no key"),
        (b"9.5", None, 4, "the key does not fit the schema"),
        (b"abc", b"x", 5, "the key does not fit the schema"),
    ]


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("abc", "a key of the topic WORD does not fit the schema of the source people: abc -- correct"),
        (None, "a record of the topic WORD has no key, and the source people is a table -- correct"),
    ],
)
def test_a_key_that_does_not_fit_ends_a_query_without_dead_letters(
    ground: Ground, key: str | None, sentence: str
) -> None:
    from strandline.spark import SparkFailed

    ground.send(ground.word, ("7", {"n": 1}), (key, {"n": 2}))
    text = """
CREATE SOURCE people (id BIGINT, n INT) FROM TOPIC 'WORD' KEY (id);
CREATE STREAM changed TO TOPIC 'WORD.changed' AS SELECT id, n FROM STREAM(people);
"""
    with pytest.raises(SparkFailed) as failed:
        ground.run(*ground.compiled(text, "sql"))
    assert sentence.replace("WORD", ground.word) in str(failed.value)


LENIENT = [
    {"id": "1", "amount": 1.5, "day": "2026-01-31"},
    {"id": "2", "amount": 1.005, "day": "2026-01-31"},
    {"id": "3", "amount": "12.50", "day": "2026-02-01"},
    {"id": "4", "amount": 1, "day": "2026"},
    {"id": "5", "amount": 123456789.5, "day": None},
    {"id": "6", "amount": None, "day": "2026-02-01T00:00:00Z"},
    {"id": 7, "amount": 1, "day": None},
    b'{"id": "8"} and more',
    b'{"id": "9", "id": "9"}',
    {"id": "10", "amount": None, "day": None},
]
"""Values that Spark's own parser takes all, and rounds or completes."""
TAKEN = ["1", "10", "3"]


@pytest.mark.parametrize(
    "columns",
    [
        "id STRING, amount DECIMAL(10, 2), day DATE",
        pytest.param("id STRING, amount DECIMAL(10, 2), day DATE, tags MAP<STRING, INT>", marks=pytest.mark.slow),
        "id STRING, amount DECIMAL(10, 2), day DATE, key STRING, value INT, offset INT",
    ],
    ids=["plain", "with a map", "with names of a record's columns"],
)
def test_one_rule_says_what_fits_whatever_the_other_columns_are(ground: Ground, columns: str) -> None:
    ground.send(ground.word, *LENIENT)
    text = f"""
CREATE SOURCE orders ({columns}) FROM TOPIC 'WORD' DEAD LETTERS TO 'WORD.dead';
CREATE STREAM copies TO TOPIC 'WORD.copies' AS SELECT id, amount, day FROM orders;
"""
    ground.run(*ground.compiled(text, "sql"))
    assert ground.rows(f"{ground.word}.copies") == [
        {"id": "1", "amount": 1.5, "day": "2026-01-31"},
        {"id": "10", "amount": None, "day": None},
        {"id": "3", "amount": 12.5, "day": "2026-02-01"},
    ]
    dead = [int(headers["source.offset"]) for _, _, headers in letters(ground, f"{ground.word}.dead")]
    assert dead == [1, 3, 4, 5, 6, 7, 8]


@pytest.mark.slow
def test_one_rule_says_what_fits_in_tables_too(ground: Ground) -> None:
    for number, value in enumerate(LENIENT):
        ground.send(ground.word, (str(number), value))
    text = """
CREATE SOURCE orders (n INT, id STRING, amount DECIMAL(10, 2), day DATE) FROM TOPIC 'WORD' KEY (n)
  DEAD LETTERS TO 'WORD.dead';
CREATE STREAM copies TO TOPIC 'WORD.copies' AS SELECT id FROM STREAM(orders);
"""
    ground.run(*ground.compiled(text, "sql"))
    assert [each["id"] for each in ground.rows(f"{ground.word}.copies")] == TAKEN
    dead = [int(headers["source.offset"]) for _, _, headers in letters(ground, f"{ground.word}.dead")]
    assert dead == [1, 3, 4, 5, 6, 7, 8]


NO_KEYS = """
from pyspark.sql import functions as F
from strandline import pipeline

pipeline.source("orders", topic="WORD", schema="customer STRING, amount INT", dead_letters="WORD.dead")
pipeline.source("others", topic="WORD", schema="customer STRING, amount INT")


def summed(frame):
    return frame.groupBy("customer").agg(F.sum("amount").alias("total"))


@pipeline.temporary_view
def some(orders):
    return orders


@pipeline.table(key="customer", topic="WORD.totals")
def totals(some):
    return summed(some)


@pipeline.table(key="customer", topic="WORD.named", null_key="(none)")
def named(orders):
    return summed(orders)


@pipeline.table(key="customer", topic="WORD.kept")
def kept(others):
    return summed(others)


@pipeline.view(key="customer", topic="WORD.again", changes="kept")
def again(kept):
    return kept.select("customer", (F.col("total") + 1).alias("total"))
"""


@pytest.mark.slow
def test_a_row_without_a_key_does_not_stop_a_table(ground: Ground) -> None:
    from strandline import views

    word = ground.word
    admin = AdminClient({"bootstrap.servers": ground.bootstrap})
    tables = [f"{word}.{each}" for each in ("totals", "named", "kept", "again")]
    for made in admin.create_topics(
        [NewTopic(each, 1, config={"cleanup.policy": "compact"}) for each in tables]
    ).values():
        made.result(30)
    queries = ground.compiled(NO_KEYS)
    for amount in (1, 2):
        ground.send(word, {"customer": "ann", "amount": amount}, {"amount": 10 * amount})
        ground.run(*queries)
    assert newest(ground, "totals") == {"ann": {"total": 3}}
    assert newest(ground, "named") == {"ann": {"total": 3}, "(none)": {"total": 30}}
    assert newest(ground, "kept") == {"ann": {"total": 3}, '{"customer":null}': {"total": 30}}
    assert newest(ground, "again") == {"ann": {"total": 4}, '{"customer":null}': {"total": 31}}
    assert letters(ground, f"{word}.dead") == [
        (None, json.dumps({"customer": None, "total": total}, separators=(",", ":")).encode(), headers)
        for headers in ({"dataset": "totals", "reason": "the key customer is null"},)
        for total in (10, 30)
    ]
    view = views.define("kept", f"{word}.kept", schema="customer STRING, total BIGINT", key=("customer",))
    with views.open(view, bootstrap=ground.bootstrap, directory=str(ground.directory / "views")) as opened:
        assert opened.query("select customer, total from kept order by total").rows == [("ann", 3), (None, 30)]


def newest(ground: Ground, name: str) -> dict[str, Any]:
    return {
        message.key().decode(): json.loads(message.value())
        for message in consume(ground.bootstrap, f"{ground.word}.{name}")
    }


def test_versions_and_other_pipelines_are_a_matter_of_wiring(ground: Ground) -> None:
    schema = ground.spark.createDataFrame([], "customer STRING, total DOUBLE").schema.json()
    text = """
from strandline import pipeline

pipeline.source("raw", topic="WORD")

@pipeline.stream(topic="WORD.copies")
def copies(raw):
    return raw

@pipeline.stream(topic="WORD.routed")
def routed(copies, totals):
    return copies.selectExpr("value", "if(value = 'a', 'elsewhere', null) AS topic")

@pipeline.stream(topic="WORD.rich", changes="totals", key="customer")
def rich(totals):
    return totals
"""
    known = {"totals": KnownDataset(f"{ground.word}.other", schema, ("customer",), Kind.TABLE)}
    copies, routed, rich = ground.compiled(
        text,
        known=known,
        suffix=".v2",
        write_topics={"copies": f"{ground.word}.copies.v2", "routed": "routed.v2"},
        read_topics={"copies": "copies.v9"},
    )
    assert (copies.topic, copies.default_topic) == (f"{ground.word}.copies.v2", f"{ground.word}.copies.v2")
    assert copies.reads == (ground.word,)
    assert routed.reads == ("copies.v9", known["totals"].topic)
    assert (routed.topic, routed.default_topic) == (None, "routed.v2")
    assert (rich.reads, rich.key) == ((known["totals"].topic,), ("customer",))
    assert rich.frame.columns == ["key", "value"]
    assert copies.frame.columns == ["key", "value"]


def test_what_a_stream_wrote_is_read_back_as_it_was(ground: Ground) -> None:
    rows = "(1, double('NaN'), timestamp '2026-01-31 09:30:00Z', 'x'), (2, 0.5, null, null)"
    ground.send(ground.word, b"1")
    text = f"""
CREATE SOURCE starts FROM TOPIC 'WORD';
CREATE STREAM first TO TOPIC 'WORD.first' AS
  SELECT n, v AS `v.w`, at, s FROM starts CROSS JOIN VALUES {rows} AS t(n, v, at, s);
CREATE STREAM second TO TOPIC 'WORD.second' KEY (n) AS SELECT * FROM first;
"""
    ground.run(*ground.compiled(text, "sql"))
    at = "2026-01-31T09:30:00.000000Z"
    assert ground.rows(f"{ground.word}.first")[0] == {"n": 1, "v.w": "NaN", "at": at, "s": "x"}
    assert ground.rows(f"{ground.word}.second") == [
        ('{"n":1}', {"v.w": "NaN", "at": at, "s": "x"}),
        ('{"n":2}', {"v.w": 0.5, "at": None, "s": None}),
    ]


MODES = [
    ("table(key='id')", "orders", "update"),
    ("table(key='id', mode='append')", "orders", "append"),
    ("table(key='id')", "orders.groupBy('id').count()", "update"),
    ("table(key='id', mode='complete')", "orders.groupBy('id').count()", "complete"),
    ("stream", "orders.groupBy(F.window('at', '1 minute')).count()", "append"),
    ("stream(mode='update')", "orders.groupBy(F.window('at', '1 minute')).count()", "update"),
    ("table(key=['id', 'window'])", "orders.groupBy('id', F.window('at', '1 minute')).count()", "update"),
    ("table(key='id')", "orders.groupBy('id', F.session_window('at', '1 minute')).count()", "append"),
    ("table(key='i')", "orders.selectExpr('id AS i', 'at').join(others, F.expr(BOUND), 'left')", "append"),
]


def with_orders(decorator: str, result: str) -> str:
    return f"""
from pyspark.sql import functions as F
from strandline import pipeline
pipeline.source("orders", schema="id STRING, at TIMESTAMP", watermark=("at", "1 minute"))
pipeline.source("others", schema="id STRING, then TIMESTAMP", watermark=("then", "1 minute"))

BOUND = "i = id AND then BETWEEN at AND at + INTERVAL 1 MINUTE"

@pipeline.{decorator}
def some(orders, others):
    return {result}
"""


@pytest.mark.slow
@pytest.mark.parametrize(("decorator", "result", "mode"), MODES)
def test_a_query_has_the_mode_that_it_says_or_else_one_that_spark_allows(
    ground: Ground, decorator: str, result: str, mode: str
) -> None:
    [query] = ground.compiled(with_orders(decorator, result))
    assert query.output_mode == mode


@pytest.mark.parametrize(
    ("decorator", "result", "sentence"),
    [
        (
            "stream",
            "orders.groupBy('id').count()",
            "some is a stream, and its rows change as more comes: make it a table",
        ),
        (
            "table(key='id', mode='append')",
            "orders.groupBy('id').count()",
            "some failed: Invalid streaming output mode",
        ),
        ("stream", "orders.select(F.lit(None).alias('x'))", "the column x, which is null and has no type"),
    ],
)
def test_a_mode_that_spark_refuses_is_told(ground: Ground, decorator: str, result: str, sentence: str) -> None:
    with pytest.raises(pipeline.PipelineRefused) as refused:
        ground.compiled(with_orders(decorator, result))
    assert f"shop.py:9: {sentence}" in str(refused.value).replace("some has ", "")


def refusal(ground: Ground, body: str, **wiring: Any) -> str:
    head = "from strandline import pipeline\npipeline.source('orders', schema='id STRING, at STRING')\n"
    with pytest.raises(pipeline.PipelineRefused) as refused:
        ground.compiled(head + body, **wiring)
    words = str(refused.value)
    assert "\n" not in words
    assert "\tat " not in words
    return words


REFUSED = [
    ("@pipeline.stream\ndef a(orders):\n    return orders.where('amonut > 1')", "5: a failed: A column"),
    ("@pipeline.stream\ndef a(orders):\n    orders.where('id = 1')", "a returned nothing: return a data frame"),
    ("@pipeline.stream\ndef a(orders):\n    return 7", "a returned int: return a data frame"),
    ("@pipeline.stream\ndef a(orders):\n    return 1 / 0", "5: a failed: ZeroDivisionError: division by zero"),
    ("@pipeline.stream\ndef a():\n    return pipeline.spark().range(3)", "a reads no stream"),
    ("@pipeline.table(key='name')\ndef a(orders):\n    return orders", "has the key name, which is no column"),
    ("@pipeline.stream\ndef a(orders, odrers):\n    return orders", "did you mean orders?"),
    (
        "pipeline.source('b', schema='id STRING,,')\n@pipeline.stream\ndef a(b):\n    return b",
        "the schema of the source b",
    ),
    (
        "pipeline.source('b', schema='id STRING', watermark=('at', '1 hour'))\n@pipeline.stream\ndef a(b): return b",
        "a watermark on at, which is no column",
    ),
    (
        "pipeline.source('b', schema='at STRING', watermark=('at', '1 hour'))\n@pipeline.stream\ndef a(b): return b",
        "which is no time: make it a TIMESTAMP",
    ),
    (
        "@pipeline.table(key='n', null_key='x')\ndef a(orders):\n    return orders.selectExpr('1 AS n')",
        "a has a null_key, and its key n is no string",
    ),
    (
        "pipeline.source('b', schema='id MAP<STRING, INT>', key='id')\n@pipeline.stream\ndef a(b):\n    return b",
        "the key id of the type MAP<STRING,INT>, which cannot be read from keys",
    ),
    (
        "pipeline.source('b', schema='id STRING', key='no')\n@pipeline.stream\ndef a(b):\n    return b",
        "the key no, which",
    ),
]


@pytest.mark.parametrize(("body", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_only_frames_can_tell_is_told_in_a_sentence(ground: Ground, body: str, sentence: str) -> None:
    words = refusal(ground, body)
    assert sentence in words
    line = 5 if sentence.startswith("5: ") else 3
    assert words.startswith(f"{ground.directory / 'shop.py'}:{line}: "), words


def test_a_query_in_sql_that_spark_refuses_is_told_with_its_line(ground: Ground) -> None:
    text = (
        "CREATE SOURCE a (id STRING) FROM TOPIC 'WORD';\n\nCREATE STREAM b AS\nSELECT id\nFROM a\nWEHRE id = 1 OR OR 2;"
    )
    with pytest.raises(pipeline.PipelineRefused) as refused:
        ground.compiled(text, "sql")
    assert str(refused.value) == f"{ground.directory / 'shop.sql'}:6: b failed: Syntax error at or near 'id'"
    with pytest.raises(pipeline.PipelineRefused, match=r"shop.sql:7: b failed: A column.* `?idd`?") as refused:
        ground.compiled(text.replace("WEHRE id = 1 OR OR 2", "WHERE\n\n idd = 1").replace("FROM a\n", "FROM a "), "sql")
    assert "pos" not in str(refused.value)
