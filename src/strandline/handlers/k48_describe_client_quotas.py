"""DescribeClientQuotas (48), versions 0-1: the quotas of the entities that a filter matches.

Answered from what is committed. A component of the filter names a type: with an exact name, the default of the type, or
any name. With `strict` an entity has no other types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.codec.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from strandline.codec.messages.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from strandline.config.quota_keys import CLIENT_ID, ENTITY_TYPES, IP, USER
from strandline.errors import ErrorCode, RequestError, error_message
from strandline.handlers.support.context import RequestContext

API_KEY = 48
VERSIONS = (0, 1)

MATCH_EXACT = 0
MATCH_DEFAULT = 1
MATCH_ANY = 2

Names = dict[str, str | None]


def handle(context: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        filters = _filters(request.components)
    except RequestError as error:
        return DescribeClientQuotasResponse(
            error_code=int(error.code), error_message=error_message(error), entries=None
        )
    entries: dict[tuple[tuple[str, str | None], ...], EntryData] = {}
    for record in context.node.image.kept.of_kind("quota"):
        names: Names = {each.entity_type: each.entity_name for each in record.entity}
        if (request.strict and len(names) != len(filters)) or not all(
            kind in names and is_match(names[kind]) for kind, is_match in filters.items()
        ):
            continue
        entity = tuple(sorted(names.items(), reverse=True))
        entry = entries.get(entity)
        if entry is None:
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            entry = entries[entity] = EntryData(entity=parts)
        entry.values.append(ValueData(key=record.key, value=record.value))
    return DescribeClientQuotasResponse(entries=[entries[entity] for entity in sorted(entries, key=repr)])


def _filters(components: Sequence[ComponentData]) -> dict[str, Callable[[str | None], bool]]:
    """Return for each type that the request names whether a name of it matches."""
    filters: dict[str, Callable[[str | None], bool]] = {}
    for each in components:
        if not each.entity_type:
            raise RequestError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if each.entity_type in filters:
            message = f"Entity type {each.entity_type} cannot appear more than once in the filter."
            raise RequestError(ErrorCode.INVALID_REQUEST, message)
        if each.entity_type not in ENTITY_TYPES:
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {each.entity_type}")
        filters[each.entity_type] = _filter(each)
    if IP in filters and (USER in filters or CLIENT_ID in filters):
        message = "Invalid entity filter component combination. IP should not be used with user or clientId."
        raise RequestError(ErrorCode.INVALID_REQUEST, message)
    return filters


def _filter(component: ComponentData) -> Callable[[str | None], bool]:
    if component.match_type not in (MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY):
        raise RequestError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    wanted = component.match
    if (component.match_type == MATCH_EXACT) != (wanted is not None):
        message = "A match string belongs to an exact match, and to no other."
        raise RequestError(ErrorCode.INVALID_REQUEST, message)
    if component.match_type == MATCH_ANY:
        return lambda name: True
    return lambda name: name == wanted
