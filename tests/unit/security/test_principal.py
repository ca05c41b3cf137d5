"""Principals as text and as Kafka writes them into an Envelope."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode, RequestError
from strandline.security.principal import (
    ANONYMOUS_SESSION,
    Principal,
    Session,
    decode_session,
    encode_session,
    parse_principal,
)


@pytest.mark.parametrize(("text", "kind", "name"), [("User:alice", "User", "alice"), ("User:CN=a:b", "User", "CN=a:b")])
def test_text(text: str, kind: str, name: str) -> None:
    assert parse_principal(text) == Principal(kind, name)
    assert str(parse_principal(text)) == text


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice"])
def test_what_is_no_principal(text: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_principal(text)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("session", [ANONYMOUS_SESSION, Session(Principal("User", "ä" * 200), is_token=True)])
def test_an_envelope_carries_a_session(session: Session) -> None:
    assert decode_session(encode_session(session)) == session


def test_what_kafka_writes() -> None:
    assert encode_session(ANONYMOUS_SESSION) == b"\x00\x00\x05User\x0aANONYMOUS\x00\x00"


@pytest.mark.parametrize(
    "content", [None, b"", b"\0\1\5User\2a\0\0", b"\0\0\5User", b"\0\0\5User\2a", b"\0\0\0\2a\0\0"]
)
def test_what_is_no_session(content: bytes | None) -> None:
    with pytest.raises(RequestError) as refused:
        decode_session(content)
    assert refused.value.code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
