"""Payloads of records by the schemas of a registry: decoded for people, encoded from JSON rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable
from strandline.cli.schema.access import TYPES_BY_SUFFIX, schema_body
from strandline.cli.schema.registry_api import RegistryRefused, SchemaApi
from strandline.cli.schema.sources import SchemaSources, not_installed
from strandline.schemas.payloads.codecs import PayloadCodec, codec_of
from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.payloads.wire_format import SchemaName, split_payload, with_prefix
from strandline.schemas.types import InvalidSchema

CODECS_MAX: Final = 1000
"""Schemas whose codecs are kept."""


@dataclass(frozen=True)
class DecodedPayload:
    """A payload with the schema that it names. `reason` says why it could not be decoded; then it has no value."""

    schema: SchemaName
    value: Any = None
    reason: str = ""


class PayloadDecoder:
    """Decodes payloads of any schema. A schema that is missing or cannot be used is remembered with its reason."""

    def __init__(self, sources: SchemaSources) -> None:
        self._sources = sources
        self._codecs: dict[SchemaName, PayloadCodec | str] = {}

    def decode(self, content: bytes, header: bytes | None = None) -> DecodedPayload | None:
        """Return what a key or value says; None if it names no schema."""
        named = split_payload(content, header)
        if named is None:
            return None
        schema, payload = named
        codec = self._codecs.get(schema) or self._made(schema)
        if isinstance(codec, str):
            return DecodedPayload(schema, reason=codec)
        try:
            return DecodedPayload(schema, codec.decode(payload))
        except PayloadFailed as failure:
            return DecodedPayload(schema, reason=str(failure))

    def _made(self, schema: SchemaName) -> PayloadCodec | str:
        made: PayloadCodec | str
        try:
            made = codec_of(self._sources.by_name(schema))
        except NotFound:
            made = "the registry has no such schema"
        except (RegistryRefused, Unreachable):
            raise
        except (InvalidSchema, CommandFailed) as error:
            made = f"its schema cannot be used: {error}"
        except ModuleNotFoundError as error:
            raise not_installed(error) from None
        if len(self._codecs) >= CODECS_MAX:
            del self._codecs[next(iter(self._codecs))]
        self._codecs[schema] = made
        return made


def row_encoder(
    api: SchemaApi, topic: str, schema: str, *, message: str | None, register: bool
) -> Callable[[Any], bytes]:
    """Return a function from a JSON value to the bytes of a record: of the last version of a subject, or of a file."""
    sources = SchemaSources(api)
    if Path(schema).suffix.lower() in TYPES_BY_SUFFIX or Path(schema).is_file():
        subject, body = f"{topic}-value", schema_body(schema, None, None)
        schema_id = _registered_id(api, subject, schema, body, register=register)
        # What is registered may differ from the file in what does not matter; it is what readers will get.
        source = sources.by_name(schema_id)
    else:
        found = api.ask("GET", "subjects", schema, "versions", "latest")
        schema_id, source = found["id"], sources.of(found, schema)
    try:
        codec = codec_of(source, message=message)
    except ModuleNotFoundError as error:
        raise not_installed(error) from None
    except (InvalidSchema, PayloadFailed) as error:
        raise CommandFailed(f"{schema}: {error}") from None
    return lambda value: with_prefix(schema_id, codec.encode(value))


def _registered_id(api: SchemaApi, subject: str, file: str, body: dict[str, Any], *, register: bool) -> int:
    if register:
        found = api.ask("POST", "subjects", subject, "versions", body=body)
    else:
        try:
            found = api.ask("POST", "subjects", subject, body=body)
        except NotFound:
            raise NotFound(
                f"the schema in {file} is not registered for {subject}",
                hint=f"say --register, or `strandline schema register {subject} {file}` first",
            ) from None
    schema_id: int = found["id"]
    return schema_id
