"""AlterUserScramCredentials: which credentials of users are written and removed, in the words of Kafka.

A client sends the salted password and never the password. Only the keys derived from it are stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.codec.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from strandline.codec.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from strandline.codec.messages.user_scram_credential_record import UserScramCredentialRecord
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.state import Decision
from strandline.security.sasl.scram import ITERATIONS_MIN, ITERATIONS_STORED_MAX, SCRAM_BY_NUMBER, credential_of

if TYPE_CHECKING:
    from strandline.quorum.controller.state import ControllerState


class AlteredUser(NamedTuple):
    """The outcome for one user."""

    name: str
    refusal: RequestError | None


def decide(state: ControllerState, request: AlterUserScramCredentialsRequest) -> Decision[list[AlteredUser]]:
    """Return the records of all users that are not refused, and the outcome of each user."""
    present = {(record.name, record.mechanism) for record in state.image.kept.of_kind("scram")}
    changes: dict[str, Any] = {}
    refusals: dict[str, RequestError] = {}
    for asked in _alterations(request):
        if asked.name in refusals:
            continue
        if changes.pop(asked.name, None) is not None:
            # As in Kafka, two mechanisms of one user in one request are one too many.
            refusals[asked.name] = RequestError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
            continue
        try:
            changes[asked.name] = _record(asked, present)
        except RequestError as refusal:
            refusals[asked.name] = refusal
    outcomes = [AlteredUser(name, None) for name in changes]
    outcomes += [AlteredUser(name, refusal) for name, refusal in refusals.items()]
    return state.decided(list(changes.values())), outcomes


def _alterations(
    request: AlterUserScramCredentialsRequest,
) -> Iterator[ScramCredentialDeletion | ScramCredentialUpsertion]:
    yield from request.deletions
    yield from request.upsertions


def _record(asked: ScramCredentialDeletion | ScramCredentialUpsertion, present: set[tuple[str, int]]) -> Any:
    if not asked.name:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = SCRAM_BY_NUMBER.get(asked.mechanism)
    if mechanism is None:
        raise RequestError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(asked, ScramCredentialDeletion):
        if (asked.name, asked.mechanism) not in present:
            raise RequestError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=asked.name, mechanism=asked.mechanism)
    if asked.iterations < ITERATIONS_MIN:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if asked.iterations > ITERATIONS_STORED_MAX:
        raise RequestError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    credential = credential_of(mechanism, asked.salted_password, asked.salt, asked.iterations)
    return UserScramCredentialRecord(
        name=asked.name,
        mechanism=asked.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
