"""Reading and changing quotas over one connection; librdkafka has no call for them."""

from __future__ import annotations

import time

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import LOOK_AGAIN_S, Conversation, converse, error_name
from strandline.cli.common.failures import CommandFailed
from strandline.cli.quota.words import QuotaEntity
from strandline.codec.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from strandline.codec.messages.alter_client_quotas_response import AlterClientQuotasResponse
from strandline.codec.messages.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from strandline.codec.messages.describe_client_quotas_response import DescribeClientQuotasResponse

MATCH_EXACT = 0
MATCH_DEFAULT = 1

Quotas = dict[str, float]


def open_quotas(cluster: Cluster) -> Conversation:
    conversation = converse(cluster)
    if conversation is None:
        raise CommandFailed(
            "quotas are read and set over a plain listener only",
            hint="use a plain listener, or kafka-configs.sh --entity-type users",
        )
    return conversation


def read_quotas(conversation: Conversation, entity: QuotaEntity | None, *, exactly: bool) -> dict[QuotaEntity, Quotas]:
    """Return the quotas of an entity, or of all that have its parts; of all entities without one."""
    components = [
        ComponentData(entity_type=kind, match_type=MATCH_DEFAULT if name is None else MATCH_EXACT, match=name)
        for kind, name in (() if entity is None else entity.parts)
    ]
    request = DescribeClientQuotasRequest(components=components, strict=exactly)
    answer = conversation.ask(request, DescribeClientQuotasResponse)
    if answer is None:
        raise CommandFailed("the broker has no quotas", hint="Apache Kafka has them since 2.6, Strandline since 0.1")
    if answer.error_code:
        raise CommandFailed(f"cannot read quotas: {answer.error_message or error_name(answer.error_code)}")
    found = {}
    for entry in answer.entries or ():
        # A user before its client id, as people say it.
        parts = sorted(((part.entity_type, part.entity_name) for part in entry.entity), reverse=True)
        found[QuotaEntity(tuple(parts))] = {each.key: each.value for each in entry.values}
    return found


def change_quotas(
    conversation: Conversation, entity: QuotaEntity, changes: dict[str, float | None], *, dry_run: bool
) -> None:
    """Set quotas, or remove those that are None."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=dry_run)
    answer = conversation.ask(request, AlterClientQuotasResponse)
    if answer is None:
        raise CommandFailed("the broker has no quotas", hint="Apache Kafka has them since 2.6, Strandline since 0.1")
    for each in answer.entries:
        if each.error_code:
            reason = each.error_message or error_name(each.error_code)
            raise CommandFailed(f"cannot change the quotas of {entity}: {reason}")


def wait_until_known(conversation: Conversation, entity: QuotaEntity, quotas: Quotas, timeout_s: float) -> None:
    """Wait until the broker shows the quotas: it follows the controller, which may be another node."""
    until = time.monotonic() + timeout_s
    while read_quotas(conversation, entity, exactly=True).get(entity, {}) != quotas:
        if time.monotonic() > until:
            raise CommandFailed(
                f"the quotas of {entity} were changed, and the broker does not show it yet",
                hint="`strandline cluster health` says whether it follows the controller",
            )
        time.sleep(LOOK_AGAIN_S)
