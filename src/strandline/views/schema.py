"""Schemas in Spark's words, without Spark: its JSON, its DDL, and the types that DuckDB has for them (pure).

A type is what Spark's JSON has for it: a word (`long`, `decimal(10,2)`), or an object for arrays, maps and structs.

Known gaps: intervals and user-defined types are refused; binary inside an array, map or struct stays base64 text, which
is what JSON has for it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from strandline.views.failures import DefinitionRefused

SparkType: TypeAlias = str | Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    name: str
    spark_type: SparkType

    @property
    def duckdb_type(self) -> str:
        return duckdb_type(self.spark_type)

    @property
    def words(self) -> str:
        """`total double`, as a person writes it."""
        return f"{self.name} {type_words(self.spark_type)}"


_WORDS: Final = {
    "string": "string",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "bigint": "long",
    "long": "long",
    "int": "integer",
    "integer": "integer",
    "smallint": "short",
    "short": "short",
    "tinyint": "byte",
    "byte": "byte",
    "double": "double",
    "float": "float",
    "real": "float",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "date": "date",
    "binary": "binary",
    "variant": "variant",
}
"""Names of types in DDL, and in JSON."""
_DUCKDB: Final = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "double": "DOUBLE",
    "float": "FLOAT",
    "boolean": "BOOLEAN",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
    "date": "DATE",
    "binary": "BLOB",
    "variant": "JSON",
}
_SPOKEN: Final = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_SIZED: Final = re.compile(r"(decimal|varchar|char)\((\d+)(?:,\s*(-?\d+))?\)")
_TOKEN: Final = re.compile(
    r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([A-Za-z_][A-Za-z_0-9]*)|(\d+)|([<>(),:-]))"
)


def parse_schema(text: str) -> tuple[Column, ...]:
    """The columns of a StructType's JSON or of a DDL."""
    text = text.strip()
    if text.startswith("{"):
        return _of_json(text)
    return _Ddl(text).columns()


def _of_json(text: str) -> tuple[Column, ...]:
    try:
        told = json.loads(text)
        columns = tuple(Column(str(field["name"]), field["type"]) for field in told["fields"])
    except (ValueError, KeyError, TypeError):
        raise DefinitionRefused(f"the schema {text[:80]!r} is no StructType of Spark as JSON: say a DDL") from None
    for column in columns:
        duckdb_type(column.spark_type)
    return checked(columns)


