"""Which quota holds for a client, against the order that Kafka documents."""

from __future__ import annotations

import itertools
import random

from strandline.codec.messages.client_quota_record import ClientQuotaRecord, EntityData
from strandline.config.quota_keys import (
    CLIENT_KEYS,
    CONNECTION_CREATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from strandline.security.quotas.limits import QuotaLimits


def record(value: float, key: str = PRODUCER_BYTE_RATE, **entity: str | None) -> ClientQuotaRecord:
    parts = [EntityData(entity_type=kind.replace("_", "-"), entity_name=name) for kind, name in entity.items()]
    return ClientQuotaRecord(entity=parts, key=key, value=value)


# Kafka's order, the most specific first; "shared" says which of user and client id the bucket is for.
ORDER = [
    ({"user": "alice", "client_id": "app"}, ("alice", "app")),
    ({"user": "alice", "client_id": None}, ("alice", "app")),
    ({"user": "alice"}, ("alice", None)),
    ({"user": None, "client_id": "app"}, ("alice", "app")),
    ({"user": None, "client_id": None}, ("alice", "app")),
    ({"user": None}, ("alice", None)),
    ({"client_id": "app"}, (None, "app")),
    ({"client_id": None}, (None, "app")),
]


def test_first_entity_that_has_a_value_wins() -> None:
    strangers = [record(99.0, user="bob"), record(98.0, client_id="other"), record(97.0, user="bob", client_id="app")]
    for present in itertools.product([False, True], repeat=len(ORDER)):
        chosen = [(place, entity) for place, (entity, _) in enumerate(ORDER) if present[place]]
        records = strangers + [record(float(place + 1), **entity) for place, entity in chosen]
        random.Random(1).shuffle(records)
        match = QuotaLimits(records).of_client(PRODUCER_BYTE_RATE, "alice", "app")
        if not chosen:
            assert match is None
        else:
            first = chosen[0][0]
            assert match is not None
            assert (match.limit, match.bucket) == (first + 1, ORDER[first][1])


def test_each_key_has_an_order_of_its_own() -> None:
    limits = QuotaLimits([record(5.0, REQUEST_PERCENTAGE, user="alice", client_id="app"), record(7.0, user=None)])
    of_bytes = limits.of_client(PRODUCER_BYTE_RATE, "alice", "app")
    of_requests = limits.of_client(REQUEST_PERCENTAGE, "alice", "app")
    assert of_bytes is not None
    assert of_requests is not None
    assert (of_bytes.bucket, of_requests.bucket) == (("alice", None), ("alice", "app"))


def test_user_quota_is_shared_by_its_clients_and_by_no_other_user() -> None:
    limits = QuotaLimits([record(5.0, user=None)])
    buckets = [
        match.bucket
        for user, client in [("alice", "a"), ("alice", "b"), ("bob", "a")]
        if (match := limits.of_client(PRODUCER_BYTE_RATE, user, client)) is not None
    ]
    assert buckets == [("alice", None), ("alice", None), ("bob", None)]


def test_empty_name_is_a_name() -> None:
    limits = QuotaLimits([record(5.0, client_id=None)])
    match = limits.of_client(PRODUCER_BYTE_RATE, "alice", "")
    assert match is not None
    assert match.bucket == (None, "")


def test_addresses_have_quotas_of_their_own() -> None:
    limits = QuotaLimits(
        [record(5.0, CONNECTION_CREATION_RATE, ip="10.0.0.1"), record(9.0, CONNECTION_CREATION_RATE, ip=None)]
    )
    assert (limits.of_ip("10.0.0.1"), limits.of_ip("10.0.0.2")) == (5.0, 9.0)
    assert limits.has_ip_quotas
    assert not limits.has_client_quotas
    assert QuotaLimits().of_ip("10.0.0.1") is None


def test_unknown_keys_and_entities_of_a_newer_version_are_passed_over() -> None:
    limits = QuotaLimits([record(5.0, "bytes_of_the_future", user="alice"), record(5.0, planet="earth")])
    assert all(limits.of_client(key, "alice", "app") is None for key in CLIENT_KEYS)
