"""What a broker knows of ids is what the registry knows, whatever was registered and deleted, compacted or not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.schemas.desk import Desk, compacted
from tests.unit.schemas.test_state_properties import COMMANDS, perform

from strandline.schemas.failures import RegistryError
from strandline.schemas.records import SchemaRecord
from strandline.schemas.registered_ids import RegisteredIds
from strandline.schemas.state import RegistryState
from strandline.schemas.subjects import DEFAULT_CONTEXT

SUBJECTS = ("a", "b", ":.c:a")


def folded(log: list[SchemaRecord], *, keeps_texts: bool) -> RegisteredIds:
    ids = RegisteredIds(keeps_texts=keeps_texts)
    for record in log:
        ids.apply(record)
    return ids


def facts(ids: RegisteredIds, state: RegistryState) -> dict[str, Any]:
    """What is known of all ids that there could be."""
    numbers = range(state.contexts[DEFAULT_CONTEXT].id_max + 2)
    return {
        "known": [number for number in numbers if ids.has_id(number)],
        "versions": {
            (subject, number): sorted(each.is_deleted for each in ids.versions_with(subject, number))
            for subject in SUBJECTS
            for number in numbers
        },
        "contents": [place[1] for number in numbers if (place := ids.place_of(number)) is not None],
    }


def expected(state: RegistryState, *, keeps_texts: bool) -> dict[str, Any]:
    context = state.contexts[DEFAULT_CONTEXT]
    numbers = range(context.id_max + 2)
    return {
        "known": [number for number in numbers if number in context.places],
        "versions": {
            (subject, number): sorted(
                each.deleted for each in state.versions(subject, deleted=True) if each.id == number
            )
            for subject in SUBJECTS
            for number in numbers
        },
        "contents": [next(iter(context.places[number].values())) for number in sorted(context.places)]
        if keeps_texts
        else [],
    }


@pytest.mark.lengthy("many examples, each of them costly")
@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, min_size=15, max_size=40), st.booleans())
def test_it_says_what_the_registry_says(script: list[tuple[Any, ...]], keeps_texts: bool) -> None:
    desk = Desk()
    for command in script:
        with suppress(RegistryError):
            perform(desk, command)
    for log in (desk.log, compacted(desk.log)):
        found = folded(log, keeps_texts=keeps_texts)
        assert facts(found, desk.state) == expected(desk.state, keeps_texts=keeps_texts)
        for subject in SUBJECTS:
            # Brokers look at ids only, and keep no GUIDs.
            versions = [replace(each, guid_stored=None) for each in desk.state.versions(subject)]
            assert found.versions(subject) == (versions if keeps_texts else [])


def test_an_alias_has_the_ids_of_its_subject() -> None:
    desk = Desk()
    schema = desk.register("a", "x")
    desk.config("b", alias="a")
    ids = folded(desk.log, keeps_texts=False)
    assert [each.id for each in ids.versions_with("b", schema.id)] == [schema.id]
    desk.config("b", alias="elsewhere")
    assert folded(desk.log, keeps_texts=False).versions_with("b", schema.id) == []


def test_garbage_changes_nothing() -> None:
    ids = RegisteredIds(keeps_texts=True)
    for key in (b"", b"\xff", b"{}", b"[]", b'{"keytype":"SCHEMA","subject":1,"version":1}', b'{"keytype":"NOOP"}'):
        ids.apply(SchemaRecord(key, b"{"))
    assert ids.changes == 0
    ids.apply(SchemaRecord(b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":-1,"schema":"x"}'))
    assert not ids.has_id(-1)