def checked(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    seen: dict[str, str] = {}
    for column in columns:
        known = seen.setdefault(column.name.lower(), column.name)
        if known is not column.name:
            raise DefinitionRefused(f"two columns are called {column.name}: SQL does not tell {known} from it")
    return columns


def schema_json(columns: tuple[Column, ...]) -> dict[str, Any]:
    """As Spark's StructType has it."""
    fields = [
        {"name": each.name, "type": each.spark_type, "nullable": True, "metadata": dict[str, Any]()} for each in columns
    ]
    return {"type": "struct", "fields": fields}


def duckdb_type(spark_type: SparkType, *, nested: bool = False) -> str:
    if isinstance(spark_type, str):
        if nested and spark_type == "binary":
            return "VARCHAR"
        if spark_type in _DUCKDB:
            return _DUCKDB[spark_type]
        sized = _SIZED.fullmatch(spark_type)
        if sized is not None:
            return f"DECIMAL({sized[2]},{sized[3] or 0})" if sized[1] == "decimal" else "VARCHAR"
        if spark_type == "decimal":
            return "DECIMAL(10,0)"
        if spark_type.startswith("string collate"):
            return "VARCHAR"
    elif spark_type.get("type") == "array":
        return f"{duckdb_type(spark_type['elementType'], nested=True)}[]"
    elif spark_type.get("type") == "map":
        key, value = (duckdb_type(spark_type[each], nested=True) for each in ("keyType", "valueType"))
        return f"MAP({key}, {value})"
    elif spark_type.get("type") == "struct":
        fields = [f"{quoted(each['name'])} {duckdb_type(each['type'], nested=True)}" for each in spark_type["fields"]]
        return f"STRUCT({', '.join(fields)})"
    raise DefinitionRefused(
        f"a view cannot have columns of the type {json.dumps(spark_type)}: leave it out, or a string"
    )


def type_words(spark_type: SparkType) -> str:
    if isinstance(spark_type, str):
        return _SPOKEN.get(spark_type, spark_type)
    if spark_type["type"] == "array":
        return f"array<{type_words(spark_type['elementType'])}>"
    if spark_type["type"] == "map":
        return f"map<{type_words(spark_type['keyType'])}, {type_words(spark_type['valueType'])}>"
    return f"struct<{', '.join(each['name'] + ': ' + type_words(each['type']) for each in spark_type['fields'])}>"


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


class _Ddl:
    """`customer STRING, total DOUBLE NOT NULL COMMENT 'paid', lines ARRAY<STRUCT<sku: STRING, n: INT>>`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[tuple[int, str, str]] = []
        at = 0
        kinds = ("name", "text", "word", "number", "sign")
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._wrong(text[at:].split()[0])
            kind = kinds[(found.lastindex or 1) - 1]
            self._tokens.append((found.start(found.lastindex or 0), kind, found[found.lastindex or 0]))
            at = found.end()
        self._next = 0

    def columns(self) -> tuple[Column, ...]:
        found = []
        while True:
            found.append(Column(*self._field(needs_colon=False)))
            if self._next == len(self._tokens):
                return checked(tuple(found))
            self._expect(",")

    def _field(self, *, needs_colon: bool) -> tuple[str, SparkType]:
        kind, name = self._take()
        if kind == "name":
            name = name[1:-1].replace("``", "`")
        elif kind != "word":
            raise self._wrong(name)
        if not self._skip(":") and needs_colon:
            raise self._wrong(self._take()[1])
        spark_type = self._type()
        while (word := self._peek().lower()) in ("not", "null", "comment"):
            self._take()
            if word == "comment" and self._take()[0] != "text":
                raise self._wrong("COMMENT")
        return name, spark_type

    def _type(self) -> SparkType:
        kind, word = self._take()
        word = word.lower()
        if kind != "word":
            raise self._wrong(word)
        if word == "array":
            self._expect("<")
            element = self._type()
            self._expect(">")
            return {"type": "array", "elementType": element, "containsNull": True}
        if word == "map":
            self._expect("<")
            key = self._type()
            self._expect(",")
            value = self._type()
            self._expect(">")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        if word == "struct":
            return self._struct()
        if word in ("decimal", "dec", "numeric"):
            return self._decimal()
        if word not in _WORDS:
            near = difflib.get_close_matches(word, (*_WORDS, "decimal", "array", "map", "struct"), 1)
            raise self._wrong(word, f" (did you mean {near[0].upper()}?)" if near else "")
        if word in ("varchar", "char") and self._skip("("):
            self._take()
            self._expect(")")
        return _WORDS[word]

    def _struct(self) -> SparkType:
        fields: list[dict[str, Any]] = []
        self._expect("<")
        while not self._skip(">"):
            if fields:
                self._expect(",")
            name, spark_type = self._field(needs_colon=False)
            fields.append({"name": name, "type": spark_type, "nullable": True, "metadata": {}})
        return {"type": "struct", "fields": fields}

    def _decimal(self) -> SparkType:
        precision, scale = "10", "0"
        if self._skip("("):
            precision = self._take()[1]
            if self._skip(","):
                scale = self._take()[1]
            self._expect(")")
        if not (precision.isdigit() and scale.isdigit() and 0 < int(precision) <= 38 and int(scale) <= int(precision)):
            raise self._wrong(f"decimal({precision},{scale})")
        return f"decimal({precision},{scale})"

    # Tokens

    def _peek(self) -> str:
        return self._tokens[self._next][2] if self._next < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self._next == len(self._tokens):
            raise self._wrong("its end")
        _, kind, word = self._tokens[self._next]
        self._next += 1
        return kind, word

    def _skip(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._next += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            raise self._wrong(self._peek() or "its end")

    def _wrong(self, at: str, hint: str = "") -> DefinitionRefused:
        return DefinitionRefused(
            f"the schema {self._text!r} cannot be read at {at!r}{hint}: say it like "
            "'customer STRING, total DOUBLE, at TIMESTAMP, tags ARRAY<STRING>'"
        )
