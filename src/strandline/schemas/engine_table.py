"""The schema types that this registry has: those whose libraries are installed."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Final

from strandline.schemas.types import SchemaType

ENGINES: Final = (
    ("AVRO", "strandline.schemas.avro.engine", "AvroType"),
    ("JSON", "strandline.schemas.json_schema.engine", "JsonSchemaEngine"),
    ("PROTOBUF", "strandline.schemas.protobuf.engine", "ProtobufEngine"),
)

logger = logging.getLogger("strandline.schemas")


def all_types() -> list[SchemaType]:
    """Return an engine for each schema type."""
    found: list[SchemaType] = []
    for name, module, attribute in ENGINES:
        try:
            found.append(getattr(import_module(module), attribute)())
        except ModuleNotFoundError as error:
            logger.warning("schemas of type %s are not served: %s", name, error)
    return found
