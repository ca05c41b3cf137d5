"""`consume --decode`: keys and values by the schemas that they name, in a registry."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any, Final

from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.records.record import ReadRecord, header_of, json_bytes
from strandline.cli.schema.payloads import DecodedPayload, PayloadDecoder
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.sources import SchemaSources
from strandline.schemas.payloads.wire_format import HEADERS

REASONS_SHOWN: Final = 5
_REASONS_MAX: Final = 100
_TEXT_CHARACTERS: Final = 200


class RecordDecoding:
    """Decodes records before they are filtered and printed. What does not decode is shown plainly, with the reason."""

    def __init__(self, api: SchemaApi, *, as_json: bool) -> None:
        self._decoder = PayloadDecoder(SchemaSources(api))
        self._as_json = as_json
        self._failures: Counter[str] = Counter()

    def decode(self, record: ReadRecord) -> ReadRecord:
        """Return the record with JSON in the place of a key or value that names a schema."""
        changed: dict[str, Any] = {}
        more: dict[str, Any] = {}
        for part, content in (("key", record.key), ("value", record.value)):
            if content is None:
                continue
            found = self._decoder.decode(content, header_of(record.headers, HEADERS[part]))
            if found is None:
                continue
            more[f"{part}_schema_id"] = found.schema
            if found.reason:
                self._note(found)
                more[f"{part}_schema_error"] = found.reason
                if not self._as_json:
                    changed[part] = _words(found, content).encode()
            else:
                more[part] = found.value
                changed[part] = json.dumps(found.value, ensure_ascii=False, separators=(",", ":")).encode()
        return replace(record, more=more, **changed) if more else record

    def _note(self, found: DecodedPayload) -> None:
        words = f"schema {found.schema}: {found.reason}"
        # Reasons name values of records, so there may be as many as there are records.
        self._failures[words if words in self._failures or len(self._failures) < _REASONS_MAX else "others"] += 1

    def tell(self, output: Output) -> None:
        """Say at the end what was not decoded."""
        if not self._failures:
            return
        total = sum(self._failures.values())
        output.talk(f"{total:,} {'key or value' if total == 1 else 'keys or values'} could not be decoded:")
        for words, times in self._failures.most_common(REASONS_SHOWN):
            output.talk(f"  {times:,} of {words}")
        if len(self._failures) > REASONS_SHOWN:
            output.talk(f"  and {count(len(self._failures) - REASONS_SHOWN, 'other reason')}")


def _words(found: DecodedPayload, content: bytes) -> str:
    """Return what is shown in the place of a value that cannot be decoded."""
    ((_, shown),) = json_bytes("value", content[5:] if content[:1] == b"\0" else content).items()
    text = shown or ""
    cut = text if len(text) <= _TEXT_CHARACTERS else f"{text[:_TEXT_CHARACTERS]}..."
    return f"(not decoded: schema {found.schema}: {found.reason}; {count(len(content), 'byte')}: {cut})"
