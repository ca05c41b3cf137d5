"""AlterClientQuotas (49), versions 0-1: set and remove quotas of users, client ids and IP addresses.

Honoured: validate-only, one outcome per entity. Answered when the records are flushed and in effect here. Values that
are set already make no record.
"""

from __future__ import annotations

from strandline.codec.message_codec import encode
from strandline.codec.messages.alter_client_quotas_request import AlterClientQuotasRequest
from strandline.codec.messages.alter_client_quotas_request import EntryData as AskedEntry
from strandline.codec.messages.alter_client_quotas_response import AlterClientQuotasResponse, EntityData, EntryData
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.quorum.controller.security.client_quotas import QuotaAlteration
from strandline.quorum.controller.submission import Outcomes

API_KEY = 49
VERSIONS = (0, 1)


def handle(context: RequestContext, request: AlterClientQuotasRequest) -> None:
    version = context.api_version

    def part(entry: AskedEntry, outcome: tuple[RequestError | None, BaseException | None]) -> bytes:
        refusal, write_error = outcome
        error = write_error or refusal
        result = EntryData(
            error_code=0 if error is None else error_code(error),
            error_message=None if error is None else error_message(error),
            entity=[EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity],
        )
        if result.error_code:
            context.node.count_error(API_KEY, result.error_code)
        return encode(result, version)

    def on_done(outcomes: Outcomes[RequestError | None]) -> None:
        reply_in_parts(context, AlterClientQuotasResponse(), map(part, request.entries, outcomes))

    asked = [
        QuotaAlteration(
            [(each.entity_type, each.entity_name) for each in entry.entity],
            [(each.key, None if each.remove else each.value) for each in entry.ops],
        )
        for entry in request.entries
    ]
    controller = context.node.controller
    controller.submit_all(controller.decide_quotas(asked, validate_only=request.validate_only), on_done)
