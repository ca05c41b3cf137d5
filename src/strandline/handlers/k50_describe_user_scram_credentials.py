"""DescribeUserScramCredentials (50), version 0: the mechanisms and iterations of users. No keys are told.

No names, or none given, means all users. Answered from this node's image of the metadata log.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from strandline.codec.message_codec import encode
from strandline.codec.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from strandline.codec.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.response_parts import reply_in_parts

API_KEY = 50
VERSIONS = (0, 0)


def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse | None:
    known: dict[str, list[CredentialInfo]] = {}
    for record in context.node.image.kept.of_kind("scram"):
        credential = CredentialInfo(mechanism=record.mechanism, iterations=record.iterations)
        known.setdefault(record.name, []).append(credential)
    asked = Counter(user.name for user in request.users or ()) or Counter(known.keys())

    def parts() -> Iterator[bytes]:
        for name, times in asked.items():
            yield encode(_result(name, times, known.get(name)), context.api_version)

    reply_in_parts(context, DescribeUserScramCredentialsResponse(), parts())
    return None


def _result(name: str, times: int, found: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    if times > 1:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
        )
    if found is None:
        return DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    credentials = sorted(found, key=lambda each: each.mechanism)
    return DescribeUserScramCredentialsResult(user=name, credential_infos=credentials)
