"""Commands upon the state: ids, versions, deletes, configs, modes, references, contexts, contracts."""

from __future__ import annotations

import pytest
from tests.unit.schemas.desk import Desk, compacted, facts, folded, rejected

from strandline.schemas import commands, records
from strandline.schemas.records import SchemaRecord


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_the_same_schema_has_one_id_and_a_version_in_each_subject(desk: Desk) -> None:
    first = desk.register("a", "x y")
    assert desk.register("a", " x   y ") == first
    other = desk.register("b", "x y")
    assert (other.id, other.version) == (first.id, 1)
    second = desk.register("a", "x y z?")
    assert (second.id, second.version) == (2, 2)
    assert desk.register("a", "x y") == first


def test_the_same_text_of_another_type_is_another_schema(desk: Desk) -> None:
    avro = desk.register("a", "x")
    js = desk.register("b", "x", schemaType="JSON")
    assert avro.id != js.id
    assert avro.guid != js.guid
    assert desk.register("c", "x", schemaType="JSON").guid == js.guid
    assert facts(folded(desk.log)) == facts(desk.state)


def test_so_is_one_with_other_references_metadata_or_rules(desk: Desk) -> None:
    desk.register("r", "x")
    desk.config(None, compatibility="NONE")
    rules = {"domainRules": [{"name": "n", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}]}
    bodies = [
        {},
        {"references": [{"name": "r", "subject": "r", "version": 1}]},
        {"metadata": {"properties": {"owner": "ada"}}},
        {"ruleSet": rules},
    ]
    ids = [desk.register(f"s{number}", "y", **body).id for number, body in enumerate(bodies)]
    assert len(set(ids)) == 4


def test_an_incompatible_schema_is_rejected_with_the_reason(desk: Desk) -> None:
    desk.register("a", "x")
    with rejected(409) as caught:
        desk.register("a", "x y")
    assert "FIELD_MISSING" in caught.value.message
    assert "the field y is missing" in caught.value.message
    assert "oldSchemaVersion: 1" in caught.value.message
    assert desk.check("a", "x y")
    assert not desk.check("a", "x y?")
    assert desk.register("a", "x y", force=True).version == 2


@pytest.mark.parametrize(
    ("level", "verdicts"),
    [
        # Against versions "a" and then "a b?": is each of these accepted?
        ("NONE", {"a c": True, "c?": True, "b": True}),
        ("BACKWARD", {"a c": False, "c?": True, "b": True}),
        ("BACKWARD_TRANSITIVE", {"a c": False, "c?": True, "b": False}),
        ("FORWARD", {"a c": True, "c?": False, "b": False}),
        ("FORWARD_TRANSITIVE", {"a c": True, "c?": False, "b": False}),
        ("FULL", {"a c": False, "c?": False, "a d?": True}),
        ("FULL_TRANSITIVE", {"a c": False, "c?": False, "a d?": True}),
    ],
)
def test_the_seven_levels(desk: Desk, level: str, verdicts: dict[str, bool]) -> None:
    desk.register("s", "a")
    desk.register("s", "a b?")
    desk.config("s", compatibility=level.lower())
    assert {text: not desk.check("s", text) for text in verdicts} == verdicts


def test_another_type_is_incompatible_unless_the_level_is_none(desk: Desk) -> None:
    desk.register("a", "x")
    with rejected(409):
        desk.register("a", "x", schemaType="JSON")
    desk.config("a", compatibility="NONE")
    assert desk.register("a", "x", schemaType="JSON").version == 2


def test_a_compatibility_group_splits_a_subject(desk: Desk) -> None:
    desk.config("a", compatibilityGroup="major")
    desk.register("a", "x", metadata={"properties": {"major": "1"}})
    desk.register("a", "y", metadata={"properties": {"major": "2"}})
    with rejected(409):
        desk.register("a", "x z", metadata={"properties": {"major": "1"}})


def test_normalised_schemas_are_the_same(desk: Desk) -> None:
    first = desk.register("a", "y x", normalize=True)
    assert first.content.text == "x y"
    desk.config("b", normalize=True)
    assert desk.register("b", "y x").id == first.id


def test_a_deleted_version_is_skipped_and_its_number_is_not_used_again(desk: Desk) -> None:
    desk.register("a", "x")
    desk.register("a", "x y?")
    assert desk.delete_version("a", 2) == 2
    assert [each.version for each in desk.state.versions("a")] == [1]
    assert desk.state.content_of_id(".", 2) is not None, "clients that have the id can still ask for it"
    again = desk.register("a", "x z?")
    assert (again.version, again.id) == (3, 3)
    with rejected(40403):
        desk.look_up("a", "x y?")
    assert desk.look_up("a", "x y?", deleted=True).version == 2


def test_a_schema_that_comes_back_keeps_its_id(desk: Desk) -> None:
    first = desk.register("a", "x")
    assert desk.delete_subject("a") == [1]
    again = desk.register("a", "x")
    assert (again.version, again.id) == (2, first.id)
    assert [each.version for each in desk.state.versions("a", deleted=True)] == [2]


