"""References: the texts of all schemas that a schema reaches, for the engine that parses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strandline.schemas.engines import SchemaSource
from strandline.schemas.failures import RegistryError, invalid_schema
from strandline.schemas.records import SchemaContent, SchemaVersion
from strandline.schemas.state import Place
from strandline.schemas.subjects import relative_to
from strandline.schemas.types import DEPTH_MAX, REFERENCES_MAX, RESOLVED_BYTES_MAX, Reference


class VersionLookup(Protocol):
    """A state that knows the schema of each version: the registry's, or the one of a broker."""

    def versions(self, subject: str, *, deleted: bool = False) -> list[SchemaVersion]: ...

    def version(self, subject: str, version: int, *, deleted: bool = False) -> SchemaVersion | None: ...


def source_of(state: VersionLookup, subject: str, content: SchemaContent, *, is_new: bool = False) -> SchemaSource:
    """Return a schema of `subject` with the texts of its references. Raise RegistryError if one is missing.

    A schema that is registered may refer to versions that were deleted since; a new one may not.
    """
    if not content.references:
        return SchemaSource(content.type, content.text)
    resolver = _Resolver(state, is_new=is_new)
    resolver.visit(subject, content.references, [])
    return SchemaSource(content.type, content.text, tuple(resolver.found.items()))


class _Resolver:
    """A walk through references, depth first."""

    def __init__(self, state: VersionLookup, *, is_new: bool) -> None:
        self.found: dict[str, str] = {}
        self._state = state
        self._is_new = is_new
        self._done: set[tuple[str, Place]] = set()
        self._characters = 0

    def visit(self, subject: str, references: Sequence[Reference], above: list[Place]) -> None:
        if len(above) > DEPTH_MAX:
            raise _invalid(f"references are nested deeper than {DEPTH_MAX}")
        for reference in references:
            target = self._target(subject, reference)
            place = (target.subject, target.version)
            if place in above:
                raise _invalid(f"reference '{reference.name}' leads back to itself")
            if (reference.name, place) in self._done:
                continue
            self._done.add((reference.name, place))
            if len(self._done) > REFERENCES_MAX:
                raise _invalid(f"more than {REFERENCES_MAX} references")
            self.visit(target.subject, target.content.references, [*above, place])
            self._characters += len(target.content.text)
            if self._characters > RESOLVED_BYTES_MAX:
                raise _invalid(f"the referenced schemas together are larger than {RESOLVED_BYTES_MAX:,} bytes")
            self.found.setdefault(reference.name, target.content.text)

    def _target(self, subject: str, reference: Reference) -> SchemaVersion:
        name = relative_to(subject, reference.subject)
        if reference.version == -1:
            versions = self._state.versions(name)
            target = versions[-1] if versions else None
        else:
            target = self._state.version(name, reference.version, deleted=not self._is_new)
        if target is None:
            raise _invalid(
                f'no schema reference found for subject "{reference.subject}" and version {reference.version}'
            )
        return target


def _invalid(reason: str) -> RegistryError:
    return invalid_schema(f"Invalid schema: {reason}")
