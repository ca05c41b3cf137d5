"""DescribeDelegationToken (41), versions 1-3: the tokens of the client, and those that it may renew.

Only for clients that are authenticated, and not by a token. Tokens of other owners need DESCRIBE on the
token or DESCRIBE_TOKENS on their owner, else they are left out.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.delegation_token_record import DelegationTokenRecord
from strandline.codec.messages.describe_delegation_token_request import DescribeDelegationTokenRequest
from strandline.codec.messages.describe_delegation_token_response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.token_requests import refused_here
from strandline.security.acl.kinds import Operation, ResourceType
from strandline.security.principal import parse_principal
from strandline.security.sasl.delegation_tokens import token_hmac

API_KEY = 41
VERSIONS = (1, 3)

REQUESTER_FROM = 3
"""Older versions do not say who asked for a token."""


def handle(context: RequestContext, request: DescribeDelegationTokenRequest) -> DescribeDelegationTokenResponse:
    refused, secret = refused_here(context), context.node.config.delegation_token_secret_key
    if refused is None and not secret:
        refused = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if refused is not None or not secret:
        return DescribeDelegationTokenResponse(error_code=refused or 0)
    asker = str(context.session.principal)
    owners = None
    if request.owners is not None:
        owners = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    now_ms = context.node.runtime.now_ms()
    return DescribeDelegationTokenResponse(
        tokens=[
            _token(record, secret, has_requester=context.api_version >= REQUESTER_FROM)
            for record in context.node.image.kept.of_kind("token")
            if (owners is None or record.owner in owners)
            and (asker in (record.owner, *record.renewers) or _may_see(context, record))
            and record.expiration_timestamp >= now_ms
        ]
    )


def _may_see(context: RequestContext, record: DelegationTokenRecord) -> bool:
    """Return whether a right shows the client the token of another owner."""
    guard = context.guard
    return guard is not None and (
        guard.shows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, record.token_id)
        or guard.shows(Operation.DESCRIBE_TOKENS, ResourceType.USER, record.owner)
    )


def _token(record: Any, secret: str, *, has_requester: bool) -> DescribedDelegationToken:
    owner, requester = parse_principal(record.owner), parse_principal(record.requester or record.owner)
    renewers = [parse_principal(each) for each in record.renewers]
    return DescribedDelegationToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind if has_requester else "",
        token_requester_principal_name=requester.name if has_requester else "",
        issue_timestamp=record.issue_timestamp,
        expiry_timestamp=record.expiration_timestamp,
        max_timestamp=record.max_timestamp,
        token_id=record.token_id,
        hmac=token_hmac(secret, record.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name) for each in renewers
        ],
    )
