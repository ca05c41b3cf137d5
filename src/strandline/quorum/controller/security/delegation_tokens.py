"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken: decisions about tokens, in the words of Kafka.

Tokens that are over are removed when another one is created, and every `delegation.token.expiry.check.interval.ms`. A
login checks the time itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from strandline.codec.messages.delegation_token_record import DelegationTokenRecord
from strandline.codec.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.state import Decision
from strandline.security.principal import USER, Principal
from strandline.security.sasl.delegation_tokens import token_hmac
from strandline.security.sasl.exchange import is_same

if TYPE_CHECKING:
    from uuid import UUID

    from strandline.quorum.controller.state import ControllerState

TOKENS_MAX: Final = 10_000
"""Delegation tokens of a cluster: a request that names one by its HMAC looks through all of them."""
REMOVED_MAX: Final = 1_000
"""Tokens that are over and are removed at one time."""


def secret_of(state: ControllerState) -> str:
    """Return the secret; RequestError (DELEGATION_TOKEN_AUTH_DISABLED) if tokens are off."""
    secret = state.config.delegation_token_secret_key
    if not secret:
        raise RequestError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, "Delegation Token feature is not enabled.")
    return secret


def create(
    state: ControllerState,
    owner: Principal,
    requester: Principal,
    renewers: Sequence[Principal],
    *,
    max_lifetime_ms: int,
    token_id: UUID,
    now_ms: int,
) -> Decision[DelegationTokenRecord]:
    secret_of(state)
    if any(each.kind != USER for each in (*renewers, owner)):
        raise RequestError(ErrorCode.INVALID_PRINCIPAL_TYPE, "Supplied principalType is not supported.")
    tokens = state.image.kept.of_kind("token")
    over = _over(tokens, now_ms)
    if len(tokens) - len(over) >= TOKENS_MAX:
        raise RequestError(ErrorCode.POLICY_VIOLATION, f"there are {TOKENS_MAX} delegation tokens already")
    config = state.config
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, max_lifetime_ms)
    record = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[str(each) for each in renewers],
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiration_timestamp=now_ms + min(lifetime_ms, config.delegation_token_expiry_time_ms),
        token_id=str(token_id),
    )
    return state.decided([*over, record]), record


def remove_expired(state: ControllerState, now_ms: int) -> list[Any]:
    """Return the records that remove tokens that are over; with very many of them, the others follow another time."""
    return state.decided(_over(state.image.kept.of_kind("token"), now_ms))


def _over(tokens: Sequence[Any], now_ms: int) -> list[Any]:
    over = [each for each in tokens if each.expiration_timestamp < now_ms]
    return [RemoveDelegationTokenRecord(token_id=each.token_id) for each in over[:REMOVED_MAX]]


def renew(state: ControllerState, given: bytes, by: Principal, period_ms: int, now_ms: int) -> Decision[int]:
    """Return when the token ends from now on."""
    found = _found(state, given, by, now_ms)
    lifetime_ms = state.config.delegation_token_expiry_time_ms
    if period_ms > 0:
        lifetime_ms = min(lifetime_ms, period_ms)
    return _until(state, found, min(found.max_timestamp, now_ms + lifetime_ms))


def expire(state: ControllerState, given: bytes, by: Principal, period_ms: int, now_ms: int) -> Decision[int]:
    """Return when the token ends. A period below zero removes it now."""
    found = _found(state, given, by, now_ms)
    if period_ms < 0:
        return state.decided([RemoveDelegationTokenRecord(token_id=found.token_id)]), period_ms
    return _until(state, found, min(found.max_timestamp, now_ms + period_ms))


def _until(state: ControllerState, found: Any, ends_ms: int) -> Decision[int]:
    record = DelegationTokenRecord(
        owner=found.owner,
        requester=found.requester,
        renewers=list(found.renewers),
        issue_timestamp=found.issue_timestamp,
        max_timestamp=found.max_timestamp,
        expiration_timestamp=ends_ms,
        token_id=found.token_id,
    )
    return state.decided([record]), ends_ms


def _found(state: ControllerState, given: bytes, by: Principal, now_ms: int) -> Any:
    secret = secret_of(state)
    found = None
    for each in state.image.kept.of_kind("token"):
        if is_same(token_hmac(secret, each.token_id), given):
            found = each
    if found is None:
        raise RequestError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "Delegation Token is not found on server.")
    if found.max_timestamp < now_ms or found.expiration_timestamp < now_ms:
        raise RequestError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "Delegation Token is expired.")
    if str(by) not in (found.owner, *found.renewers):
        raise RequestError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "Specified Principal is not valid Owner/Renewer.")
    return found
