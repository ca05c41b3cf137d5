"""The columns of a data frame that the sink writes: those of Spark's own Kafka sink.

| column | type | |
|---|---|---|
| `value` | string or binary | needed; null is a tombstone |
| `key` | string or binary | |
| `headers` | array of struct(key string, value binary) | |
| `topic` | string | needed without the option `topic`, which overrules it |
| `partition` | int | null lets the key decide |

Others are left out, as Spark does.
"""

from __future__ import annotations

from typing import Any, Final

from strandline.spark.sink.failures import SinkRefused

_TEXT: Final = ("string", "binary")
_TYPES: Final = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def check_columns(schema: Any, topic: str | None) -> None:
    """Refuse a data frame (its StructType) that cannot be written, before anything runs."""
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in types:
        raise SinkRefused(
            f"The data frame has no column value (it has {', '.join(types) or 'none'}): "
            "select one, as string or binary, for instance with to_json(struct('*')) AS value."
        )
    if topic is None and "topic" not in types:
        raise SinkRefused("No topic to write to: set the option topic, or select a column topic.")
    for name, allowed in _TYPES.items():
        if name in types and types[name] not in allowed:
            raise SinkRefused(
                f"The column {name} is {types[name]} and must be {' or '.join(allowed)}: cast it, or leave it out."
            )
