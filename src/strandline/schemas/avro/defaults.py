"""Whether a JSON value is a default of a schema, by the table in Avro's specification."""

from __future__ import annotations

from typing import Any, Final

from strandline.schemas.avro.nodes import AvroNode

_INT_RANGE: Final = {"int": 2**31, "long": 2**63}


def is_default_of(value: Any, node: AvroNode) -> bool:
    """Say whether `value` is a default for `node`. In a union any branch may match, as in Avro 1.12."""
    return _Check().fits(value, node)


class _Check:
    """One check. A value is tried once for each node, because branches of unions may lead to the same ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bool] = {}

    def fits(self, value: Any, node: AvroNode) -> bool:
        if not isinstance(value, dict | list):
            return self._fits(value, node)
        pair = (id(value), id(node))
        known = self._known.get(pair)
        if known is None:
            known = self._known[pair] = self._fits(value, node)
        return known

    def _fits(self, value: Any, node: AvroNode) -> bool:
        match node.kind:
            case "null":
                return value is None
            case "boolean":
                return isinstance(value, bool)
            case "int" | "long" as kind:
                limit = _INT_RANGE[kind]
                return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
            case "float" | "double":
                return isinstance(value, int | float) and not isinstance(value, bool)
            case "string" | "bytes" | "fixed":
                return isinstance(value, str)
            case "enum":
                return isinstance(value, str) and value in node.symbols
            case "array":
                assert node.items is not None
                return isinstance(value, list) and all(self.fits(each, node.items) for each in value)
            case "map":
                assert node.items is not None
                return isinstance(value, dict) and all(self.fits(each, node.items) for each in value.values())
            case "union":
                return any(self.fits(value, branch) for branch in node.branches)
        # A record: each field from the value, or from its own default, which is checked where it is declared.
        return isinstance(value, dict) and all(
            self.fits(value[each.name], each.type) if each.name in value else each.has_default for each in node.fields
        )
