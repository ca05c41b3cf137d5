"""The engine for JSON Schema as the registry uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.schemas.json_schema.diff.comparison import compare
from strandline.schemas.json_schema.diff.kinds import Differences
from strandline.schemas.json_schema.documents import Json, dump, load
from strandline.schemas.json_schema.drafts import DRAFT_7, draft_of
from strandline.schemas.json_schema.nodes import SchemaNode
from strandline.schemas.json_schema.translation import translate
from strandline.schemas.types import Incompatibility, InvalidSchema


@dataclass(frozen=True)
class ParsedJsonSchema:
    """A JSON Schema that is valid in its draft and whose references all resolve."""

    document: Json = field(repr=False)
    root: SchemaNode = field(repr=False)

    def canonical(self) -> str:
        """Return the document without spaces, with its keys in written order."""
        return dump(self.document)

    def normalized(self) -> str:
        """Return the document without spaces, with sorted keys."""
        return dump(self.document, sort_keys=True)

    def changes(self, writer: ParsedJsonSchema) -> Differences:
        """Return all differences from `writer` to this schema, compatible ones included."""
        return compare(writer.root, self.root)

    def differences(self, writer: ParsedJsonSchema) -> list[Incompatibility]:
        """Return why this schema, as reader, can not read what `writer` wrote; empty if it can."""
        return [
            Incompatibility(each.kind, each.place, each.sentence())
            for each in dict.fromkeys(self.changes(writer))
            if not each.is_compatible
        ]


class JsonSchemaEngine:
    """The schema type JSON."""

    name = "JSON"

    def parse(self, text: str, references: Mapping[str, str]) -> ParsedJsonSchema:
        """Parse `text`, or raise InvalidSchema."""
        document = load(text)
        if not isinstance(document, (dict, bool)):
            raise InvalidSchema("A JSON schema must be an object or a boolean.")
        # A boolean is a schema since draft 6, and names no draft.
        draft = draft_of(document)
        draft.check(document, "The schema")
        referenced: dict[str, Json] = {}
        for name, each in references.items():
            what = f"The referenced schema {name!r}"
            referenced[name] = load(each, what)
            if not isinstance(referenced[name], (dict, bool)):
                raise InvalidSchema(f"{what} must be an object or a boolean.")
            draft_of(referenced[name], draft if isinstance(referenced[name], dict) else DRAFT_7).check(
                referenced[name], what
            )
        return ParsedJsonSchema(document, translate(document, draft, referenced))
