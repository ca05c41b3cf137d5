"""The ids of each subject, as the fold of the records of `_schemas`: what a broker needs to validate records.

Pure, and smaller than `state`: of a schema its id and whether it was deleted, and its text only if that is asked for.
Ids are those of the default context; contexts have ids of their own, and a record does not say which one it means.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.schemas import records
from strandline.schemas.records import (
    ClearSubjectKey,
    ConfigKey,
    DeleteSubjectKey,
    SchemaContent,
    SchemaKey,
    SchemaRecord,
    SchemaVersion,
)
from strandline.schemas.subjects import DEFAULT_CONTEXT, context_of, relative_to


class RegisteredVersion(NamedTuple):
    """A version of a subject."""

    id: int
    is_deleted: bool
    content: SchemaContent | None
    """None if texts are not kept."""


class RegisteredIds:
    """The ids of all subjects."""

    def __init__(self, *, keeps_texts: bool) -> None:
        self.keeps_texts = keeps_texts
        self.changes = 0
        """Counts all changes."""
        self.beginnings = 0
        """Counts how often everything was forgotten."""
        self._subjects: dict[str, dict[int, RegisteredVersion]] = {}
        self._places: dict[int, list[tuple[str, int]]] = {}
        """Where each id of the default context is registered: subject and version."""
        self._aliases: dict[str, str] = {}

    def forget(self, *, keeps_texts: bool) -> None:
        """Forget everything, because the topic is read again or is another one."""
        self.keeps_texts = keeps_texts
        self.changes += 1
        self.beginnings += 1
        self._subjects.clear()
        self._places.clear()
        self._aliases.clear()

    def apply(self, record: SchemaRecord) -> None:
        """Fold one record into the state. One that cannot be read removes what its key had, as in `state`."""
        key, value = records.decode_key(record.key), record.value
        match key:
            case SchemaKey(subject, version):
                self._remove(subject, version)
                schema = None if value is None else records.decode_schema(key, value)
                if schema is not None:
                    self._add(schema)
            case ConfigKey(str(subject)):
                self._aliases.pop(subject, None)
                config = None if value is None else records.decode_config(value)
                alias = None if config is None else config.get("alias")
                if isinstance(alias, str) and alias:
                    self._aliases[subject] = relative_to(subject, alias)
            case DeleteSubjectKey(subject) if value is not None:
                self._delete_to(subject, records.decode_delete_subject(value) or 0)
            case ClearSubjectKey(subject):
                for version, each in list(self._subjects.get(subject, {}).items()):
                    if each.is_deleted:
                        self._remove(subject, version)
            case _:
                return
        self.changes += 1

    def _add(self, schema: SchemaVersion) -> None:
        content = schema.content if self.keeps_texts else None
        found = RegisteredVersion(schema.id, schema.deleted, content)
        self._subjects.setdefault(schema.subject, {})[schema.version] = found
        if context_of(schema.subject) == DEFAULT_CONTEXT:
            self._places.setdefault(schema.id, []).append((schema.subject, schema.version))

    def _remove(self, subject: str, version: int) -> None:
        versions = self._subjects.get(subject, {})
        found = versions.pop(version, None)
        if found is None:
            return
        if not versions:
            del self._subjects[subject]
        if context_of(subject) == DEFAULT_CONTEXT:
            places = self._places[found.id]
            places.remove((subject, version))
            if not places:
                del self._places[found.id]

    def _delete_to(self, subject: str, version_max: int) -> None:
        versions = self._subjects.get(subject, {})
        for version, each in versions.items():
            if version <= version_max:
                versions[version] = each._replace(is_deleted=True)

    # Questions

    def has_id(self, schema_id: int) -> bool:
        """Return whether any subject of the default context has the id."""
        return schema_id in self._places

    def versions_with(self, subject: str, schema_id: int) -> list[RegisteredVersion]:
        """Return the versions of a subject, or of the one that it is an alias of, that have the id."""
        versions = self._subjects.get(self._aliases.get(subject, subject), {})
        return [each for each in versions.values() if each.id == schema_id]

    def place_of(self, schema_id: int) -> tuple[str, SchemaContent] | None:
        """Return a subject that has the id, and its schema; None if the id or the text is not known."""
        for subject, version in self._places.get(schema_id, ()):
            content = self._subjects[subject][version].content
            if content is not None:
                return subject, content
        return None

    # What `resolving` asks

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]:
        """Return the versions of a subject in order, also soft-deleted ones if `deleted`."""
        found = (self.version(subject, each, deleted=deleted) for each in sorted(self._subjects.get(subject, {})))
        return [each for each in found if each is not None]

    def version(self, subject: str, version: int, *, deleted: bool = False) -> SchemaVersion | None:
        found = self._subjects.get(subject, {}).get(version)
        if found is None or found.content is None or (found.is_deleted and not deleted):
            return None
        return SchemaVersion(subject, version, found.id, found.content, found.is_deleted)
