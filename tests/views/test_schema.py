"""Schemas in Spark's words, without Spark."""

from __future__ import annotations

import json

import pytest

from strandline.views.as_of import AtOffsets, AtTime, as_moment, duration_words
from strandline.views.failures import DefinitionRefused, ViewFailed
from strandline.views.schema import Column, parse_schema, schema_json

DDLS = [
    ("a STRING", "VARCHAR"),
    ("a: INT", "INTEGER"),
    ("a bigint NOT NULL COMMENT 'it''s'", None),
    ("a BIGINT NOT NULL COMMENT 'how many'", "BIGINT"),
    ("`a b` DOUBLE", "DOUBLE"),
    ("a DECIMAL(10,2)", "DECIMAL(10,2)"),
    ("a DECIMAL", "DECIMAL(10,0)"),
    ("a TIMESTAMP", "TIMESTAMPTZ"),
    ("a TIMESTAMP_NTZ", "TIMESTAMP"),
    ("a DATE", "DATE"),
    ("a BINARY", "BLOB"),
    ("a BOOLEAN", "BOOLEAN"),
    ("a FLOAT", "FLOAT"),
    ("a SMALLINT", "SMALLINT"),
    ("a TINYINT", "TINYINT"),
    ("a VARCHAR(20)", "VARCHAR"),
    ("a ARRAY<MAP<STRING, ARRAY<INT>>>", "MAP(VARCHAR, INTEGER[])[]"),
    ("a STRUCT<b: STRING, c: STRUCT<d: BINARY>>", 'STRUCT("b" VARCHAR, "c" STRUCT("d" VARCHAR))'),
]


@pytest.mark.parametrize(("ddl", "expected"), DDLS)
def test_ddl(ddl: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(DefinitionRefused):
            parse_schema(ddl)
        return
    (column,) = parse_schema(ddl)
    assert column.duckdb_type == expected
    assert parse_schema(json.dumps(schema_json((column,)))) == (column,)


def test_several_columns() -> None:
    assert parse_schema(" a INT,b ARRAY<STRING> , c STRING ") == (
        Column("a", "integer"),
        Column("b", {"type": "array", "elementType": "string", "containsNull": True}),
        Column("c", "string"),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "a",
        "a INT,",
        "a INT b INT",
        "a INTERVAL DAY",
        "a ARRAY<INT",
        "a DECIMAL(99,1)",
        "a STRUCT<>>",
        "a INT; b",
        "{}",
        '{"fields":[{"name":"a","type":"interval"}]}',
        "a INT, A STRING",
        ", a INT",
        "a MAP<INT>",
    ],
)
def test_what_is_no_schema(wrong: str) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        parse_schema(wrong)
    assert len(str(refused.value).splitlines()) == 1


def test_moments() -> None:
    assert as_moment("0:5,1:7") == AtOffsets({0: 5, 1: 7}) == as_moment({"0": 5, 1: 7})
    assert as_moment("12") == AtOffsets({0: 12})
    assert as_moment("2026-03-01T12:00:00Z") == AtTime(1_772_366_400_000)
    for wrong in ("0:5,0:6", "0-5", "then", "", 5):
        with pytest.raises(ViewFailed):
            as_moment(wrong)
    assert [duration_words(each) for each in (3, 1500, 600_000)] == ["3 ms", "1.5 s", "10 minutes"]
