"""The drafts of JSON Schema: which one a document is written in, and whether it is valid there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jsonschema_rs
import referencing.jsonschema

from strandline.schemas.json_schema.documents import Json
from strandline.schemas.types import InvalidSchema

_ECMA_PATTERN = jsonschema_rs.Draft7Validator({"format": "regex"}, validate_formats=True)


def _is_pattern(text: str) -> bool:
    """Tell whether a pattern is one of ECMA 262, or of the dialects with inline flags that other registries accept."""
    if _ECMA_PATTERN.is_valid(text):
        return True
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _is_any(text: str) -> bool:
    return True


@dataclass(frozen=True)
class Draft:
    """One draft: its metaschema and the keywords that it names differently."""

    name: str
    metaschema: str
    validator: str
    specification: Any = field(repr=False)
    id_keyword: str = "$id"

    @property
    def ref_replaces_siblings(self) -> bool:
        """Tell whether keywords beside `$ref` have no meaning."""
        return self.name in ("4", "6", "7")

    @cached_property
    def _validator(self) -> Any:
        # Addresses are not checked, because definitions with spaces in their names are in use.
        formats = {"regex": _is_pattern, "uri": _is_any, "uri-reference": _is_any}
        return getattr(jsonschema_rs, self.validator)({"$ref": self.metaschema}, validate_formats=True, formats=formats)

    def check(self, document: Json, what: str) -> None:
        """Raise InvalidSchema if `document` is not valid under the metaschema of this draft."""
        try:
            self._validator.validate(document)
        except jsonschema_rs.ValidationError as error:
            place = "/".join(["#", *map(str, error.instance_path)])
            message = error.message if len(error.message) <= 200 else f"{error.message[:200]}…"
            raise InvalidSchema(f"{what} is not valid in draft {self.name} at {place}: {message}.") from None
        except ValueError as error:
            raise InvalidSchema(f"{what} is not valid in draft {self.name}: {error}.") from None


DRAFT_4 = Draft(
    "4", "http://json-schema.org/draft-04/schema#", "Draft4Validator", referencing.jsonschema.DRAFT4, id_keyword="id"
)
DRAFT_6 = Draft("6", "http://json-schema.org/draft-06/schema#", "Draft6Validator", referencing.jsonschema.DRAFT6)
DRAFT_7 = Draft("7", "http://json-schema.org/draft-07/schema#", "Draft7Validator", referencing.jsonschema.DRAFT7)
DRAFT_2019_09 = Draft(
    "2019-09",
    "https://json-schema.org/draft/2019-09/schema",
    "Draft201909Validator",
    referencing.jsonschema.DRAFT201909,
)
DRAFT_2020_12 = Draft(
    "2020-12",
    "https://json-schema.org/draft/2020-12/schema",
    "Draft202012Validator",
    referencing.jsonschema.DRAFT202012,
)
DRAFTS = (DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019_09, DRAFT_2020_12)

_BY_ADDRESS = {draft.metaschema.split("://", 1)[1].rstrip("#"): draft for draft in DRAFTS}
_BY_ADDRESS["json-schema.org/schema"] = DRAFT_4


def draft_of(document: Json, default: Draft = DRAFT_7) -> Draft:
    """Return the draft that `$schema` names. Without one, or with an unknown one, it is `default`, as at Confluent."""
    named = document.get("$schema") if isinstance(document, dict) else None
    if not isinstance(named, str):
        return default
    return _BY_ADDRESS.get(named.split("://", 1)[-1].rstrip("#"), default)
