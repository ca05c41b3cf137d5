"""What the API answers with: versions and schemas as JSON, in Confluent's fields. Empty ones are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from strandline.schemas.contracts import Json, json_of
from strandline.schemas.records import AVRO, SchemaContent, SchemaVersion, reference_json

T = TypeVar("T")


def version_json(schema: SchemaVersion) -> Json:
    """Return a version of a subject."""
    found: Json = {"subject": schema.subject, "version": schema.version, "id": schema.id, "guid": schema.guid}
    found |= content_json(schema.content)
    if schema.deleted:
        found["deleted"] = True
    return found


def registered_json(schema: SchemaVersion) -> Json:
    """Return the answer to a registration.

    It has the schema only if the registry may have added to it, by defaults of its metadata or rules. Clients keep a
    text that comes back in the place of what they sent, and could not read it if they had sent a descriptor.
    """
    found: Json = {"id": schema.id, "version": schema.version, "guid": schema.guid}
    if schema.content.metadata is not None or schema.content.rule_set is not None:
        found |= content_json(schema.content)
    return found


def content_json(content: SchemaContent) -> Json:
    found: Json = {}
    if content.type != AVRO:
        found["schemaType"] = content.type
    if content.references:
        found["references"] = [reference_json(each) for each in content.references]
    if content.metadata is not None:
        found["metadata"] = json_of(content.metadata)
    if content.rule_set is not None:
        found["ruleSet"] = json_of(content.rule_set)
    found["schema"] = content.text
    return found


def page(items: Sequence[T], offset: int, limit: int, *, limit_max: int) -> list[T]:
    """Return a part of a list: from `offset` on, at most `limit`; a negative limit is the largest one."""
    start = max(0, offset)
    count = limit if 0 <= limit <= limit_max else limit_max
    return list(items[start : start + count])
