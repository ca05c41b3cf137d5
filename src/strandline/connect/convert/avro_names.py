"""The names that Confluent's converter gives to what Avro and Connect do not have in common."""

from __future__ import annotations

from typing import Final

from strandline.schemas.avro.nodes import AvroNode

NAMESPACE: Final = "io.confluent.connect.avro"
UNION: Final = f"{NAMESPACE}.Union"
"""A struct with a field for each branch of a union."""
MAP_ENTRY: Final = "MapEntry"


def is_map_entry(node: AvroNode) -> bool:
    """Return whether a record is an entry of a map whose keys are no strings."""
    return node.kind == "record" and (
        node.properties.get("connect.internal.type") == MAP_ENTRY or node.name == f"{NAMESPACE}.{MAP_ENTRY}"
    )


def branch_name(node: AvroNode) -> str:
    """Return the field that stands for a branch of a union."""
    return node.short_name or node.kind
