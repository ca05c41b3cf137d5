"""Names of records for subject name strategies: Confluent's serializers take them from the schema."""

from __future__ import annotations

import json
from typing import Any

from strandline.schemas.avro.nodes import NAMED, PRIMITIVES
from strandline.schemas.types import InvalidSchema


def avro_record_name(text: str) -> str | None:
    """Return the full name of the type that an Avro schema is; None if it has none."""
    value = _json(text)
    if isinstance(value, str):
        return None if value in PRIMITIVES else value
    if not isinstance(value, dict) or value.get("type") not in NAMED or not isinstance(value.get("name"), str):
        return None
    name, namespace = value["name"], value.get("namespace")
    return name if "." in name or not namespace else f"{namespace}.{name}"


def json_record_name(text: str) -> str | None:
    """Return the title of a JSON schema; None if it has none."""
    value = _json(text)
    title = value.get("title") if isinstance(value, dict) else None
    return title if isinstance(title, str) else None


def protobuf_messages(text: str) -> dict[tuple[int, ...], str]:
    """Return the full names of all messages of a Protobuf schema. Raise InvalidSchema, or ModuleNotFoundError.

    A message has indexes: the first one counts the messages of the file, each further one those within the one before.
    """
    # Needs an extra that a broker may lack.
    from strandline.schemas.protobuf.engine import read_file

    file = read_file(text)
    found: dict[tuple[int, ...], str] = {}
    waiting: list[tuple[tuple[int, ...], str, Any]] = [((), file.package, file.message_type)]
    while waiting:
        indexes, parent, messages = waiting.pop()
        for index, message in enumerate(messages):
            name = f"{parent}.{message.name}" if parent else message.name
            found[(*indexes, index)] = name
            waiting.append(((*indexes, index), name, message.nested_type))
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(f"the text is not JSON: {error}") from None
