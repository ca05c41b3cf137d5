"""The schema by which a query reads values, as the option `readerSchema` carries it (pure)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from strandline.schemas.engines import SchemaSource
from strandline.schemas.records import AVRO
from strandline.schemas.types import InvalidSchema

JSON_SCHEMA: Final = "JSON"


@dataclass(frozen=True)
class ReaderSchema:
    """A schema, and the version of a subject that it is."""

    source: SchemaSource
    subject: str = ""
    version: int = 0
    id: int = 0

    @property
    def type(self) -> str:
        return self.source.type

    @property
    def words(self) -> str:
        """Return what a person calls it."""
        return f"version {self.version} of {self.subject}" if self.version else "a schema of the user"

    def option(self) -> str:
        """Return the value of the option `readerSchema`."""
        told = {
            "schema": self.source.text,
            "schemaType": self.source.type,
            "references": [list(each) for each in self.source.references],
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
        }
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def of_option(cls, text: str) -> ReaderSchema:
        """Return what the option says: what `option` returned, or the text of an Avro schema. Raise InvalidSchema."""
        try:
            told = json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidSchema("it is not JSON") from None
        if not isinstance(told, dict) or "schema" not in told:
            return cls(SchemaSource(AVRO, text))
        references = tuple((str(name), str(referenced)) for name, referenced in told.get("references", ()))
        source = SchemaSource(str(told.get("schemaType", AVRO)), str(told["schema"]), references)
        return cls(source, str(told.get("subject", "")), int(told.get("version", 0)), int(told.get("id", 0)))
