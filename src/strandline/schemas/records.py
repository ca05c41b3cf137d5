"""Records of the topic `_schemas`, as Confluent's registry writes them.

Keys and values are compact JSON. Compaction compares keys as bytes, so the order of a key's fields is part of it:

    {"keytype":"SCHEMA","subject":s,"version":n,"magic":1}   {"subject","version","id",...,"schema":text,"deleted":bool}
    {"keytype":"CONFIG","subject":s|null,"magic":0}          {"subject"?,"compatibilityLevel",...}
    {"keytype":"MODE","subject":s|null,"magic":0}            {"subject"?,"mode":"READWRITE"}
    {"keytype":"DELETE_SUBJECT","subject":s,"magic":0}       {"subject":s,"version":n}: versions up to n are deleted
    {"keytype":"CLEAR_SUBJECT","subject":s,"magic":0}        {"subject":s}: deleted versions are gone
    {"keytype":"CONTEXT","tenant":"default","context":c}     {"tenant":"default","context":c,"maxId":n?}
    {"keytype":"NOOP","magic":0}                             null

A value of null removes what its key had. `maxId` is ours and other registries ignore it: the largest id that the
context ever gave out, written when the schema that had it is removed, so that no id is given out twice. So is `guid`,
written for a schema whose text is also registered in another type.

Other registries write other orders and fields, and tools write anything. What can not be read is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import md5
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple

from strandline.schemas.contracts import Json, json_of, metadata_of, rule_set_of, text_of
from strandline.schemas.failures import RegistryError, invalid_schema
from strandline.schemas.types import Reference

SCHEMAS_TOPIC: Final = "_schemas"
"""Where a registry keeps its schemas unless it is told another topic."""

AVRO: Final = "AVRO"
TENANT: Final = "default"
INT_MAX: Final = 2**31 - 1

CONFIG_FIELDS: Final = (
    "alias",
    "normalize",
    "validateFields",
    "validateRules",
    "compatibilityLevel",
    "compatibilityGroup",
    "defaultMetadata",
    "overrideMetadata",
    "defaultRuleSet",
    "overrideRuleSet",
)
MODES: Final = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT", "FORWARD")


@dataclass(frozen=True, slots=True)
class SchemaKey:
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ConfigKey:
    subject: str | None


@dataclass(frozen=True, slots=True)
class ModeKey:
    subject: str | None


@dataclass(frozen=True, slots=True)
class DeleteSubjectKey:
    subject: str


@dataclass(frozen=True, slots=True)
class ClearSubjectKey:
    subject: str


@dataclass(frozen=True, slots=True)
class ContextKey:
    context: str


@dataclass(frozen=True, slots=True)
class NoopKey:
    """The key of a record that a new primary writes to learn where the topic ends."""


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey


class SchemaRecord(NamedTuple):
    """A key and a value as the topic has them."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True)
class SchemaContent:
    """All that makes a schema the same schema: what has one id in a context."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    """JSON, as `contracts` writes it."""
    rule_set: str | None = None

    @cached_property
    def guid(self) -> str:
        """Return the id that is the same in all registries; from the bytes that Confluent hashes."""
        digest = md5(_utf8(self.text), usedforsecurity=False)
        for each in self.references:
            digest.update(_utf8(each.name + each.subject) + each.version.to_bytes(4, "big", signed=True))
        if (metadata := json_of(self.metadata)) is not None:
            digest.update(b"\1")
            _hash_fields(digest, metadata)
        if (rule_set := json_of(self.rule_set)) is not None:
            digest.update(b"\1")
            _hash_fields(digest, rule_set)
        return _uuid(digest.hexdigest())

    @property
    def guid_of_type(self) -> str:
        """Return the id of a schema whose plain guid belongs to the same text of another type."""
        return _uuid(md5(f"{self.type}:{self.guid}".encode(), usedforsecurity=False).hexdigest())


@dataclass(frozen=True)
class SchemaVersion:
    """A version of a subject."""

    subject: str
    version: int
    id: int
    content: SchemaContent
    deleted: bool = False
    guid_stored: str | None = None

    @property
    def guid(self) -> str:
        return self.guid_stored or self.content.guid


def encode_key(key: Key) -> bytes:
    match key:
        case SchemaKey(subject, version):
            # Made for each record that is read, so without the general encoder.
            text = f'{{"keytype":"SCHEMA","subject":{encode_basestring(subject)},"version":{version},"magic":1}}'
            return text.encode("utf-8", "surrogatepass")
        case ContextKey(context):
            return _compact({"keytype": "CONTEXT", "tenant": TENANT, "context": context})
        case NoopKey():
            return _compact({"keytype": "NOOP", "magic": 0})
    return _compact({"keytype": _KEY_TYPES[type(key)], "subject": key.subject, "magic": 0})


def decode_key(data: bytes | None) -> Key | None:
    """Return the key; None for one that is unknown or unreadable."""
    value = _json_object(data)
    subject = value.get("subject")
    match value.get("keytype"):
        case "SCHEMA":
            version = _int_of(value.get("version"))
            return SchemaKey(subject, version) if isinstance(subject, str) and version else None
        case "CONFIG" if subject is None or isinstance(subject, str):
            return ConfigKey(subject)
        case "MODE" if subject is None or isinstance(subject, str):
            return ModeKey(subject)
        case "DELETE_SUBJECT" if isinstance(subject, str):
            return DeleteSubjectKey(subject)
        case "CLEAR_SUBJECT" if isinstance(subject, str):
            return ClearSubjectKey(subject)
        case "CONTEXT" if isinstance(value.get("context"), str) and value.get("tenant", TENANT) == TENANT:
            return ContextKey(value["context"])
        case "NOOP":
            return NoopKey()
    return None


def schema_record(schema: SchemaVersion) -> SchemaRecord:
    content = schema.content
    value: Json = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    if schema.guid_stored is not None:
        value["guid"] = schema.guid_stored
    if content.type != AVRO:
        value["schemaType"] = content.type
    if content.references:
        value["references"] = [reference_json(each) for each in content.references]
    if content.metadata is not None:
        value["metadata"] = json_of(content.metadata)
    if content.rule_set is not None:
        value["ruleSet"] = json_of(content.rule_set)
    value |= {"schema": content.text, "deleted": schema.deleted}
    return SchemaRecord(encode_key(SchemaKey(schema.subject, schema.version)), _compact(value))


def decode_schema(key: SchemaKey, data: bytes) -> SchemaVersion | None:
    """Return the version that a record holds, None if it holds none."""
    value = _json_object(data)
    schema_id, text, schema_type = _int_of(value.get("id")), value.get("schema"), value.get("schemaType", AVRO)
    if schema_id is None or not isinstance(text, str) or not isinstance(schema_type, str):
        return None
    try:
        content = SchemaContent(
            schema_type,
            text,
            references_of(value["references"]) if value.get("references") else (),
            text_of(metadata_of(value["metadata"])) if value.get("metadata") is not None else None,
            text_of(rule_set_of(value["ruleSet"])) if value.get("ruleSet") is not None else None,
        )
    except RegistryError:
        return None
    guid = value.get("guid")
    # Only a guid that differs from the plain one is kept: other registries write the plain one for each schema.
    stored = guid if guid is not None and guid == content.guid_of_type else None
    return SchemaVersion(key.subject, key.version, schema_id, content, value.get("deleted") is True, stored)


def references_of(value: Any) -> tuple[Reference, ...]:
    """Return the references of a request or record. Raise RegistryError if they are none."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid_schema("references must be a list")
    found = []
    for each in value:
        if not (
            isinstance(each, dict)
            and isinstance(each.get("name"), str)
            and isinstance(each.get("subject"), str)
            and isinstance(each.get("version"), int)
            and -1 <= each["version"] <= INT_MAX
        ):
            raise invalid_schema("each reference must have a name, a subject and a version")
        found.append(Reference(each["name"], each["subject"], each["version"]))
    return tuple(found)


