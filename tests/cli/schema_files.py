"""Schemas that the tests of the command line write into files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def record(*fields: Any) -> dict[str, Any]:
    """Return an Avro record: each field is a name, a type, and perhaps a default."""
    made = []
    for name, kind, *default in fields:
        made.append({"name": name, "type": kind} | ({"default": default[0]} if default else {}))
    return {"type": "record", "name": "Order", "fields": made}


def proto(body: str) -> str:
    return f'syntax = "proto3"; message Order {{ {body} }}'


class SchemaFiles:
    """Files of a test, by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, name: str, schema: Any) -> str:
        path = self.directory / name
        path.write_text(schema if isinstance(schema, str) else json.dumps(schema))
        return str(path)
