"""Whatever is asked of a registry: its state is the fold of what it wrote, compacted or not, and ids are unique."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.schemas.desk import Desk, compacted, facts, folded

from strandline.schemas import commands
from strandline.schemas.failures import RegistryError
from strandline.schemas.records import SchemaContent

SUBJECTS = st.sampled_from(["a", "b", ":.c:a"])
TEXTS = st.sampled_from(["x", "x y?", "y", "x y", "z?", "!"])
VERSIONS = st.integers(-1, 4)
REFERENCES = st.lists(
    st.fixed_dictionaries({"name": st.just("n"), "subject": st.sampled_from(["a", "b"]), "version": st.integers(1, 2)}),
    max_size=1,
)
METADATA = st.none() | st.just({"properties": {"owner": "ada"}})

REGISTRATIONS = st.tuples(st.just("register"), SUBJECTS, TEXTS, st.just({}))
COMMANDS = st.one_of(
    # Most of what happens: without it, hardly any other command finds something to work on.
    REGISTRATIONS,
    REGISTRATIONS,
    st.tuples(st.just("purge"), SUBJECTS),
    st.tuples(
        st.just("register"),
        SUBJECTS,
        TEXTS,
        st.fixed_dictionaries(
            {"schemaType": st.sampled_from(["AVRO", "JSON"]), "references": REFERENCES, "metadata": METADATA}
        ),
    ),
    st.tuples(st.just("import"), SUBJECTS, TEXTS, st.integers(0, 9), st.integers(1, 4)),
    st.tuples(st.just("delete_version"), SUBJECTS, VERSIONS, st.booleans()),
    st.tuples(st.just("delete_subject"), SUBJECTS, st.booleans()),
    st.tuples(st.just("config"), SUBJECTS, st.sampled_from(["NONE", "FULL", None])),
    st.tuples(st.just("mode"), SUBJECTS, st.sampled_from(["READWRITE", "READONLY", "IMPORT", None]), st.booleans()),
    st.tuples(st.just("context"), st.sampled_from([".c", "."])),
)


def perform(desk: Desk, command: tuple[Any, ...]) -> None:
    match command:
        case ("register", subject, text, body):
            desk.register(subject, text, **body)
        case ("import", subject, text, schema_id, version):
            desk.register(subject, text, id=schema_id, version=version)
        case ("delete_version", subject, version, permanent):
            desk.delete_version(subject, version, permanent=permanent)
        case ("delete_subject", subject, permanent):
            desk.delete_subject(subject, permanent=permanent)
        case ("purge", subject):
            desk.delete_subject(subject)
            desk.delete_subject(subject, permanent=True)
        case ("config", subject, None):
            desk.write(commands.remove_config(desk.state, subject))
        case ("config", subject, level):
            desk.config(subject, compatibility=level)
        case ("mode", subject, None, _):
            desk.write(commands.remove_mode(desk.state, subject))
        case ("mode", subject, mode, force):
            desk.mode(subject, mode, force=force)
        case ("context", context):
            desk.write(commands.delete_context(desk.state, context))


@pytest.mark.lengthy("many examples, each of them costly")
@settings(max_examples=60, deadline=None)
@given(st.lists(COMMANDS, min_size=15, max_size=40))
def test_the_state_is_the_fold_of_the_log(script: list[tuple[Any, ...]]) -> None:
    desk = Desk()
    meant: dict[tuple[str, int], SchemaContent] = {}
    for command in script:
        length = len(desk.log)
        with suppress(RegistryError):
            perform(desk, command)
        if len(desk.log) > length:
            assert facts(folded(compacted(desk.log))) == facts(desk.state)
        check_ids(desk, meant, is_import=command[0] == "import")
    assert facts(folded(desk.log)) == facts(desk.state)


def check_ids(desk: Desk, meant: dict[tuple[str, int], SchemaContent], *, is_import: bool) -> None:
    """An id that the registry chose means one schema for ever; an import may name an id that was given up."""
    for name, context in desk.state.contexts.items():
        for schema_id, places in context.places.items():
            assert len(set(places.values())) == 1, f"id {schema_id} of {name} means two schemas"
            (content,) = set(places.values())
            if is_import:
                meant[name, schema_id] = content
            assert meant.setdefault((name, schema_id), content) == content, f"id {schema_id} of {name} was reused"
            assert schema_id <= context.id_max
    for subject, versions in desk.state.subjects.items():
        for version, schema in versions.items():
            assert (schema.subject, schema.version) == (subject, version)
    for guid, holders in desk.state.guids.items():
        assert len(set(holders.values())) == 1, f"{guid} means two schemas"
