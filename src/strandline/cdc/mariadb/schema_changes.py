"""Schema change events: DDL statements as Debezium writes them to the topic of the prefix.

`tableChanges` names the tables. It does not have their columns, because the statement is not parsed: the next change
of a table shows them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from strandline.cdc.envelope import MARIADB_SOURCE
from strandline.cdc.mariadb.statements import NamedTable
from strandline.cdc.names import TopicNames, schema_name
from strandline.connect.records import SourceRecord
from strandline.connect.schema import BOOLEAN, INT32, INT64, OPTIONAL_STRING, STRING, array, struct

_CONNECTOR: Final = "io.debezium.connector"
_OPTIONAL_INT32: Final = INT32.as_optional()
_OPTIONAL_BOOLEAN: Final = BOOLEAN.as_optional()
_OPTIONAL_STRINGS: Final = array(STRING, optional=True)


class SchemaChanges:
    """Makes the events of DDL statements."""

    def __init__(self, names: TopicNames, adjustment: str, clock_ns: Callable[[], int] = time.time_ns) -> None:
        def named(name: str) -> str:
            return schema_name(f"{_CONNECTOR}.{name}", adjustment)

        self._topic = names.schema_change
        self._clock_ns = clock_ns
        column = struct(
            {
                "name": STRING,
                "jdbcType": INT32,
                "nativeType": _OPTIONAL_INT32,
                "typeName": STRING,
                "typeExpression": OPTIONAL_STRING,
                "charsetName": OPTIONAL_STRING,
                "length": _OPTIONAL_INT32,
                "scale": _OPTIONAL_INT32,
                "position": INT32,
                "optional": _OPTIONAL_BOOLEAN,
                "autoIncremented": _OPTIONAL_BOOLEAN,
                "generated": _OPTIONAL_BOOLEAN,
                "comment": OPTIONAL_STRING,
                "defaultValueExpression": OPTIONAL_STRING,
                "enumValues": _OPTIONAL_STRINGS,
            },
            name=named("schema.Column"),
            version=1,
        )
        table = struct(
            {
                "defaultCharsetName": OPTIONAL_STRING,
                "primaryKeyColumnNames": _OPTIONAL_STRINGS,
                "columns": array(column),
                "comment": OPTIONAL_STRING,
            },
            name=named("schema.Table"),
            version=1,
            optional=True,
        )
        change = struct({"type": STRING, "id": STRING, "table": table}, name=named("schema.Change"), version=1)
        self._key = struct({"databaseName": STRING}, name=named("mariadb.SchemaChangeKey"), version=1)
        self._value = struct(
            {
                "source": MARIADB_SOURCE,
                "ts_ms": INT64,
                "databaseName": OPTIONAL_STRING,
                "schemaName": OPTIONAL_STRING,
                "ddl": OPTIONAL_STRING,
                "tableChanges": array(change),
            },
            name=named("mariadb.SchemaChangeValue"),
            version=1,
        )

    def event(self, database: str, ddl: str, tables: Sequence[NamedTable], source: Mapping[str, Any]) -> SourceRecord:
        """Return the event of a statement."""
        changes = [{"type": each.change, "id": _id(each), "table": None} for each in tables]
        value = {
            "source": source,
            "ts_ms": self._clock_ns() // 1_000_000,
            "databaseName": database,
            "schemaName": None,
            "ddl": ddl,
            "tableChanges": changes,
        }
        key = {"databaseName": database}
        return SourceRecord(self._topic, value, key, 0, key_schema=self._key, value_schema=self._value)


def _id(table: NamedTable) -> str:
    return ".".join('"' + each.replace('"', '""') + '"' for each in (table.database, table.name))