def reference_json(reference: Reference) -> Json:
    return {"name": reference.name, "subject": reference.subject, "version": reference.version}


def config_record(subject: str | None, config: Mapping[str, Any] | None) -> SchemaRecord:
    """Return the record that sets a config, or removes it."""
    key = encode_key(ConfigKey(subject))
    if config is None:
        return SchemaRecord(key, None)
    own = {} if subject is None else {"subject": subject}
    return SchemaRecord(key, _compact(own | {name: config[name] for name in CONFIG_FIELDS if name in config}))


def decode_config(data: bytes) -> Json | None:
    value = _json_object(data)
    if not isinstance(value.get("compatibilityLevel", ""), str):
        return None
    return {name: value[name] for name in CONFIG_FIELDS if value.get(name) is not None}


def mode_record(subject: str | None, mode: str | None) -> SchemaRecord:
    key = encode_key(ModeKey(subject))
    if mode is None:
        return SchemaRecord(key, None)
    own = {} if subject is None else {"subject": subject}
    return SchemaRecord(key, _compact(own | {"mode": mode}))


def decode_mode(data: bytes) -> str | None:
    mode = _json_object(data).get("mode")
    return mode if mode in MODES else None


def delete_subject_record(subject: str, version: int) -> SchemaRecord:
    return SchemaRecord(encode_key(DeleteSubjectKey(subject)), _compact({"subject": subject, "version": version}))


def decode_delete_subject(data: bytes) -> int | None:
    return _int_of(_json_object(data).get("version"))


def context_record(context: str, *, id_max: int | None = None, exists: bool = True) -> SchemaRecord:
    value: Json = {"tenant": TENANT, "context": context}
    if id_max is not None:
        value["maxId"] = id_max
    return SchemaRecord(encode_key(ContextKey(context)), _compact(value) if exists else None)


def decode_id_max(data: bytes) -> int:
    return _int_of(_json_object(data).get("maxId")) or 0


def noop_record() -> SchemaRecord:
    return SchemaRecord(encode_key(NoopKey()), None)


def removal(key: Key) -> SchemaRecord:
    return SchemaRecord(encode_key(key), None)


_KEY_TYPES: Final[dict[type, str]] = {
    ConfigKey: "CONFIG",
    ModeKey: "MODE",
    DeleteSubjectKey: "DELETE_SUBJECT",
    ClearSubjectKey: "CLEAR_SUBJECT",
}


def _uuid(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _compact(value: Json) -> bytes:
    # Jackson writes UTF-8 as it is. A lone surrogate has no UTF-8, and is escaped.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def _json_object(data: bytes | None) -> Json:
    """Return the object in `data`; an empty one if there is none."""
    try:
        value = json.loads((data or b"").decode())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _int_of(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INT_MAX else None


def _hash_fields(digest: Any, value: Json) -> None:
    """Hash what an object's fields hold, in order. Names of fields do not count, but keys of the maps in them do."""
    for field in value.values():
        match field:
            case True:
                digest.update(b"\1")
            case str():
                digest.update(_utf8(field))
            case dict():
                for key, each in field.items():
                    for text in (key, *(each if isinstance(each, list) else [each])):
                        digest.update(_utf8(str(text)))
            case list():
                for each in field:
                    if isinstance(each, dict):
                        _hash_fields(digest, each)
                    else:
                        digest.update(_utf8(str(each)))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
