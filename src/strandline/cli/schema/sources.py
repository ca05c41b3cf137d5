"""Schemas of a registry as engines and codecs need them: with the texts of all that they refer to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from strandline.cli.common.failures import CommandFailed
from strandline.cli.schema.registry_api import SchemaApi
from strandline.schemas.engines import Engines, SchemaSource
from strandline.schemas.payloads.wire_format import SchemaName
from strandline.schemas.subjects import relative_to
from strandline.schemas.types import DEPTH_MAX, REFERENCES_MAX

if TYPE_CHECKING:
    from strandline.schemas.types import SchemaType

INSTALL = "pip install 'strandline[registry]'"


class SchemaSources:
    """Schemas of a registry. Each version is asked for once, because a version never changes."""

    def __init__(self, api: SchemaApi) -> None:
        self.api = api
        self._versions: dict[tuple[str, int], dict[str, Any]] = {}

    def by_name(self, name: SchemaName) -> SchemaSource:
        """Return the schema of an id or a GUID. Raise NotFound."""
        return self.of(self.api.ask("GET", "schemas", "ids" if isinstance(name, int) else "guids", str(name)))

    def of(self, answer: Mapping[str, Any], subject: str = "") -> SchemaSource:
        """Return the schema in an answer of the registry, or in the body of a request to it."""
        found: dict[str, str] = {}
        self._visit(answer.get("references") or (), subject, found, 0)
        return SchemaSource(answer.get("schemaType") or "AVRO", answer["schema"], tuple(found.items()))

    def versions(self, subject: str) -> list[tuple[int, SchemaSource]]:
        """Return every version of a subject, the oldest first. Raise NotFound."""
        numbers = self.api.ask("GET", "subjects", subject, "versions")
        return [(number, self.of(self.version(subject, number), subject)) for number in numbers]

    def version(self, subject: str, number: int) -> dict[str, Any]:
        """Return a version as the registry answers it. Raise NotFound."""
        known = self._versions.get((subject, number))
        if known is None:
            known = self.api.ask("GET", "subjects", subject, "versions", str(number), deleted=True)
            self._versions[subject, number] = known
        return known

    def _visit(self, references: Iterable[Mapping[str, Any]], parent: str, found: dict[str, str], depth: int) -> None:
        """Add the text of each reference, behind those that it needs itself."""
        if depth > DEPTH_MAX:
            raise CommandFailed(f"the references of a schema are nested deeper than {DEPTH_MAX}")
        for each in references:
            if each["name"] in found:
                continue
            subject = relative_to(parent, each["subject"])
            target = self.version(subject, each["version"])
            self._visit(target.get("references") or (), subject, found, depth + 1)
            found.setdefault(each["name"], target["schema"])
            if len(found) > REFERENCES_MAX:
                raise CommandFailed(f"a schema has more than {REFERENCES_MAX} references")


def engine_of(kind: str) -> SchemaType:
    """Return the engine for a schema type. CommandFailed says what to install."""
    from importlib import import_module

    from strandline.schemas.engine_table import ENGINES

    for name, module, attribute in ENGINES:
        if name == kind:
            try:
                engine: SchemaType = getattr(import_module(module), attribute)()
            except ModuleNotFoundError as error:
                raise not_installed(error) from None
            return engine
    raise CommandFailed(f"schemas of type {kind} are not known here")


def engines_for(sources: Iterable[SchemaSource]) -> Engines:
    """Return the engines that these schemas need."""
    return Engines([engine_of(kind) for kind in dict.fromkeys(each.type for each in sources)])


def not_installed(error: ModuleNotFoundError) -> CommandFailed:
    return CommandFailed(f"schemas of this type need a package that is not installed: {error.name}", hint=INSTALL)


def sources_at(url: str, timeout_s: float) -> SchemaSources:
    """Return the schemas of the registry at a URL."""
    return SchemaSources(SchemaApi(url, timeout_s))
