"""Rows that cannot be converted: the task stops, or goes on without them, with a dead letter for each."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any, Final

from strandline.cdc.model import Absent
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.cdc.postgres.tables import StreamedTable
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure
from strandline.connect.records import Header, SourceRecord
from strandline.connect.schema import INT64, OPTIONAL_STRING, STRING, struct

CONVERSION_FAILURES: Final = (ValueError, TypeError, ArithmeticError, LookupError, ConnectFailed)
"""What the conversion of a row may raise."""
_ERRORS: Final = "__connect.errors."
_SCHEMA: Final = struct(
    {
        "table": STRING,
        "op": STRING,
        "lsn": INT64,
        "error": STRING,
        "before": OPTIONAL_STRING,
        "after": OPTIONAL_STRING,
    },
    name="strandline.cdc.BadRow",
    version=1,
)
_log = logging.getLogger(__name__)


class BadRows:
    """Does what `errors.tolerance` and `errors.deadletterqueue.topic.name` of the connector say."""

    def __init__(self, config: PostgresCdcConfig) -> None:
        given = config.properties
        self._is_tolerant = (given.get("errors.tolerance") or "none").strip().lower() == "all"
        self._topic = given.get("errors.deadletterqueue.topic.name")

    def records(
        self,
        table: StreamedTable,
        op: str,
        before: Sequence[Any] | None,
        after: Sequence[Any] | None,
        lsn: int,
        error: Exception,
    ) -> list[SourceRecord]:
        """Return what the log has instead of a row. Raise ConnectFailed if the task is to stop."""
        if isinstance(error, InvalidConnectorConfig | RetriableFailure):
            raise error
        if not self._is_tolerant:
            if isinstance(error, ConnectFailed):
                raise error
            raise ConnectFailed(
                f"a row of {table.full_name} at {lsn} cannot be converted ({type(error).__name__}: {error}): "
                f"leave the column out with column.exclude.list, or set errors.tolerance=all"
            ) from error
        _log.warning("a row of %s at %d is left out, because it cannot be converted: %s", table.full_name, lsn, error)
        if not self._topic:
            return []
        value = {
            "table": table.full_name,
            "op": op,
            "lsn": lsn,
            "error": str(error),
            "before": _shown(table, before),
            "after": _shown(table, after),
        }
        told = {"exception.class.name": type(error).__name__, "exception.message": str(error), "stage": "SOURCE"}
        headers = [Header(_ERRORS + name, text, STRING) for name, text in told.items()]
        return [SourceRecord(self._topic, value, headers=headers, value_schema=_SCHEMA)]


def _shown(table: StreamedTable, row: Sequence[Any] | None) -> str | None:
    """Return a row as JSON, with the texts that PostgreSQL sent; without what it did not send."""
    if row is None:
        return None
    columns = zip(table.relation.columns, row, strict=True)
    known = {each.name: value for each, value in columns if not isinstance(value, Absent)}
    shown = {name: None if value is None else bytes(value).decode(errors="replace") for name, value in known.items()}
    return json.dumps(shown, ensure_ascii=False)
