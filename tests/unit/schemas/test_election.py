"""The primary that a group of registries elects, in the JSON that other makers' registries write."""

from __future__ import annotations

import json

from strandline.schemas.election import RegistryAddress, assignment_of, choose, member_metadata, primary_of

LOW, HIGH = RegistryAddress("10.0.0.1", 8081), RegistryAddress("10.0.0.2", 8081)


def test_the_lowest_eligible_address_is_the_primary() -> None:
    members = [("m2", member_metadata(HIGH)), ("m1", member_metadata(LOW))]
    assert choose(members) == ("m1", LOW)
    idle = json.dumps({"host": "10.0.0.0", "port": 1, "scheme": "http", "master_eligibility": False}).encode()
    assert choose([("m0", idle), *members]) == ("m1", LOW)


def test_members_that_can_not_be_read_are_passed_over() -> None:
    assert choose([("m0", b"\xff"), ("m1", b"[]"), ("m2", b'{"host":1}')]) is None
    assert choose([("m0", b"{}"), ("m1", member_metadata(HIGH))]) == ("m1", HIGH)


def test_an_assignment_names_the_primary() -> None:
    assert primary_of(assignment_of(("m1", LOW))) == LOW
    assert primary_of(assignment_of(None)) is None
    assert primary_of(b"") is None
    karapace = {
        "master": "m-1",
        "master_identity": {"host": "10.0.0.1", "port": 8081, "scheme": "http", "master_eligibility": True},
        "error": 0,
    }
    assert primary_of(json.dumps(karapace).encode()) == LOW
