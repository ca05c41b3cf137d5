"""Which branch of a union a JSON value means.

A value is written as it is where its JSON type tells the branch: `null` or `"paid"` for a union of null and string.
Where two branches look alike in JSON (int and long, two records) it is an object with the branch's name: `{"long": 5}`.
That is how Avro's own JSON encoding writes every union, so that form is accepted everywhere it cannot mean an object.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

from strandline.schemas.avro.nodes import AvroNode
from strandline.schemas.payloads.avro_logical import logical_of
from strandline.schemas.payloads.failures import PayloadFailed

_SHAPES: Final = {
    "null": "null",
    "boolean": "boolean",
    "int": "number",
    "long": "number",
    "float": "number",
    "double": "number",
    "bytes": "string",
    "string": "string",
    "fixed": "string",
    "enum": "string",
    "array": "array",
    "map": "object",
}

_OTHER_SHAPES: Final = {"int": "number", "long": "number", "decimal": "number", "float": "string", "double": "string"}
"""What some types may also look like: a date beyond the calendar is a number, and a double that is no number a text."""


class UnionShape:
    """The branches of a union, as JSON tells them apart."""

    def __init__(self, union: AvroNode) -> None:
        self.labels = {branch.label: index for index, branch in enumerate(union.branches)}
        shapes = [_shape_of(branch) for branch in union.branches]
        counts = Counter(shapes)
        is_ambiguous = max(counts.values(), default=0) > 1
        self.wrapped = [
            branch.label if counts[shape] > 1 or (is_ambiguous and shape == "object") else None
            for branch, shape in zip(union.branches, shapes, strict=True)
        ]
        """The name that is written around a value of each branch; None if there is none."""
        self.unlike = [
            (shape, branch.label) if (other := _other_shape(branch)) in counts and other != shape else None
            for branch, shape in zip(union.branches, shapes, strict=True)
        ]
        """The shape and name of each branch whose values may look like another branch; they are named where they do."""
        self._by_shape = {shape: index for index, shape in enumerate(shapes) if self.wrapped[index] is None}
        for index, branch in enumerate(union.branches):
            other = _other_shape(branch)
            if other is not None and other not in counts and self.wrapped[index] is None:
                self._by_shape.setdefault(other, index)
        self._takes_objects = "object" in self._by_shape

    def choose(self, value: Any) -> tuple[int, Any]:
        """Return the branch of a value, and the value in it. Raise PayloadFailed."""
        if isinstance(value, dict) and len(value) == 1 and not self._takes_objects:
            ((label, inner),) = value.items()
            if label in self.labels:
                return self.labels[label], inner
        index = self._by_shape.get(shape_of_value(value))
        if index is not None:
            return index, value
        names = ", ".join(label for label in self.labels)
        if any(self.wrapped):
            example = next(label for label in self.wrapped if label)
            raise PayloadFailed(f'say which type it is, as {{"{example}": ...}}; the union has {names}')
        raise PayloadFailed(f"{shown(value)} is none of {names}")


def _shape_of(node: AvroNode) -> str:
    return "string" if logical_of(node) is not None else _SHAPES.get(node.kind, "object")


def _other_shape(node: AvroNode) -> str | None:
    return _OTHER_SHAPES.get("decimal" if node.decimal else node.kind)


def shape_of_value(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def shown(value: Any) -> str:
    """Return a value for a sentence, cut if it is long."""
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
