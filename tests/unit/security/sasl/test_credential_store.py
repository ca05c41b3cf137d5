"""Credentials of the image: found by name, renewed with the image; passwords of PLAIN."""

from __future__ import annotations

from strandline.codec.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from strandline.codec.messages.user_scram_credential_record import UserScramCredentialRecord
from strandline.quorum.image.kept_records import KeptRecords
from strandline.security.sasl.credential_store import CredentialStore, JaasUsers, ScramUsers
from strandline.security.sasl.scram import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramMechanism,
    credential_of,
    salted_password,
    user_session,
)

SALT = b"s" * 20


def record(name: str, password: str = "secret", mechanism: ScramMechanism = SCRAM_SHA_512) -> UserScramCredentialRecord:
    made = credential_of(mechanism, salted_password(mechanism, password, SALT, 5000), SALT, 5000)
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )


def test_the_store_follows_the_image() -> None:
    kept = KeptRecords()
    store = CredentialStore(lambda: kept, b"secret", {})
    assert store.scram(SCRAM_SHA_512, "alice") is None
    kept.apply(record("alice"))
    found = store.scram(SCRAM_SHA_512, "alice")
    assert found is not None
    assert (found.session, found.credential.iterations) == (user_session("alice"), 5000)
    assert store.scram(SCRAM_SHA_256, "alice") is None
    kept.apply(RemoveUserScramCredentialRecord(name="alice", mechanism=2))
    assert store.scram(SCRAM_SHA_512, "alice") is None


def test_another_image_of_the_same_version_is_read() -> None:
    first, second = KeptRecords(), KeptRecords()
    first.apply(record("alice"))
    second.apply(record("bob"))
    images = iter((first, second, second))
    store = CredentialStore(lambda: next(images), b"secret", {})
    assert store.scram(SCRAM_SHA_512, "alice") is not None
    assert store.scram(SCRAM_SHA_512, "alice") is None
    assert store.scram(SCRAM_SHA_512, "bob") is not None


def test_the_own_user_until_the_image_has_it() -> None:
    kept = KeptRecords()
    own = credential_of(SCRAM_SHA_512, b"own", b"salt", 4096)
    store = CredentialStore(lambda: kept, b"secret", {(2, "node"): own})
    found = store.scram(SCRAM_SHA_512, "node")
    assert found is not None
    assert found.credential is own
    kept.apply(record("node"))
    found = store.scram(SCRAM_SHA_512, "node")
    assert found is not None
    assert found.credential.salt == SALT


def test_fakes_look_like_most() -> None:
    kept = KeptRecords()
    kept.apply(record("alice"))
    store = CredentialStore(lambda: kept, b"secret", {})
    store.scram(SCRAM_SHA_512, "mallory")
    fake = store.fake(SCRAM_SHA_512, "mallory")
    assert (len(fake.salt), fake.iterations) == (len(SALT), 5000)
    assert fake == store.fake(SCRAM_SHA_512, "mallory")


def test_users_of_jaas() -> None:
    users = JaasUsers({"alice": "secret", "empty": ""})
    assert users.check("alice", "secret")
    assert not users.check("alice", "wrong")
    assert not users.check("mallory", "secret")
    assert not users.check("mallory", "")


def test_users_of_scram() -> None:
    kept = KeptRecords()
    kept.apply(record("alice"))
    kept.apply(record("bob", mechanism=SCRAM_SHA_256))
    users = ScramUsers(CredentialStore(lambda: kept, b"secret", {}))
    for name, password, is_right in (
        ("alice", "secret", True),
        ("alice", "wrong", False),
        ("bob", "secret", True),
        ("mallory", "secret", False),
    ):
        check = users.check(name, password)
        assert check.then(check.work()) is is_right, name
