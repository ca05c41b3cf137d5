"""The registry as the fold of the records of `_schemas`: subjects, versions, ids, configs, modes, contexts.

Pure. `apply` takes one record after the other; what a record can not mean is skipped and counted. The fold of a log
and of the same log after compaction are the same state, so nothing here depends on a record that compaction removes.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from strandline.schemas import records
from strandline.schemas.contracts import Json
from strandline.schemas.forks import Fork
from strandline.schemas.records import (
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    Key,
    ModeKey,
    NoopKey,
    SchemaContent,
    SchemaKey,
    SchemaRecord,
    SchemaVersion,
)
from strandline.schemas.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, context_of, in_context, relative_to

DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULT_MODE: Final = "READWRITE"
_EVERYWHERE: Final = in_context(GLOBAL_CONTEXT, "")
_INHERITED: Final = ("normalize", "validateFields", "validateRules", "compatibilityGroup")
"""What a subject with a config of its own still takes from the global one."""

T = TypeVar("T")

Place = tuple[str, int]
"""A subject and a version."""


@dataclass
class ContextState:
    """Ids of one context."""

    id_max: int = 0
    """The largest id ever given out."""
    places: MutableMapping[int, dict[Place, SchemaContent]] = field(default_factory=dict)
    """Where each id is registered, and what as."""
    ids: MutableMapping[SchemaContent, int] = field(default_factory=dict)

    def fork(self) -> ContextState:
        return ContextState(self.id_max, Fork(self.places, dict), Fork(self.ids, _same))


def _same(value: T) -> T:
    """Return a value that is replaced and never changed, so that a fork may share it."""
    return value


class RegistryState:
    """All that the registry knows."""

    def __init__(self) -> None:
        self.subjects: MutableMapping[str, dict[int, SchemaVersion]] = {}
        self.configs: MutableMapping[str | None, Json] = {}
        self.modes: MutableMapping[str | None, str] = {}
        self.contexts: MutableMapping[str, ContextState] = {DEFAULT_CONTEXT: ContextState()}
        self.guids: MutableMapping[str, dict[tuple[str, int], SchemaContent]] = {}
        """By guid: contexts and ids that have it."""
        self.referencing: MutableMapping[Place, dict[Place, int]] = {}
        """By the place that is referred to: the places that refer to it, and their ids."""
        self.other_keys: MutableMapping[Key, set[bytes]] = {}
        """Keys that another registry wrote in another form. Compaction does not know that they are the same."""
        self.skipped_count = 0

    def fork(self) -> RegistryState:
        """Return a state that begins as this one. Records that are applied to it do not reach this one.

        It costs as much as what is looked at in it, and is of use until this one changes.
        """
        made = RegistryState()
        made.subjects = Fork(self.subjects, dict)
        made.configs = Fork(self.configs, _same)
        made.modes = Fork(self.modes, _same)
        made.contexts = Fork(self.contexts, ContextState.fork)
        made.guids = Fork(self.guids, dict)
        made.referencing = Fork(self.referencing, dict)
        made.other_keys = Fork(self.other_keys, set)
        return made

    def apply(self, record: SchemaRecord) -> None:
        """Fold one record into the state."""
        key = records.decode_key(record.key)
        if key is None or not self._apply(key, record.value):
            self.skipped_count += 1
            return
        if record.key != records.encode_key(key):
            self._note_other_key(key, record)

    def _apply(self, key: Key, value: bytes | None) -> bool:
        """Fold a value into the state; return whether it can be read.

        One that can not be read removes what its key had, because compaction will remove that too.
        """
        match key:
            case SchemaKey(subject, version):
                self._remove(subject, version)
                schema = None if value is None else records.decode_schema(key, value)
                if schema is not None:
                    self._add(schema)
                return schema is not None or value is None
            case ConfigKey(subject):
                self.configs.pop(subject, None)
                config = None if value is None else records.decode_config(value)
                if config is not None:
                    self.configs[subject] = config
                return config is not None or value is None
            case ModeKey(subject):
                self.modes.pop(subject, None)
                mode = None if value is None else records.decode_mode(value)
                if mode is not None:
                    self.modes[subject] = mode
                return mode is not None or value is None
            case DeleteSubjectKey(subject):
                return value is None or self._delete_to(subject, records.decode_delete_subject(value))
            case ClearSubjectKey(subject):
                self._clear(subject)
            case ContextKey(context):
                self._apply_context(context, value)
            case NoopKey():
                pass
        return True

    def _note_other_key(self, key: Key, record: SchemaRecord) -> None:
        if record.value is not None:
            self.other_keys.setdefault(key, set()).add(record.key)
        elif key in self.other_keys:
            self.other_keys[key].discard(record.key)
            if not self.other_keys[key]:
                del self.other_keys[key]

    # Records

    def _add(self, schema: SchemaVersion) -> None:
        place = (schema.subject, schema.version)
        name = context_of(schema.subject)
        self.subjects.setdefault(schema.subject, {})[schema.version] = schema
        context = self.contexts.setdefault(name, ContextState())
        context.id_max = max(context.id_max, schema.id)
        context.places.setdefault(schema.id, {})[place] = schema.content
        # One schema may have several ids in a topic that was imported: the smallest one is given to new subjects.
        context.ids[schema.content] = min(schema.id, context.ids.get(schema.content, schema.id))
        self.guids.setdefault(schema.guid, {})[name, schema.id] = schema.content
        for each in schema.content.references:
            target = (relative_to(schema.subject, each.subject), each.version)
            self.referencing.setdefault(target, {})[place] = schema.id

    def _remove(self, subject: str, version: int) -> None:
        versions = self.subjects.get(subject, {})
        schema = versions.pop(version, None)
        if schema is None:
            return
        if not versions:
            del self.subjects[subject]
        place = (subject, version)
        name = context_of(subject)
        context = self.contexts[name]
        places = context.places[schema.id]
        del places[place]
        if not places:
            del context.places[schema.id]
        if schema.content not in places.values():
            self._forget_id(name, schema)
        for each in schema.content.references:
            target = (relative_to(subject, each.subject), each.version)
            referring = self.referencing.get(target, {})
            referring.pop(place, None)
            if not referring:
                self.referencing.pop(target, None)

    def _forget_id(self, name: str, schema: SchemaVersion) -> None:
        """Drop the id from the lookups, after its last version with this content is gone."""
        context = self.contexts[name]
        if context.ids.get(schema.content) == schema.id:
            del context.ids[schema.content]
            others = [each for each, places in context.places.items() if schema.content in places.values()]
            if others:
                context.ids[schema.content] = min(others)
        holders = self.guids.get(schema.guid, {})
        if holders.get((name, schema.id)) == schema.content:
            del holders[name, schema.id]
        if not holders:
            self.guids.pop(schema.guid, None)

    def _delete_to(self, subject: str, version_max: int | None) -> bool:
        if version_max is None:
            return False
        versions = self.subjects.get(subject, {})
        for version, schema in versions.items():
            if version <= version_max and not schema.deleted:
                versions[version] = replace(schema, deleted=True)
        return True

    def _clear(self, subject: str) -> None:
        for version in [each.version for each in self.versions(subject, deleted=True) if each.deleted]:
            self._remove(subject, version)

    def _apply_context(self, name: str, value: bytes | None) -> None:
        if value is not None:
            context = self.contexts.setdefault(name, ContextState())
            context.id_max = max(context.id_max, records.decode_id_max(value))
        elif name != DEFAULT_CONTEXT and name in self.contexts and not self.contexts[name].places:
            del self.contexts[name]

    # Questions

    def settings_scopes(self, subject: str | None) -> list[str | None]:
        """Return the subject, its context and all contexts: where config and mode are looked for, in this order."""
        if subject is None:
            return [None, _EVERYWHERE]
        context = context_of(subject)
        whole = None if context == DEFAULT_CONTEXT else in_context(context, "")
        return list(dict.fromkeys([subject, whole, _EVERYWHERE]))

    def config_in_scope(self, subject: str | None) -> Json:
        """Return the config that holds for a subject."""
        own = self.configs.get(subject)
        found = own
        for scope in self.settings_scopes(subject):
            found = found or self.configs.get(scope)
        config = {"compatibilityLevel": DEFAULT_LEVEL} | (found or {})
        if own is not None and subject is not None:
            inherited = self.configs.get(None, {})
            config = {name: inherited[name] for name in _INHERITED if name in inherited} | config
        return config

    def mode_in_scope(self, subject: str | None) -> str:
        """Return the mode that holds for a subject."""
        for scope in self.settings_scopes(subject):
            if scope in self.modes:
                return self.modes[scope]
        return DEFAULT_MODE

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Return the versions of a subject in order, also soft-deleted ones if `deleted`."""
        versions = self.subjects.get(subject, {})
        return [versions[each] for each in sorted(versions) if deleted or not versions[each].deleted]

    def version(self, subject: str, version: int, *, deleted: bool = False) -> SchemaVersion | None:
        found = self.subjects.get(subject, {}).get(version)
        return None if found is None or (found.deleted and not deleted) else found

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        return any(deleted or not each.deleted for each in self.subjects.get(subject, {}).values())

    def content_of_id(self, context: str, schema_id: int) -> SchemaContent | None:
        """Return what an id of a context stands for."""
        known = self.contexts.get(context)
        places = known.places.get(schema_id, {}) if known else {}
        return next(iter(places.values()), None)

    def versions_of_id(self, context: str, schema_id: int, *, deleted: bool = False) -> Iterator[SchemaVersion]:
        known = self.contexts.get(context)
        for subject, version in sorted(known.places.get(schema_id, {}) if known else ()):
            found = self.version(subject, version, deleted=deleted)
            if found is not None:
                yield found

    def referring_to(self, subject: str, version: int, *, deleted: bool = False) -> dict[Place, int]:
        """Return the places, and their ids, of schemas that refer to a version."""
        found = self.referencing.get((subject, version), {})
        return {place: schema_id for place, schema_id in found.items() if self.version(*place, deleted=deleted)}
