"""Records of `_schemas`: the bytes that Confluent's registry writes, and all that others wrote there."""

from __future__ import annotations

import json
from hashlib import md5
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.schemas import records
from strandline.schemas.contracts import text_of
from strandline.schemas.records import SchemaContent, SchemaKey, SchemaRecord, SchemaVersion
from strandline.schemas.state import RegistryState
from strandline.schemas.types import Reference


def test_keys_are_confluents_bytes() -> None:
    written = [
        records.encode_key(SchemaKey("o-value", 1)),
        records.config_record(None, {"compatibilityLevel": "FULL"}).key,
        records.mode_record("o-value", "READONLY").key,
        records.delete_subject_record("o-value", 3).key,
        records.context_record(".ctx").key,
        records.noop_record().key,
    ]
    assert written == [
        b'{"keytype":"SCHEMA","subject":"o-value","version":1,"magic":1}',
        b'{"keytype":"CONFIG","subject":null,"magic":0}',
        b'{"keytype":"MODE","subject":"o-value","magic":0}',
        b'{"keytype":"DELETE_SUBJECT","subject":"o-value","magic":0}',
        b'{"keytype":"CONTEXT","tenant":"default","context":".ctx"}',
        b'{"keytype":"NOOP","magic":0}',
    ]


def test_values_have_confluents_fields_in_order() -> None:
    content = SchemaContent("AVRO", '"string"')
    plain = records.schema_record(SchemaVersion("o-value", 1, 7, content)).value
    assert plain == b'{"subject":"o-value","version":1,"id":7,"schema":"\\"string\\"","deleted":false}'
    full = SchemaContent("JSON", "{}", (Reference("r", "other", 2),), '{"properties":{"a":"b"}}', "{}")
    value = json.loads(records.schema_record(SchemaVersion("s", 2, 8, full, deleted=True)).value or b"")
    names = ["subject", "version", "id", "schemaType", "references", "metadata", "ruleSet", "schema", "deleted"]
    assert list(value) == names
    assert records.delete_subject_record("s", 3).value == b'{"subject":"s","version":3}'
    assert records.mode_record(None, "IMPORT").value == b'{"mode":"IMPORT"}'
    assert records.config_record("s", {"compatibilityLevel": "FULL"}).value == (
        b'{"subject":"s","compatibilityLevel":"FULL"}'
    )


def test_a_guid_is_the_one_that_confluent_computes() -> None:
    """The MD5 of the text, its references, metadata and rules, as a UUID."""
    assert SchemaContent("AVRO", '"string"').guid == str(UUID(bytes=md5(b'"string"').digest()))
    rule = {"name": "n", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "params": {"x": "1"}, "expr": "true"}
    content = SchemaContent(
        "AVRO",
        '"string"',
        (Reference("r", "s", 1),),
        text_of({"tags": {"t": ["PII"]}, "properties": {"a": "b"}}),
        text_of({"domainRules": [{**rule, "disabled": True}]}),
    )
    hashed = b'"string"' + b"rs\0\0\0\1" + b"\1tPIIab" + b"\1nCONDITIONWRITECELx1true\1"
    assert content.guid == str(UUID(bytes=md5(hashed).digest()))


@pytest.mark.parametrize(
    "key",
    [
        b'{"magic":1,"version":1,"subject":"s","keytype":"SCHEMA"}',
        b'{"keytype": "SCHEMA", "subject": "s", "version": 1, "magic": 1, "more": []}',
    ],
)
def test_another_order_is_the_same_key(key: bytes) -> None:
    state = RegistryState()
    state.apply(SchemaRecord(key, b'{"id":4,"schema":"\\"int\\"","unknown":{}}'))
    found = state.version("s", 1)
    assert found is not None
    assert (found.id, found.content.type, found.content.text) == (4, "AVRO", '"int"')


JUNK = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"", b"[]", b"null", b"{", b'{"keytype":"NEW","x":1}', b"[" * 100_000, b"1e999", b"\xff"]),
    st.builds(
        lambda value: json.dumps(value).encode(),
        st.dictionaries(
            st.sampled_from(
                ["keytype", "subject", "version", "id", "schema", "mode", "references", "metadata", "ruleSet"]
            ),
            st.one_of(
                st.none(),
                st.booleans(),
                st.integers(),
                st.text(max_size=5),
                st.sampled_from(["SCHEMA", "CONFIG", "MODE"]),
            ),
        ),
    ),
)


@settings(max_examples=40)
@given(st.lists(st.tuples(JUNK, st.none() | JUNK), max_size=20))
def test_garbage_is_skipped(junk: list[tuple[bytes, bytes | None]]) -> None:
    state = RegistryState()
    good = records.schema_record(SchemaVersion("good", 1, 1, SchemaContent("AVRO", '"int"')))
    state.apply(good)
    for key, value in junk:
        state.apply(SchemaRecord(key, value))
    assert state.version("good", 1) is not None


TEXTS = st.text(max_size=20)
CONTENTS = st.builds(
    SchemaContent,
    st.sampled_from(["AVRO", "JSON", "PROTOBUF"]),
    TEXTS,
    st.lists(st.builds(Reference, TEXTS, TEXTS, st.integers(1, 9)), max_size=3).map(tuple),
    st.none() | st.just('{"properties":{"a":"b"}}'),
    st.none() | st.just('{"domainRules":[{"name":"r","type":"CEL"}]}'),
)


@given(st.builds(SchemaVersion, TEXTS, st.integers(1, 2**31 - 1), st.integers(0, 2**31 - 1), CONTENTS, st.booleans()))
def test_a_version_comes_back_as_it_was_written(version: SchemaVersion) -> None:
    record = records.schema_record(version)
    key = records.decode_key(record.key)
    assert key == SchemaKey(version.subject, version.version)
    assert isinstance(key, SchemaKey)
    assert record.value is not None
    assert records.decode_schema(key, record.value) == version
