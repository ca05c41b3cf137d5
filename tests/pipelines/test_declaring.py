"""Decorators note what a file says, and refuse what cannot be meant. No Spark, no Java."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from strandline import pipeline
from strandline.pipelines.language.checks import NAME_LENGTH_MAX
from strandline.pipelines.language.declaring import collecting
from strandline.pipelines.language.model import Kind, Watermark


def test_a_source_is_a_topic_of_the_same_name_unless_it_says_another() -> None:
    with collecting("shop.py") as found:
        pipeline.source("orders")
        pipeline.source("clicks", topic="web-clicks", schema="at TIMESTAMP", watermark=("at", "10 minutes"))
        pipeline.source("people", schema="id BIGINT, name STRING", key="id", options={"maxOffsetsPerTrigger": 10})  # type: ignore[dict-item]
    assert found.sources["orders"].topic == "orders"
    assert found.sources["clicks"].topic == "web-clicks"
    assert found.sources["clicks"].watermark == Watermark("at", "10 minutes")
    assert not found.sources["clicks"].is_table
    assert found.sources["people"].is_table
    assert found.sources["people"].key == ("id",)
    assert found.sources["people"].options == {"maxOffsetsPerTrigger": "10"}


def test_parameters_are_inputs_and_those_with_a_default_are_not() -> None:
    def large(orders: Any, people: Any, least: int = 100) -> Any:
        """Those above a limit.

        And more.
        """

    with collecting("shop.py") as found:
        assert pipeline.stream(large) is large
    dataset = found.datasets["large"]
    assert dataset.inputs == ("orders", "people")
    assert dataset.kind is Kind.STREAM
    assert dataset.topic == "large"
    assert dataset.comment == "Those above a limit."
    assert dataset.at is not None
    assert dataset.at.file.endswith("test_declaring.py")


def test_a_decorator_takes_its_arguments_by_name() -> None:
    with collecting("shop.py") as found:

        @pipeline.table(
            key=["a", "b"],
            topic="sums",
            changes="totals",
            partitions=3,
            mode="complete",
            trigger="10 seconds",
            options={"kafka.compression.type": "lz4"},
            comment="Sums.",
        )
        def by_both(totals: Any) -> Any: ...

        @pipeline.view(key="a", name="newest", null_key="nobody")
        def something(totals: Any) -> Any: ...

        @pipeline.temporary_view
        def between(orders: Any) -> Any: ...

    both = found.datasets["by_both"]
    assert (both.key, both.topic, both.changes, both.partitions) == (("a", "b"), "sums", {"totals"}, 3)
    assert (both.output_mode, both.trigger, both.comment) == ("complete", "10 seconds", "Sums.")
    assert both.options == {"kafka.compression.type": "lz4"}
    assert found.datasets["newest"].kind is Kind.VIEW
    assert found.datasets["newest"].output_mode == "update"
    assert found.datasets["newest"].null_key == "nobody"
    assert found.datasets["between"].topic == ""
    assert pipeline.materialized_view is pipeline.view


def test_outside_of_a_load_a_function_is_decorated_and_nothing_is_kept() -> None:
    @pipeline.stream
    def doubled(orders: int) -> int:
        return orders * 2

    pipeline.source("orders")
    pipeline.source("orders")
    assert doubled(21) == 42


def some() -> Any: ...


def saying(**said: Any) -> Any:
    def apply(kind: Any = pipeline.stream) -> Any:
        def some_name(orders: Any) -> Any: ...

        return kind(**said)(some_name) if said else kind(some_name)

    return apply


def with_rest(*orders: Any) -> Any: ...


REFUSED = [
    (lambda: saying()(pipeline.table), "the table some_name has no key: say which columns are, @pipeline.table"),
    (lambda: saying()(pipeline.view), "the view some_name has no key"),
    (lambda: saying(key="a")(pipeline.temporary_view), "is a temporary view, which is not written"),
    (lambda: saying(topic="a")(pipeline.temporary_view), "is a temporary view, which is not written"),
    (
        lambda: saying(key="a", null_key="x")(),
        "null_key='x': it is a text, for a table or view whose key is one column",
    ),
    (lambda: saying(key=["a", "b"], null_key="x")(pipeline.table), "null_key='x': it is a text, for a table or view"),
    (lambda: saying(key="a", null_key="")(pipeline.table), "null_key='': it is a text"),
    (lambda: saying(mode="upsert")(), "the mode 'upsert': say append, update or complete"),
    (lambda: saying(partitions=0)(), "partitions=0: say a whole number"),
    (lambda: saying(partitions=True)(), "partitions=True: say a whole number"),
    (lambda: saying(trigger="often")(), "the trigger 'often': say a time like '10 seconds'"),
    (lambda: saying(topic="a/b")(), "a topic is named 'a/b': use letters"),
    (lambda: saying(topic="..")(), "a topic is named '..': use letters"),
    (lambda: saying(topic="__consumer_offsets")(), "is the name of an internal topic"),
    (lambda: saying(topic="orders.v2")(), "is the name that a version of the topic orders gets in a rebuild"),
    (lambda: saying(name="größe")(), "the stream is named 'größe'"),
    (lambda: saying(name="x" * (NAME_LENGTH_MAX + 1))(), f"at most {NAME_LENGTH_MAX}"),
    (lambda: saying(topics="a")(), "@pipeline.stream has no argument topics (did you mean topic?)"),
    (lambda: pipeline.stream("orders"), "takes its arguments by name, as in @pipeline.stream(topic=...)"),
    (lambda: pipeline.stream(with_rest), "each input is a parameter with its name"),
    (lambda: pipeline.source("a b"), "the source is named 'a b'"),
    (lambda: pipeline.source("a", watermark="at"), """say it like watermark=("at", "10 minutes")"""),
    (lambda: pipeline.source("a", schema="at TIMESTAMP", watermark=("at", "ten")), "the watermark delay 'ten'"),
    (lambda: pipeline.source("a", dead_letters="b"), "has dead letters and no schema, so every record fits"),
    (lambda: pipeline.source("a", schema="x INT", dead_letters="a"), "would go to the topic they come from"),
    (lambda: pipeline.source("a", key="id"), "has a key and no schema"),
    (lambda: pipeline.source("a", schema="x DUBLE"), "cannot be read at 'duble' (did you mean DOUBLE?)"),
    (lambda: pipeline.source("a", schema="x INT, X INT"), "two columns are called X"),
    (lambda: pipeline.source("a", key="x", schema="x INT", watermark=("x", "1 hour")), "is a table, which has no"),
    (lambda: pipeline.spark(), "call it inside a decorated function"),
    (lambda: pipeline.name("a b"), "the pipeline is named 'a b'"),
]


@pytest.mark.parametrize(
    "schema",
    ["x INTERVAL DAY TO SECOND", "struct<x: INT>", "x STRING COLLATE UTF8_LCASE", "x VOID", "`a b` INT NOT NULL"],
)
def test_schemas_that_only_spark_can_judge_are_left_to_it(schema: str) -> None:
    with collecting("shop.py") as declared:
        pipeline.source("a", schema=schema)
    assert declared.sources["a"].schema == schema


@pytest.mark.parametrize(("say", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_what_cannot_be_meant_is_refused_in_a_sentence(say: Any, sentence: str) -> None:
    with pytest.raises(pipeline.PipelineRefused) as refusal, collecting("shop.py"):
        say()
    words = str(refusal.value)
    assert sentence in words
    assert "\n" not in words
    file, line, rest = words.split(":", 2)
    assert file.endswith(".py"), words
    assert int(line) > 0
    assert rest.startswith(" ")


def test_a_name_is_given_once() -> None:
    with collecting("shop.py"):
        pipeline.source("orders")
        with pytest.raises(pipeline.PipelineRefused, match=r"orders is declared already at .+:\d+"):
            pipeline.stream(name="orders")(some)
        pipeline.name("a")
        with pytest.raises(pipeline.PipelineRefused, match="named twice, a and b"):
            pipeline.name("b")


def test_neither_the_package_nor_the_language_loads_spark() -> None:
    heavy = "{'pyspark', 'pyarrow', 'duckdb', 'pandas', 'numpy'}"
    program = f"import sys; from strandline import pipeline; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "[]"
