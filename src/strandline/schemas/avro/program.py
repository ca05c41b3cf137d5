"""From an Avro schema to the program that checks a payload of it: the codes of `codec/columns/schema_codes`.

Types without bytes have no code. Each record type is one routine that ends with RETURN and is reached by CALL, so a
program is no longer than its schema, also where a schema is recursive or uses a type many times.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.columns.schema_codes import (
    BLOCKS,
    BOOLEAN,
    BYTES,
    CALL,
    END,
    ENUM,
    INT,
    JUMP,
    LONG,
    NEXT,
    RETURN,
    SKIP,
    STRING,
    UNION,
)
from strandline.schemas.avro.nodes import AvroNode

_SIMPLE: Final = {
    "null": (),
    "boolean": (BOOLEAN,),
    "int": (INT,),
    "long": (LONG,),
    "float": (SKIP, 4),
    "double": (SKIP, 8),
    "bytes": (BYTES,),
    "string": (STRING,),
}


def program_of(schema: AvroNode, begin: int) -> list[int]:
    """Return the program of a schema for the place `begin`."""
    compiler = _Compiler(begin)
    compiler.compile(schema)
    return compiler.codes


class _Compiler:
    """One pass over a schema. Places that are not known yet are filled in later."""

    def __init__(self, begin: int) -> None:
        self.codes: list[int] = []
        self._begin = begin
        self._routines: dict[AvroNode, int] = {}
        self._waiting: list[AvroNode] = []
        self._calls: list[tuple[int, AvroNode]] = []

    def compile(self, schema: AvroNode) -> None:
        self._emit(schema)
        self.codes.append(END)
        while self._waiting:
            record = self._waiting.pop()
            self._routines[record] = self._here()
            for field in record.fields:
                self._emit(field.type)
            self.codes.append(RETURN)
        for at, record in self._calls:
            self.codes[at] = self._routines[record]

    def _here(self) -> int:
        return self._begin + len(self.codes)

    def _emit(self, node: AvroNode) -> None:
        match node.kind:
            case "record" | "error":
                if node not in self._routines:
                    self._routines[node] = -1
                    self._waiting.append(node)
                self._calls.append((len(self.codes) + 1, node))
                self.codes += (CALL, 0)
            case "enum":
                self.codes += (ENUM, len(node.symbols))
            case "fixed":
                self.codes += (SKIP, node.size)
            case "union":
                self._emit_union(node)
            case "array" | "map":
                self._emit_blocks(node)
            case kind:
                self.codes += _SIMPLE[kind]

    def _emit_union(self, node: AvroNode) -> None:
        at = len(self.codes) + 2
        self.codes += (UNION, len(node.branches), *(0 for _ in node.branches))
        ends = []
        for number, branch in enumerate(node.branches):
            if number:
                ends.append(len(self.codes) + 1)
                self.codes += (JUMP, 0)
            self.codes[at + number] = self._here()
            self._emit(branch)
        for end in ends:
            self.codes[end] = self._here()

    def _emit_blocks(self, node: AvroNode) -> None:
        assert node.items is not None
        begin, at = self._here(), len(self.codes) + 1
        self.codes += (BLOCKS, 0)
        if node.kind == "map":
            self.codes.append(STRING)
        self._emit(node.items)
        self.codes += (NEXT, begin)
        self.codes[at] = self._here()
