"""CreateDelegationToken (38), versions 1-3: a token that logs in as its owner, for some time.

Only for clients that are authenticated, and not by a token. A token for another owner needs CREATE_TOKENS on that user,
else it is refused (DELEGATION_TOKEN_AUTHORIZATION_FAILED). Answered when its record is committed.
"""

from __future__ import annotations

import uuid

from strandline.codec.messages.create_delegation_token_request import CreateDelegationTokenRequest
from strandline.codec.messages.create_delegation_token_response import CreateDelegationTokenResponse
from strandline.codec.messages.delegation_token_record import DelegationTokenRecord
from strandline.errors import ErrorCode, error_code
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.token_requests import NO_TIME, refused_here
from strandline.security.acl.kinds import Operation, ResourceType
from strandline.security.principal import Principal
from strandline.security.sasl.delegation_tokens import token_hmac

API_KEY = 38
VERSIONS = (1, 3)

REQUESTER_FROM = 3
"""Older versions do not say who asked for a token."""


def _may_create_for(context: RequestContext, owner: Principal) -> bool:
    return context.guard is not None and context.guard.allows(Operation.CREATE_TOKENS, ResourceType.USER, str(owner))


def handle(context: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse | None:
    node, requester = context.node, context.session.principal
    has_requester = context.api_version >= REQUESTER_FROM
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)

    def answer(code: int, record: DelegationTokenRecord | None = None) -> CreateDelegationTokenResponse:
        secret = node.config.delegation_token_secret_key or ""
        return CreateDelegationTokenResponse(
            error_code=code,
            principal_type=owner.kind,
            principal_name=owner.name,
            token_requester_principal_type=requester.kind if has_requester else "",
            token_requester_principal_name=requester.name if has_requester else "",
            issue_timestamp_ms=NO_TIME if record is None else record.issue_timestamp,
            expiry_timestamp_ms=NO_TIME if record is None else record.expiration_timestamp,
            max_timestamp_ms=NO_TIME if record is None else record.max_timestamp,
            token_id="" if record is None else record.token_id,
            hmac=b"" if record is None else token_hmac(secret, record.token_id),
        )

    refused = refused_here(context)
    if refused is None and owner != requester and not _may_create_for(context, owner):
        refused = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if refused is not None:
        return answer(refused)

    def on_done(record: DelegationTokenRecord | None, error: BaseException | None) -> None:
        context.reply(answer(0 if error is None else error_code(error), record))

    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    token_id = uuid.UUID(int=node.runtime.random.getrandbits(128), version=4)
    node.controller.submit(
        lambda: node.controller.create_token(
            owner,
            requester,
            renewers,
            max_lifetime_ms=request.max_lifetime_ms,
            token_id=token_id,
            now_ms=node.runtime.now_ms(),
        ),
        on_done,
    )
    return None
