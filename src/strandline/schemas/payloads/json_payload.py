"""Payloads of JSON Schema: JSON text that is valid under the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn
from urllib.parse import urljoin

import jsonschema_rs

from strandline.schemas.json_schema.drafts import draft_of
from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.types import InvalidSchema

BACKTRACKS_MAX: Final = 100_000
"""Steps back of one pattern in one text. Patterns come with schemas, and some would take a year."""
_MESSAGE_CHARACTERS: Final = 200


class JsonCodec:
    """Payloads of one JSON schema."""

    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        try:
            self._validator = _validator(text, references)
        except (ValueError, RecursionError, jsonschema_rs.ReferencingError) as error:
            raise InvalidSchema(f"the schema cannot be used for validation: {error}") from None

    def decode(self, payload: bytes) -> Any:
        try:
            value = json.loads(payload, parse_constant=_refuse_constant)
        except RecursionError:
            raise PayloadFailed("it is nested too deep") from None
        except ValueError as error:
            raise PayloadFailed(f"it is not JSON: {error}") from None
        self._check(value)
        if b"\\u" in payload:
            _text(value)
        return value

    def encode(self, value: Any) -> bytes:
        self._check(value)
        return _text(value)

    def _check(self, value: Any) -> None:
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            message = error.message
            if len(message) > _MESSAGE_CHARACTERS:
                message = f"{message[:_MESSAGE_CHARACTERS]}..."
            raise PayloadFailed(message, tuple(error.instance_path)) from None
        except ValueError as error:
            raise PayloadFailed(str(error)) from None


def _validator(text: str, references: Mapping[str, str]) -> Any:
    document = json.loads(text)
    draft = draft_of(document)
    named = document.get(draft.id_keyword) if isinstance(document, dict) else None
    base = named if isinstance(named, str) else ""
    resources = [
        (address, json.loads(each)) for name, each in references.items() for address in {name, urljoin(base, name)}
    ]
    return getattr(jsonschema_rs, draft.validator)(
        document,
        registry=jsonschema_rs.Registry(resources) if resources else None,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=BACKTRACKS_MAX),
        offline=True,
    )


def _text(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError:
        raise PayloadFailed("a text has half of a surrogate pair, which no UTF-8 can hold") from None
    except ValueError:
        raise PayloadFailed("JSON has no numbers that are infinite, or none at all") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
