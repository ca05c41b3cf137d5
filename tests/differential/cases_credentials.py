"""SaslHandshake and SaslAuthenticate on a listener without SASL, and the credentials of users."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tests.differential.case import Case, case, each
from tests.differential.talk import Talk

HANDSHAKE, AUTHENTICATE, DESCRIBE, ALTER = 17, 36, 50, 51
LAST, LOOKS_MAX = "a=b,c\n", 500
"""The user that is made last, and how often it is looked for."""
SALT, SALTED = b"s" * 16, b"p" * 64


def cases() -> Iterator[Case]:
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "GSSAPI", "", "no such"):
        yield from each(HANDSHAKE, f"{mechanism or 'no'} mechanism", mechanism=mechanism)
    for what, token in {"a login": b"\0alice\0secret", "nothing": b"", "nonsense": b"\xff" * 100}.items():
        yield from each(AUTHENTICATE, what, auth_bytes=token)
    yield from tokens()
    yield from credentials()


def tokens() -> Iterator[Case]:
    """Yield requests about tokens, which a client that is not authenticated may not send."""
    renewer = {"principal_type": "User", "principal_name": "bob"}
    for what, fields in {
        "a token": {"renewers": [], "max_lifetime_ms": -1},
        "with a renewer": {"renewers": [renewer], "max_lifetime_ms": 1000},
        "with an odd renewer": {"renewers": [renewer | {"principal_type": "Group"}], "max_lifetime_ms": 0},
    }.items():
        yield from each(38, what, **fields)
    yield from each(38, "for another", owner_principal_type="User", owner_principal_name="bob", renewers=[])
    for what, period in {"now": -1, "soon": 1000, "zero": 0}.items():
        yield from each(39, what, hmac=b"x", renew_period_ms=period)
        yield from each(40, what, hmac=b"x", expiry_time_period_ms=period)
    alice = {"principal_type": "User", "principal_name": "alice"}
    for what, owners in {"all": None, "none": [], "of a user": [alice]}.items():
        yield from each(41, what, owners=owners)


def upsert(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": SALTED,
    }


def delete(name: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def credentials() -> Iterator[Case]:
    changes: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
        "nothing": ([], []),
        "a new user": ([], [upsert("alice")]),
        "the same again": ([], [upsert("alice")]),
        "another mechanism": ([], [upsert("alice", 2, 8192)]),
        "the most iterations": ([], [upsert("bob", 2, 16_384)]),
        "no name": ([], [upsert("")]),
        "deletes no name": ([delete("")], []),
        "too few iterations": ([], [upsert("carol", 1, 4095)]),
        "too many iterations": ([], [upsert("carol", 1, 16_385)]),
        "no iterations": ([], [upsert("carol", 1, 0)]),
        "mechanism 0": ([], [upsert("carol", 0)]),
        "mechanism 3": ([], [upsert("carol", 3)]),
        "mechanism -1": ([], [upsert("carol", -1)]),
        "deletes mechanism 0": ([delete("alice", 0)], []),
        "deletes mechanism 3": ([delete("alice", 3)], []),
        "one user twice": ([], [upsert("carol"), upsert("carol")]),
        "both mechanisms of one user": ([], [upsert("carol", 1), upsert("carol", 2)]),
        "one user three times": ([], [upsert("carol"), upsert("carol"), upsert("carol")]),
        "deletes and makes": ([delete("alice")], [upsert("alice")]),
        "deletes twice": ([delete("alice"), delete("alice")], []),
        "a bad one, then a good one of the same user": ([], [upsert("carol", 3), upsert("carol", 1)]),
        "a good and a bad one": ([], [upsert("dave"), upsert("carol", 3)]),
        "deletes what is not there": ([delete("nobody")], []),
        "deletes another mechanism": ([delete("bob", 1)], []),
        "an empty salt and password": ([], [upsert("erin") | {"salt": b"", "salted_password": b"x"}]),
        "an odd name": ([], [upsert(LAST)]),
    }
    for what, (deletions, upsertions) in changes.items():
        yield case(ALTER, 0, what, partial(alter, deletions=deletions, upsertions=upsertions))
    questions: dict[str, list[dict[str, str]] | None] = {
        "all": None,
        "none": [],
        "a user": [{"name": "alice"}],
        "an unknown user": [{"name": "nobody"}],
        "no name": [{"name": ""}],
        "twice": [{"name": "alice"}, {"name": "alice"}],
        "an unknown one twice": [{"name": "nobody"}] * 3,
        "several": [{"name": "alice"}, {"name": "bob"}, {"name": "nobody"}],
    }
    for what, users in questions.items():
        yield case(DESCRIBE, 0, what, partial(describe, users=users))
    removed = [delete("alice", 1), delete("bob", 2)]
    yield case(ALTER, 0, "deletes", partial(alter, deletions=removed, upsertions=[]))


def alter(talk: Talk, deletions: list[dict[str, Any]], upsertions: list[dict[str, Any]]) -> None:
    answer = talk.look(ALTER, 0, deletions=deletions, upsertions=upsertions)
    answer.results.sort(key=lambda each: each.user)
    talk.note(talk.words.plain(answer))


def describe(talk: Talk, users: list[dict[str, str]] | None) -> None:
    # A broker of Kafka may answer before it has the records that its controller has committed.
    for _ in range(LOOKS_MAX):
        if any(each.user == LAST for each in talk.look(DESCRIBE, 0, users=None).results):
            break
    answer = talk.look(DESCRIBE, 0, users=users)
    answer.results.sort(key=lambda each: each.user)
    for result in answer.results:
        result.credential_infos.sort(key=lambda each: each.mechanism)
    talk.note(talk.words.plain(answer))
