"""The engine for Avro schemas."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from strandline.schemas.avro.nodes import AvroNode
from strandline.schemas.avro.parsing import Names, parse_text
from strandline.schemas.avro.printing import canonical_text, normalized_text
from strandline.schemas.avro.resolution import incompatibilities
from strandline.schemas.types import Incompatibility, InvalidSchema


class AvroSchema:
    """A parsed Avro schema."""

    def __init__(self, node: AvroNode, known: frozenset[str]) -> None:
        self.node = node
        self._known = known
        """Names that references define."""

    @cached_property
    def _canonical(self) -> str:
        return canonical_text(self.node, self._known)

    def canonical(self) -> str:
        return self._canonical

    def normalized(self) -> str:
        return normalized_text(self.node, self._known)

    def differences(self, writer: AvroSchema) -> list[Incompatibility]:
        return incompatibilities(self.node, writer.node)


class AvroType:
    """The schema type AVRO."""

    name: Final = "AVRO"

    def parse(self, text: str, references: Mapping[str, str]) -> AvroSchema:
        names: Names = {}
        for name, referenced in references.items():
            try:
                parse_text(referenced, names)
            except InvalidSchema as error:
                raise InvalidSchema(f"the reference {name}: {error}") from None
        known = frozenset(names)
        return AvroSchema(parse_text(text, names), known)
