"""A schema type for tests: a text is a list of field names, and those with a question mark are optional.

A reader can read a writer that writes every field which the reader must have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.schemas.types import Incompatibility, InvalidSchema


@dataclass(frozen=True)
class Fields:
    names: tuple[str, ...]

    def canonical(self) -> str:
        return " ".join(self.names)

    def normalized(self) -> str:
        return " ".join(sorted(self.names))

    def differences(self, writer: Fields) -> list[Incompatibility]:
        written = {name.rstrip("?") for name in writer.names}
        missing = [name for name in self.names if not name.endswith("?") and name not in written]
        return [Incompatibility("FIELD_MISSING", f"/{name}", f"the field {name} is missing") for name in missing]


class FieldsType:
    def __init__(self, name: str = "AVRO") -> None:
        self.name = name

    def parse(self, text: str, references: Mapping[str, str]) -> Fields:
        names = tuple(text.split())
        for name in names:
            if name.startswith("@") and name[1:] not in references:
                raise InvalidSchema(f"{name} is not known")
            if name == "!":
                raise InvalidSchema("it is broken")
        return Fields(names)
