"""Debezium's ExtractChangedRecordState: headers that name the columns that an update changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from strandline.cdc.transforms.change_events import is_change_event, parts_of, row_of
from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.records import ConnectRecord, Header
from strandline.connect.schema import OPTIONAL_STRING, array
from strandline.connect.transforms.interface import Transform


class ExtractChangedRecordState(Transform):
    """Adds the names of changed and of unchanged columns as headers; the lists are empty without a row before."""

    class Config(BaseConfig):
        header_changed_name: str | None = option("Header with the changed columns.", default=None, importance="LOW")
        header_unchanged_name: str | None = option("Header with the others.", default=None, importance="LOW")

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        names = array(OPTIONAL_STRING, optional=True)
        self._changed, self._unchanged = (
            (each, replace(names, name=each)) if each and each.strip() else None
            for each in (config.header_changed_name, config.header_unchanged_name)
        )

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        if record.value is None or not is_change_event(record):
            return record
        parts_of(record)
        (schema, after), (_, before) = row_of(record, "after"), row_of(record, "before")
        changed: list[str] = []
        unchanged: list[str] = []
        if after is not None and before is not None:
            for name in after if schema is None else (each.name for each in schema.fields):
                (unchanged if after.get(name) == before.get(name) else changed).append(name)
        added = [
            Header(header[0], names, None if schema is None else header[1])
            for header, names in ((self._changed, changed), (self._unchanged, unchanged))
            if header is not None
        ]
        return record.with_(headers=[*record.headers, *added]) if added else record