def test_a_hard_delete_needs_a_soft_one_first(desk: Desk) -> None:
    desk.register("a", "x")
    desk.register("a", "x y?")
    with rejected(40405):
        desk.delete_subject("a", permanent=True)
    with rejected(40407):
        desk.delete_version("a", 1, permanent=True)
    desk.delete_version("a", 1)
    with rejected(40406):
        desk.delete_version("a", 1)
    assert desk.delete_version("a", 1, permanent=True) == 1
    with rejected(40402):
        desk.delete_version("a", 1, permanent=True)
    desk.delete_subject("a")
    with rejected(40404):
        desk.delete_subject("a")
    assert desk.delete_subject("a", permanent=True) == [2]
    with rejected(40401):
        desk.delete_subject("a", permanent=True)
    with rejected(40401):
        desk.delete_version("a", 1)


def test_an_id_is_not_used_again_after_a_hard_delete_and_compaction(desk: Desk) -> None:
    desk.register("a", "x")
    desk.delete_subject("a")
    desk.delete_subject("a", permanent=True)
    assert desk.state.content_of_id(".", 1) is None
    desk.state = folded(compacted(desk.log))
    assert desk.register("b", "y").id == 2


def test_what_is_referred_to_stays(desk: Desk) -> None:
    desk.register("base", "x")
    user = desk.register("user", "@n", references=[{"name": "n", "subject": "base", "version": 1}])
    assert desk.state.referring_to("base", 1) == {("user", 1): user.id}
    for delete in (lambda: desk.delete_version("base", 1), lambda: desk.delete_subject("base")):
        with rejected(42206):
            delete()
    desk.delete_subject("user")
    desk.delete_subject("base")
    with rejected(42206):
        desk.delete_subject("base", permanent=True)
    desk.delete_subject("user", permanent=True)
    assert desk.delete_subject("base", permanent=True) == [1]


@pytest.mark.parametrize(
    "reference",
    [{"name": "n", "subject": "none", "version": 1}, {"name": "n", "subject": "base", "version": 9}],
)
def test_a_reference_to_nothing_is_rejected(desk: Desk, reference: dict[str, object]) -> None:
    desk.register("base", "x")
    with rejected(42201):
        desk.register("user", "@n", references=[reference])


@pytest.mark.parametrize("references", ["x", [1], [{"name": "n"}], [{"name": "n", "subject": "s", "version": "1"}]])
def test_references_that_are_none_are_rejected(desk: Desk, references: object) -> None:
    with rejected(42201):
        desk.register("user", "x", references=references)


def test_a_circle_of_references_is_rejected(desk: Desk) -> None:
    """A foreign topic may hold one."""
    for one, other in (("a", "b"), ("b", "a")):
        reference = f'{{"name":"{other}","subject":"{other}","version":1}}'
        key = f'{{"keytype":"SCHEMA","subject":"{one}","version":1,"magic":1}}'
        value = f'{{"id":{ord(one)},"schema":"@{other}","references":[{reference}]}}'
        desk.state.apply(SchemaRecord(key.encode(), value.encode()))
    with rejected(42201) as caught:
        desk.register("c", "@a", references=[{"name": "a", "subject": "a", "version": 1}])
    assert "leads back" in caught.value.message


def test_references_are_bounded(desk: Desk) -> None:
    below: list[dict[str, object]] = []
    with rejected(42201) as caught:
        for number in range(100):
            desk.register(f"s{number}", "x", references=below)
            below = [{"name": f"n{number}", "subject": f"s{number}", "version": 1}]
    assert "nested deeper" in caught.value.message


def test_contexts_have_ids_of_their_own(desk: Desk) -> None:
    desk.register("a", "x")
    inside = desk.register(":.ctx:a", "y")
    assert (inside.id, inside.version) == (1, 1)
    assert desk.log[1].key == b'{"keytype":"CONTEXT","tenant":"default","context":".ctx"}'
    assert desk.state.content_of_id(".ctx", 1) != desk.state.content_of_id(".", 1)
    user = desk.register(":.ctx:b", "@n", references=[{"name": "n", "subject": "a", "version": 1}])
    assert desk.state.referring_to(":.ctx:a", 1) == {(":.ctx:b", 1): user.id}
    assert not desk.state.referring_to("a", 1)


@pytest.mark.parametrize("subject", ["", "a\nb", "__GLOBAL", "__EMPTY", ":.ctx:", ":.__GLOBAL:a", "a\x7f", "x" * 1001])
def test_illegal_subjects_are_rejected(desk: Desk, subject: str) -> None:
    with rejected(42208):
        desk.register(subject, "x")


@pytest.mark.parametrize("text", ["", "   ", "!"])
def test_a_text_that_is_no_schema_is_rejected(desk: Desk, text: str) -> None:
    with rejected(42201):
        desk.register("a", text)


def test_a_type_that_is_none_is_rejected(desk: Desk) -> None:
    with rejected(42201):
        desk.register("a", "x", schemaType="XML")


def test_a_text_that_is_too_large_is_rejected(desk: Desk) -> None:
    with rejected(42209):
        desk.register("a", "x" * 10_000_000)


