"""Registering a schema, looking one up, and checking whether one would be compatible.

Each is a command upon a state: it returns the records to write, or raises RegistryError. It changes nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from strandline.schemas.compatibility import explain
from strandline.schemas.contracts import (
    Json,
    json_of,
    merge_metadata,
    merge_rule_sets,
    merged,
    metadata_of,
    rule_set_of,
    text_of,
)
from strandline.schemas.engines import ParseJob, SchemaSource, Steps, in_thread
from strandline.schemas.failures import (
    INCOMPATIBLE_SCHEMA,
    INVALID_SUBJECT,
    RegistryError,
    invalid_schema,
    not_permitted,
    schema_not_found,
    subject_not_found,
)
from strandline.schemas.records import (
    AVRO,
    INT_MAX,
    SchemaContent,
    SchemaKey,
    SchemaRecord,
    SchemaVersion,
    context_record,
    references_of,
    removal,
    schema_record,
)
from strandline.schemas.resolving import source_of
from strandline.schemas.state import RegistryState
from strandline.schemas.subjects import context_of, is_valid
from strandline.schemas.types import ParsedSchema, Reference

VERSION_PROPERTY = "confluent:version"

T = TypeVar("T")


@dataclass(frozen=True)
class Written(Generic[T]):
    """Records to write, none if all is as it was asked for, and the answer to give then."""

    records: tuple[SchemaRecord, ...]
    answer: T


@dataclass(frozen=True)
class Registration:
    """A schema in a request."""

    subject: str
    text: str
    type: str = AVRO
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None
    id: int = -1
    """-1: the registry chooses."""
    version: int = 0
    """0: the next one. -1: the next one, and it is written into the metadata."""
    normalize: bool = False
    force: bool = False

    @classmethod
    def from_json(cls, subject: str, body: Any, *, normalize: bool = False, force: bool = False) -> Registration:
        """Read the body of a request. Raise RegistryError if it is none."""
        if not isinstance(body, dict):
            raise invalid_schema("the body must be an object")
        text, kind = body.get("schema") or "", body.get("schemaType") or AVRO
        if not isinstance(text, str) or not isinstance(kind, str):
            raise invalid_schema("schema and schemaType must be strings")
        return cls(
            subject,
            text,
            kind.upper(),
            references_of(body.get("references")),
            text_of(metadata_of(body.get("metadata"))),
            text_of(rule_set_of(body.get("ruleSet"))),
            _number(body, "id", -1),
            _number(body, "version", 0),
            normalize,
            force,
        )


def register(state: RegistryState, request: Registration) -> Steps[Written[SchemaVersion]]:
    """Register a schema, unless the subject has it."""
    subject = request.subject
    if not is_valid(subject):
        raise RegistryError(INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid.")
    config = state.config_in_scope(subject)
    if not any(config.get(name) for name in _MERGED) and request.text.strip():
        known = yield from _find(state, request, deleted=False)
        if known is not None and request.version <= 0 and request.id in (-1, known.id):
            return Written((), known)
        if known is not None and (known.id, known.version) == (request.id, request.version):
            return Written((), known)
    mode = _check_mode(state, request)
    is_import = mode in ("IMPORT", "FORWARD")
    earlier = state.versions(subject)
    version = max(state.subjects.get(subject, ()), default=0) + 1
    if not is_import:
        request = _populated(request, config, earlier[-1] if earlier else None, version)
    content, source = yield from _canonical(state, request)
    schema_id = _known_id(state, request, content)
    same = [each for each in earlier if each.content == content and schema_id in (-1, each.id)]
    if same and request.version == 0:
        return Written((), same[-1])
    if not is_import and not request.force:
        yield from _check_compatible(state, request, content, source, config, earlier)
    if request.version > 0:
        if request.version != version and not is_import:
            raise invalid_schema("Version is not one more than previous version")
        version = request.version
    return _change(state, subject, version, schema_id, content)


def look_up(state: RegistryState, request: Registration, *, deleted: bool) -> Steps[SchemaVersion]:
    """Return the version of the subject that has a schema."""
    found = yield from _find(state, request, deleted=deleted)
    latest = state.versions(request.subject)
    if found is None and latest:
        # A client that sends no metadata means the schema with what the last version has.
        config = state.config_in_scope(request.subject)
        populated = _populated(request, config, latest[-1], None)
        if populated != request:
            found = yield from _find(state, populated, deleted=deleted)
    if found is not None:
        return found
    if not state.has_subject(request.subject, deleted=deleted):
        raise subject_not_found(request.subject)
    raise schema_not_found()


def check(state: RegistryState, request: Registration, against: Sequence[SchemaVersion]) -> Steps[list[str]]:
    """Return why a schema would be rejected if the subject had the versions `against`; nothing if it would not."""
    if not request.text.strip():
        raise invalid_schema("Empty schema")
    content, source = yield from _canonical(state, request)
    config = state.config_in_scope(request.subject)
    reasons = yield from _reasons(state, request.subject, content, source, config, against)
    return reasons


_MERGED = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")


def _number(body: Json, name: str, default: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= INT_MAX:
        raise invalid_schema(f"{name} must be a number from -1 to {INT_MAX}")
    return value


def _check_mode(state: RegistryState, request: Registration) -> str:
    mode = state.mode_in_scope(request.subject)
    where = f"Subject {request.subject} in context {context_of(request.subject)}"
    if mode.startswith("READONLY"):
        raise not_permitted(f"{where} is in read-only mode")
    if request.id >= 0 and mode not in ("IMPORT", "FORWARD"):
        raise not_permitted(f"{where} is not in import mode")
    if request.id < 0 and mode != "READWRITE":
        raise not_permitted(f"{where} is not in read-write mode")
    return mode


def _populated(
    request: Registration, config: Json, previous: SchemaVersion | None, new_version: int | None
) -> Registration:
    """Return the request with what it leaves out: from the last version, and from the config."""
    if not request.text.strip():
        if previous is None:
            raise invalid_schema("Empty schema")
        old = previous.content
        request = replace(request, text=old.text, type=old.type, references=old.references)
    metadata, rule_set = request.metadata, request.rule_set
    if previous is not None:
        metadata = previous.content.metadata if metadata is None else metadata
        rule_set = previous.content.rule_set if rule_set is None else rule_set
    whole = merged(config.get("defaultMetadata"), json_of(metadata), config.get("overrideMetadata"), merge_metadata)
    rules = merged(config.get("defaultRuleSet"), json_of(rule_set), config.get("overrideRuleSet"), merge_rule_sets)
    has_version = VERSION_PROPERTY in (whole or {}).get("properties", {})
    if new_version is not None and (request.version != 0 or has_version):
        whole = merge_metadata(whole, {"properties": {VERSION_PROPERTY: str(new_version)}})
    return replace(request, metadata=text_of(whole), rule_set=text_of(rules))


def _canonical(state: RegistryState, request: Registration) -> Steps[tuple[SchemaContent, SchemaSource]]:
    """Parse the schema of a request; return it as it is stored and compared, and as its engine parses it."""
    if not request.text.strip():
        raise invalid_schema("Empty schema")
    config = state.config_in_scope(request.subject)
    is_normalized = request.normalize or config.get("normalize") is True
    references = request.references
    if is_normalized:
        references = tuple(sorted(set(references), key=lambda each: (each.name, each.subject, each.version)))
    sent = SchemaContent(request.type, request.text, references, request.metadata, request.rule_set)
    source = source_of(state, request.subject, sent, is_new=True)

    def text_of_schema(schema: ParsedSchema) -> str:
        return schema.normalized() if is_normalized else schema.canonical()

    text = yield from in_thread(ParseJob(source, text_of_schema))
    return replace(sent, text=text), replace(source, text=text)


def _find(state: RegistryState, request: Registration, *, deleted: bool) -> Steps[SchemaVersion | None]:
    content, _ = yield from _canonical(state, request)
    versions = state.versions(request.subject, deleted=deleted)
    # A version that is there comes before one that was deleted.
    matching = sorted((each for each in versions if each.content == content), key=lambda each: not each.deleted)
    return matching[-1] if matching else None


def _known_id(state: RegistryState, request: Registration, content: SchemaContent) -> int:
    """Return the id that the schema must have, -1 for a new one."""
    context = state.contexts.get(context_of(request.subject))
    known = context.ids.get(content, -1) if context else -1
    if request.id < 0 or request.id == known:
        return known
    taken = state.content_of_id(context_of(request.subject), request.id)
    if taken is not None and taken != content:
        where = context_of(request.subject)
        raise not_permitted(f"Overwrite new schema with id {request.id} in context {where} is not permitted.")
    return request.id


def _check_compatible(
    state: RegistryState,
    request: Registration,
    content: SchemaContent,
    source: SchemaSource,
    config: Json,
    earlier: Sequence[SchemaVersion],
) -> Steps[None]:
    reasons = yield from _reasons(state, request.subject, content, source, config, earlier)
    if reasons:
        raise RegistryError(
            INCOMPATIBLE_SCHEMA,
            f'Schema being registered is incompatible with an earlier schema for subject "{request.subject}", '
            f"details: [{', '.join(reasons)}]",
        )


def _reasons(
    state: RegistryState,
    subject: str,
    content: SchemaContent,
    source: SchemaSource,
    config: Json,
    earlier: Sequence[SchemaVersion],
) -> Steps[list[str]]:
    level = config["compatibilityLevel"]
    group = config.get("compatibilityGroup")
    if group:
        mine = _property(content, group)
        earlier = [each for each in earlier if _property(each.content, group) == mine]
    if level == "NONE" or not earlier:
        return []
    if not level.endswith("_TRANSITIVE"):
        earlier = earlier[-1:]
    sources = [(each.version, source_of(state, each.subject, each.content)) for each in earlier]
    found = yield from in_thread(lambda engines: explain(engines, level, source, sources))
    return found


def _property(content: SchemaContent, name: str) -> str | None:
    found: str | None = (json_of(content.metadata) or {}).get("properties", {}).get(name)
    return found


def _change(
    state: RegistryState, subject: str, version: int, schema_id: int, content: SchemaContent
) -> Written[SchemaVersion]:
    name = context_of(subject)
    context = state.contexts.get(name)
    written = [] if context else [context_record(name)]
    replaced = state.version(subject, version, deleted=True)
    if context and replaced is not None and replaced.id != schema_id:
        # An import replaces a version. The topic forgets its id, which must not be given out again.
        written.append(context_record(name, id_max=context.id_max))
    if schema_id < 0:
        schema_id = context.id_max + 1 if context else 1
    if schema_id > INT_MAX:
        raise not_permitted(f"Context {name} has given out all ids.")
    new = SchemaVersion(subject, version, schema_id, content, guid_stored=_guid(state, content))
    for old in state.versions(subject, deleted=True):
        # The same schema again, after it was deleted: its old version goes, unless another schema refers to it.
        is_replaced = old.deleted and old.id == schema_id and old.version < version
        if is_replaced and not state.referring_to(subject, old.version, deleted=True):
            written.append(removal(SchemaKey(subject, old.version)))
    return Written((*written, schema_record(new)), new)


def _guid(state: RegistryState, content: SchemaContent) -> str | None:
    """Return the guid to store: None for the plain one, unless the same text of another type has that."""
    holders = state.guids.get(content.guid, {}).values()
    if content in state.guids.get(content.guid_of_type, {}).values():
        return content.guid_of_type
    return content.guid_of_type if holders and content not in holders else None
