"""Describe- and AlterUserScramCredentials: outcomes as Kafka gives them, records, and that no key leaves."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.handlers.node_of_one import Context, NodeOfOne, ask

from strandline.codec.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from strandline.codec.messages.alter_user_scram_credentials_response import AlterUserScramCredentialsResponse
from strandline.codec.messages.describe_user_scram_credentials_request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from strandline.codec.messages.describe_user_scram_credentials_response import DescribeUserScramCredentialsResponse
from strandline.codec.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from strandline.codec.messages.user_scram_credential_record import UserScramCredentialRecord
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k50_describe_user_scram_credentials as k50
from strandline.handlers import k51_alter_user_scram_credentials as k51
from strandline.security.sasl.scram import SCRAM_SHA_512, credential_of, salted_password

SALT = b"salt" * 8


def upsert(name: str, *, mechanism: int = 2, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = salted_password(SCRAM_SHA_512, "secret", SALT, 4096)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=salted
    )


def delete(name: str, mechanism: int = 2) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(node: NodeOfOne, *changes: Any) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    answer = ask(k51, node, request, 0, AlterUserScramCredentialsResponse)
    return {each.user: (each.error_code, each.error_message) for each in answer.results}


def describe(node: NodeOfOne, *names: str) -> Any:
    users = [UserName(name=name) for name in names] or None
    return ask(k50, node, DescribeUserScramCredentialsRequest(users=users), 0, DescribeUserScramCredentialsResponse)


def test_a_credential_is_written_derived_and_described() -> None:
    node = NodeOfOne()
    assert alter(node, upsert("alice"), upsert("bob", mechanism=1)) == {"alice": (0, None), "bob": (0, None)}
    record = next(each for each in node.log if isinstance(each, UserScramCredentialRecord) and each.name == "alice")
    expected = credential_of(SCRAM_SHA_512, salted_password(SCRAM_SHA_512, "secret", SALT, 4096), SALT, 4096)
    assert (record.salt, record.iterations, record.stored_key, record.server_key) == expected
    answer = describe(node)
    assert (answer.error_code, answer.error_message) == (0, "")
    told = {each.user: [(info.mechanism, info.iterations) for info in each.credential_infos] for each in answer.results}
    assert told == {"alice": [(2, 4096)], "bob": [(1, 4096)]}


def test_a_credential_is_removed() -> None:
    node = NodeOfOne()
    alter(node, upsert("alice"))
    assert alter(node, delete("alice")) == {"alice": (0, None)}
    assert isinstance(node.log[-1], RemoveUserScramCredentialRecord)
    assert describe(node).results == []


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsert(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (delete(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsert("a", mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsert("a", mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (delete("a", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsert("a", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsert("a", iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (delete("a"), ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    ],
)
def test_refused_alone(change: Any, code: ErrorCode, message: str) -> None:
    node = NodeOfOne()
    length = len(node.log)
    assert alter(node, change, upsert("other")) == {change.name: (code, message), "other": (0, None)}
    assert len(node.log) == length + 1


@pytest.mark.parametrize(
    "changes",
    [
        (upsert("a"), upsert("a")),
        (upsert("a", mechanism=1), upsert("a", mechanism=2)),
        (delete("a"), upsert("a")),
        (delete("a"), delete("a")),
        (upsert("a"), upsert("a"), upsert("a")),
    ],
)
def test_one_user_twice(changes: tuple[Any, ...]) -> None:
    node = NodeOfOne()
    alter(node, upsert("a"))
    length = len(node.log)
    message = "A user credential cannot be altered twice in the same request"
    assert alter(node, *changes) == {"a": (ErrorCode.DUPLICATE_RESOURCE, message)}
    assert len(node.log) == length


def test_describe_errors() -> None:
    node = NodeOfOne()
    alter(node, upsert("alice"))
    answer = describe(node, "alice", "none", "twice", "twice")
    told = {each.user: each.error_code for each in answer.results}
    assert told == {"alice": 0, "none": ErrorCode.RESOURCE_NOT_FOUND, "twice": ErrorCode.DUPLICATE_RESOURCE}


def test_a_write_that_fails_is_told_to_every_user() -> None:
    node = NodeOfOne()
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsert("a"), upsert("b")])
    context = Context(node, 0)
    k51.handle(context, request)
    node.fail(DiskFailed("full"))
    answer = context.answer(AlterUserScramCredentialsResponse)
    assert {(each.user, each.error_code) for each in answer.results} == {
        ("a", ErrorCode.KAFKA_STORAGE_ERROR),
        ("b", ErrorCode.KAFKA_STORAGE_ERROR),
    }