def test_configs_have_scopes(desk: Desk) -> None:
    def level(subject: str | None) -> object:
        return desk.state.config_in_scope(subject)["compatibilityLevel"]

    assert level(None) == level("a") == level(":.ctx:a") == "BACKWARD"
    assert desk.config(None, compatibility="full") == {"compatibility": "FULL"}
    assert (level("a"), level(":.ctx:a")) == ("FULL", "BACKWARD")
    desk.config(":.ctx:", compatibility="NONE")
    desk.config("a", compatibility="FORWARD")
    assert (level("a"), level("b"), level(":.ctx:a")) == ("FORWARD", "FULL", "NONE")
    with rejected(40408):
        commands.read_config(desk.state, "b", default_to_global=False)
    assert commands.read_config(desk.state, "b", default_to_global=True) == {"compatibilityLevel": "FULL"}
    assert desk.write(commands.remove_config(desk.state, "a")) == {"compatibilityLevel": "FORWARD"}
    assert level("a") == "FULL"
    with rejected(40401):
        commands.remove_config(desk.state, "a")
    with rejected(42203):
        desk.config("a", compatibility="SIDEWAYS")


def test_a_change_of_one_field_keeps_the_others(desk: Desk) -> None:
    desk.config("a", compatibility="FULL", normalize=True)
    assert desk.config("a", alias="b") == {"alias": "b", "normalize": True, "compatibility": "FULL"}
    assert desk.config("a", alias=None) == {"normalize": True, "compatibility": "FULL"}


def test_modes_restrict_writes(desk: Desk) -> None:
    desk.register("a", "x")
    desk.mode("a", "readonly")
    for write in (
        lambda: desk.register("a", "x y?"),
        lambda: desk.delete_version("a", 1),
        lambda: desk.delete_subject("a"),
        lambda: desk.config("a", compatibility="NONE"),
    ):
        with rejected(42205):
            write()
    assert desk.register("a", "x").version == 1, "nothing is written for a schema that is there"
    with rejected(42204):
        desk.mode("a", "WRITEONLY")
    with rejected(42205):
        desk.register("b", "x", id=7)
    with rejected(42205):
        desk.mode("a", "IMPORT")
    with rejected(40409):
        commands.read_mode(desk.state, "b", default_to_global=False)
    assert commands.read_mode(desk.state, "b", default_to_global=True) == {"mode": "READWRITE"}
    assert desk.write(commands.remove_mode(desk.state, "a")) == {"mode": "READONLY"}


def test_an_import_keeps_ids_and_versions(desk: Desk) -> None:
    desk.register("other", "x")
    desk.mode("a", "IMPORT")
    imported = desk.register("a", "q", id=40, version=3)
    assert (imported.id, imported.version) == (40, 3)
    assert desk.register("a", "q", id=40, version=3) == imported
    with rejected(42205):
        desk.register("a", "r", id=40, version=4)
    with rejected(42205):
        desk.register("a", "r")
    assert desk.register("b", "r").id == 41


def test_an_import_over_a_version_keeps_its_id_given_out(desk: Desk) -> None:
    desk.mode("a", "IMPORT")
    desk.register("a", "q", id=40, version=1)
    desk.register("a", "r", id=3, version=1)
    desk.state = folded(compacted(desk.log))
    assert desk.register("b", "s").id == 41


def test_data_contracts_are_merged(desk: Desk) -> None:
    desk.config(
        "a",
        defaultMetadata={"properties": {"team": "sea", "owner": "none"}},
        overrideMetadata={"properties": {"region": "eu"}},
        defaultRuleSet={"domainRules": [{"name": "d", "type": "CEL", "mode": "WRITE"}]},
    )
    found = desk.register("a", "x", metadata={"properties": {"owner": "ada"}, "tags": {"x": ["PII", "A"]}})
    assert records.json_of(found.content.metadata) == {
        "tags": {"x": ["A", "PII"]},
        "properties": {"owner": "ada", "region": "eu", "team": "sea"},
    }
    assert records.json_of(found.content.rule_set) == {"domainRules": [{"name": "d", "mode": "WRITE", "type": "CEL"}]}
    second = desk.register("a", "x y?")
    assert second.content.metadata == found.content.metadata, "taken over from the last version"
    assert desk.look_up("a", "x y?") == second
    with rejected(42210):
        desk.register("a", "x", ruleSet={"domainRules": [{"name": "d", "type": "CEL", "mode": "UPGRADE"}]})


def test_keys_in_another_form_are_removed_with_theirs(desk: Desk) -> None:
    """Compaction would keep what another registry wrote in another order, and bring a deleted schema back."""
    foreign = b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}'
    desk.log.append(SchemaRecord(foreign, b'{"subject":"a","version":1,"id":1,"schema":"x","deleted":false}'))
    desk.state.apply(desk.log[0])
    desk.delete_version("a", 1)
    desk.delete_version("a", 1, permanent=True)
    assert folded(compacted(desk.log)).subjects == {}
    assert desk.state.other_keys == {}
