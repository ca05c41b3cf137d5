"""Every column of the recorded tables has the schema and the values that a live Debezium gave it.

The types are tried alone here, with the text that PostgreSQL has for each value: no connector runs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.cdc.postgres_types_support import columns_of, connected, converted, run, schema_json, texts_of, value_json
from tests.cdc.profile import MARKER
from tests.cdc.profiles import PROFILES
from tests.cdc.recorded import recording

from strandline.cdc.model import CapturedColumn
from strandline.cdc.postgres.types import TypeSettings

_SETTINGS: Final = {
    "types-default": TypeSettings(),
    "types-connect": TypeSettings(decimal="string", time="connect", interval="string", hstore="map", binary="hex"),
    "types-isostring": TypeSettings(time="isostring", binary="base64"),
    "types-microseconds": TypeSettings(decimal="double", time="microseconds", binary="base64-url-safe", money_digits=4),
    "types-nanoseconds": TypeSettings(time="nanoseconds", include_unknown=True),
    "types-source": TypeSettings(time="adaptive_time_microseconds", include_unknown=True, binary="base64"),
    "edges-default": TypeSettings(),
    "edges-connect": TypeSettings(decimal="string", time="connect"),
    "edges-isostring": TypeSettings(time="isostring"),
    "defaults": TypeSettings(),
}
_QUICK: Final = frozenset(("types-default", "edges-default", "defaults"))
_SCHEMA: Final = "schema"
_VALUE: Final = "value"
_SNAPSHOT: Final = "snapshot"
_DIFFERENCES: Final = {
    ("t_array.ae", _SCHEMA): "elements of an array may be NULL, so they are optional",
    ("t_unknown.aco", _SCHEMA): "elements of an array may be NULL, so they are optional",
    ("t_array.ati", _VALUE): "the JDBC driver cuts times in arrays to milliseconds",
    ("t_array.atz", _VALUE): "the JDBC driver cuts times with zones in arrays to seconds",
    ("t_array_odd.abit", _SCHEMA): "Debezium takes an array of bits for one bit string",
    ("t_array_odd.abit", _VALUE): "Debezium takes an array of bits for one bit string",
    ("t_array_odd.a2d", _VALUE): "Debezium makes nulls of the inner arrays",
    ("t_array_odd.aiv", _SCHEMA): "left out by Debezium, even with include.unknown.datatypes",
    ("t_array_odd.am", _SCHEMA): "left out by Debezium, even with include.unknown.datatypes",
    ("t_array_odd.ax", _SCHEMA): "left out by Debezium, even with include.unknown.datatypes",
    ("t_array_odd.apt", _SCHEMA): "left out by Debezium, even with include.unknown.datatypes",
    ("t_number.nneg", _SCHEMA): "Debezium takes the scale -2 for 2046",
    ("t_number.nneg", _VALUE): "Debezium takes the scale -2 for 2046",
    ("t_text.na", _VALUE): "Debezium streams a name as null",
    ("t_edge.d", _SNAPSHOT): "the snapshot's calendar is Julian before 1582, that of the stream is not",
    ("defaults.t", _SCHEMA): "Debezium cuts the text at its quote",
    ("defaults.now", _VALUE): "the value is the time of the run",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in _QUICK else pytest.mark.slow) for each in _SETTINGS],
)
def test_schemas_and_values_are_those_of_a_live_debezium(name: str) -> None:
    profile = PROFILES[name]
    compared = 0
    unexpected = []
    with connected() as connection:
        run(connection, [each for each in profile.before if isinstance(each, str)])
        run(connection, [each for each in profile.during if isinstance(each, str) and each.startswith("insert")])
        tables: dict[str, tuple[dict[str, CapturedColumn | None], dict[Any, dict[str, bytes | None]]]] = {}
        for table, op, fields, after in _recorded_rows(name):
            if table not in tables:
                columns = columns_of(connection, table, _SETTINGS[name])
                tables[table] = (columns, {row["id"]: row for row in texts_of(connection, table)})
                unexpected += [
                    f"{table}.{column}: {_schema(captured)} is not {fields.get(column)}"
                    for column, captured in columns.items()
                    if _schema(captured) != fields.get(column) and (f"{table}.{column}", _SCHEMA) not in _DIFFERENCES
                ]
            columns, rows = tables[table]
            texts = rows[str(after["id"]).encode()]
            for column, captured in columns.items():
                if captured is None or column not in after:
                    continue
                compared += 1
                value = value_json(captured.schema, converted(captured, texts[column]))
                kinds = (_VALUE, _SNAPSHOT) if op == "r" else (_VALUE,)
                # As text, since 1 == 1.0 and 1 == True.
                if repr(value) != repr(after[column]) and not any(
                    (f"{table}.{column}", kind) in _DIFFERENCES for kind in kinds
                ):
                    unexpected.append(f"{table}.{column} of {texts[column]!r}: {value!r} is not {after[column]!r}")
    assert not unexpected
    assert compared > 50


def _recorded_rows(name: str) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Yield table, operation, fields and values of each row that was read or inserted."""
    for record in recording(PROFILES[name])[1]:
        table = record["topic"].rpartition(".")[2]
        if table == MARKER or not record["value"] or record["value"]["payload"]["op"] not in ("r", "c"):
            continue
        envelope = {each["field"]: each for each in record["value"]["schema"]["fields"]}
        fields = {each.pop("field"): each for each in copy.deepcopy(envelope["after"]["fields"])}
        yield (
            table,
            record["value"]["payload"]["op"],
            dict(map(_plain, fields.items())),
            record["value"]["payload"]["after"],
        )


def _plain(field: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """Return a field without the parameters of `column.propagate.source.type`."""
    name, schema = field
    parameters = {
        key: value for key, value in schema.pop("parameters", {}).items() if not key.startswith("__debezium.source.")
    }
    return name, schema | ({"parameters": parameters} if parameters else {})


def _schema(column: CapturedColumn | None) -> Any:
    return None if column is None else schema_json(column.schema)
