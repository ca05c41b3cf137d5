"""The routes of Confluent's REST API. Each takes a `Call` and returns JSON, or a text as it is.

/subjects  /subjects/{s}  /subjects/{s}/versions  .../{v}  .../schema  .../referencedby  /subjects/{s}/metadata
/schemas  /schemas/types  /schemas/ids/{id}  .../schema  .../subjects  .../versions  /schemas/guids/{guid}  .../ids
/config  /config/{s}  /mode  /mode/{s}  /compatibility/subjects/{s}/versions  .../{v}  /contexts  /contexts/{c}
/contexts/{c}/...   the same API inside a context
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from strandline import __version__
from strandline.schemas import commands, registering
from strandline.schemas.answers import content_json, page, registered_json, version_json
from strandline.schemas.contracts import Json, json_of
from strandline.schemas.engines import Engines, in_thread
from strandline.schemas.failures import (
    INVALID_SCHEMA,
    RegistryError,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from strandline.schemas.records import SchemaContent, SchemaVersion
from strandline.schemas.registering import Registration, Written
from strandline.schemas.registry import SchemaRegistry
from strandline.schemas.resolving import source_of
from strandline.schemas.state import RegistryState
from strandline.schemas.subjects import (
    ALL_CONTEXTS,
    DEFAULT_CONTEXT,
    context_name,
    context_of,
    in_context,
    normal,
    relative_to,
)

LIST_MAX: Final = 100_000
"""Items in one answer; `offset` reaches the others."""
PROTOBUF: Final = "PROTOBUF"
SERIALIZED: Final = "serialized"
SCHEMAS_MAX: Final = 1000
"""Schemas with their texts in one answer."""


@dataclass(frozen=True)
class Plain:
    """A text that is answered as it is, and not as JSON."""

    text: str


@dataclass(frozen=True)
class Call:
    """One request."""

    registry: SchemaRegistry
    method: str
    path: tuple[str, ...]
    """Parts of the path, decoded, without the context in front."""
    query: dict[str, list[str]] = field(default_factory=dict)
    body: Any = None
    context: str = DEFAULT_CONTEXT

    @property
    def state(self) -> RegistryState:
        return self.registry.state

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def text(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[-1]

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        try:
            return int(text) if text else default
        except ValueError:
            raise RegistryError(404, "HTTP 404 Not Found") from None

    def named(self, at: int) -> str:
        """Return the subject at a place of the path, with its context."""
        name = self.path[at]
        return normal(name if name.startswith(":.") else in_context(self.context, name))

    def subject(self) -> str:
        """Return the subject of the path; an alias stands for the subject that its config names."""
        name = self.named(1)
        alias = self.state.configs.get(name, {}).get("alias")
        return relative_to(name, alias) if alias else name

    def paged(self, items: Any, *, limit_max: int = LIST_MAX) -> list[Any]:
        return page(list(items), self.number("offset", 0), self.number("limit", -1), limit_max=limit_max)

    async def decide(self, command: Callable[[RegistryState], Written[Any]]) -> Any:
        """Run a command that needs no engine, and write what it decides."""

        async def decided(state: RegistryState) -> Written[Any]:
            return command(state)

        return await self.registry.write(decided)


Handler = Callable[[Call], Awaitable[Any]]


async def dispatch(call: Call) -> Any:
    """Answer a request, or raise RegistryError."""
    call = _in_context(call)
    shape = _shape(call.path)
    handler = _ROUTES.get((call.method, shape))
    if handler is None:
        known = any(route == shape for _, route in _ROUTES)
        raise RegistryError(405, "HTTP 405 Method Not Allowed") if known else RegistryError(404, "HTTP 404 Not Found")
    return await handler(call)


def _in_context(call: Call) -> Call:
    """Take `/contexts/{c}` off a path that goes on behind it."""
    match call.path:
        case ("contexts", name, *rest) if rest:
            context = context_name(name)
            if context is None:
                raise RegistryError(400, f"Context name '{name}' cannot contain a colon")
            return replace(call, path=tuple(rest), context=context)
    return call


def _shape(path: tuple[str, ...]) -> str:
    """Return the route of a path: its words, with a star for each name in it."""
    names = _NAMES_AT.get(path[:2] if path[:1] == ("schemas",) else path[:1], ())
    return "/".join("*" if at in names else part for at, part in enumerate(path))


_NAMES_AT: Final[dict[tuple[str, ...], tuple[int, ...]]] = {
    ("subjects",): (1, 3),
    ("schemas", "ids"): (2,),
    ("schemas", "guids"): (2,),
    ("config",): (1,),
    ("mode",): (1,),
    ("contexts",): (1,),
    ("compatibility",): (2, 4),
}


# Subjects


async def list_subjects(call: Call) -> Any:
    prefix = call.text("subjectPrefix")
    is_everywhere = prefix.startswith(ALL_CONTEXTS) or ("subjectPrefix" not in call.query and call.context == ".")
    prefix = prefix.removeprefix(ALL_CONTEXTS) if is_everywhere else _prefix(call, prefix)
    deleted_only = call.flag("deletedOnly")
    found = []
    for subject in sorted(call.state.subjects):
        name = subject.rpartition(":")[2] if is_everywhere and prefix else subject
        if name.startswith(prefix) and (is_everywhere or context_of(subject) == context_of(prefix)):
            is_there = call.state.has_subject(subject)
            if (not is_there) if deleted_only else (is_there or call.flag("deleted")):
                found.append(subject)
    return call.paged(found)


def _prefix(call: Call, prefix: str) -> str:
    return prefix if prefix.startswith(":") else in_context(call.context, prefix)


async def look_up(call: Call) -> Any:
    request = Registration.from_json(call.subject(), call.body, normalize=call.flag("normalize"))
    found = await call.registry.run(registering.look_up(call.state, request, deleted=call.flag("deleted")))
    return version_json(found) | await _formatted(call, found.subject, found.content)


async def delete_subject(call: Call) -> Any:
    subject, permanent = call.subject(), call.flag("permanent")
    return await call.decide(lambda state: commands.delete_subject(state, subject, permanent=permanent))


async def latest_with_metadata(call: Call) -> Any:
    wanted = dict(zip(call.query.get("key", []), call.query.get("value", []), strict=False))
    subject = call.subject()
    for schema in reversed(call.state.versions(subject, deleted=call.flag("deleted"))):
        properties = (json_of(schema.content.metadata) or {}).get("properties", {})
        if all(properties.get(name) == value for name, value in wanted.items()):
            return version_json(schema) | await _formatted(call, subject, schema.content)
    raise schema_not_found() if call.state.has_subject(subject) else subject_not_found(subject)


# Versions


async def list_versions(call: Call) -> Any:
    subject = call.subject()
    only, deleted = call.flag("deletedOnly"), call.flag("deleted") or call.flag("deletedOnly")
    found = [each for each in call.state.versions(subject, deleted=deleted) if each.deleted or not only]
    if not found:
        raise subject_not_found(subject)
    is_negative = call.flag("deletedAsNegative")
    return call.paged([-each.version if each.deleted and is_negative else each.version for each in found])


async def register(call: Call) -> Any:
    subject = call.subject()
    request = Registration.from_json(subject, call.body, normalize=call.flag("normalize"), force=call.flag("force"))
    registry = call.registry
    found = await registry.write(lambda state: registry.run(registering.register(state, request)))
    return registered_json(found)


def _version(call: Call, *, deleted: bool | None = None) -> SchemaVersion:
    number = commands.version_number(call.path[3])
    deleted = call.flag("deleted") if deleted is None else deleted
    return commands.find_version(call.state, call.subject(), number, deleted=deleted)


async def get_version(call: Call) -> Any:
    found = _version(call)
    return version_json(found) | await _formatted(call, found.subject, found.content)


async def get_version_text(call: Call) -> Any:
    found = _version(call)
    formatted = await _formatted(call, found.subject, found.content)
    return Plain(formatted.get("schema", found.content.text))


async def _formatted(call: Call, subject: str, content: SchemaContent) -> Json:
    """Return the schema as `format` asks for it, if that is another text than the one that is stored.

    Clients ask for the descriptor of a Protobuf schema so that they need no parser.
    """
    if content.type != PROTOBUF or call.text("format") != SERIALIZED:
        return {}
    source = source_of(call.state, subject, content)

    def serialize(engines: Engines) -> str:
        parsed: Any = engines.parse(source)
        text: str = parsed.serialized()
        return text

    return {"schema": await call.registry.run(in_thread(serialize))}


async def delete_version(call: Call) -> Any:
    subject, permanent = call.subject(), call.flag("permanent")
    number = commands.version_number(call.path[3])
    return await call.decide(lambda state: commands.delete_version(state, subject, number, permanent=permanent))


async def referenced_by(call: Call) -> Any:
    found = _version(call, deleted=True)
    places = call.state.referring_to(found.subject, found.version, deleted=call.flag("deleted"))
    return call.paged(sorted(set(places.values())))


# Schemas by id


def _id(call: Call) -> tuple[str, int]:
    """Return the context and the id that a path names; a subject in the query says which context."""
    text = call.path[2]
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise RegistryError(404, "HTTP 404 Not Found")
    subject = call.text("subject")
    return (context_of(subject) if subject.startswith(":.") else call.context), int(text)


async def get_schema(call: Call) -> Any:
    context, schema_id = _id(call)
    places = call.state.contexts[context].places if context in call.state.contexts else {}
    if schema_id not in places:
        raise schema_not_found(schema_id)
    (subject, version), content = next(iter(places[schema_id].items()))
    stored = call.state.version(subject, version, deleted=True)
    found = {"guid": stored.guid if stored else content.guid, **content_json(content)}
    found |= await _formatted(call, subject, content)
    if call.flag("fetchMaxId"):
        found["maxId"] = call.state.contexts[context].id_max
    return found


async def get_schema_text(call: Call) -> Any:
    context, schema_id = _id(call)
    content = call.state.content_of_id(context, schema_id)
    if content is None:
        raise schema_not_found(schema_id)
    return Plain(content.text)


async def subjects_of_id(call: Call) -> Any:
    found = call.state.versions_of_id(*_id(call), deleted=call.flag("deleted"))
    return call.paged(_known(dict.fromkeys(each.subject for each in found), call))


async def versions_of_id(call: Call) -> Any:
    found = call.state.versions_of_id(*_id(call), deleted=call.flag("deleted"))
    return call.paged(_known([{"subject": each.subject, "version": each.version} for each in found], call))


def _known(found: Any, call: Call) -> Any:
    if not found and call.state.content_of_id(*_id(call)) is None:
        raise schema_not_found()
    return found


async def get_guid(call: Call) -> Any:
    holders = call.state.guids.get(call.path[2].lower())
    if not holders:
        raise schema_not_found(call.path[2])
    return {"guid": call.path[2].lower(), **content_json(next(iter(holders.values())))}


async def ids_of_guid(call: Call) -> Any:
    holders = call.state.guids.get(call.path[2].lower(), {})
    return [{"context": context, "id": schema_id} for context, schema_id in sorted(holders)]


async def list_schemas(call: Call) -> Any:
    prefix = call.text("subjectPrefix")
    is_everywhere = prefix.startswith(ALL_CONTEXTS) or (not prefix and call.context == DEFAULT_CONTEXT)
    prefix = prefix.removeprefix(ALL_CONTEXTS) if is_everywhere else _prefix(call, prefix)
    found = []
    for subject in sorted(call.state.subjects):
        if subject.startswith(prefix):
            versions = call.state.versions(subject, deleted=call.flag("deleted"))
            found += versions[-1:] if call.flag("latestOnly") else versions
    return [version_json(each) for each in call.paged(found, limit_max=SCHEMAS_MAX)]


async def list_types(call: Call) -> Any:
    return sorted(call.registry.engines.types)


# Compatibility


async def check_version(call: Call) -> Any:
    number = commands.version_number(call.path[4])
    subject = call.named(2)
    if number == commands.LATEST:
        against = call.state.versions(subject)[-1:]
    else:
        version = call.state.version(subject, number)
        if version is None:
            raise version_not_found(number) if call.state.has_subject(subject) else subject_not_found(subject)
        against = [version]
    return await _check(call, subject, against)


async def check_subject(call: Call) -> Any:
    subject = call.named(2)
    return await _check(call, subject, call.state.versions(subject))


async def _check(call: Call, subject: str, against: list[SchemaVersion]) -> Any:
    verbose = call.flag("verbose")
    request = Registration.from_json(subject, call.body, normalize=call.flag("normalize"))
    try:
        reasons = await call.registry.run(registering.check(call.state, request, against))
    except RegistryError as error:
        if not verbose or error.code != INVALID_SCHEMA:
            raise
        reasons = [error.message]
    return {"is_compatible": not reasons} | ({"messages": reasons} if verbose else {})


# Config and mode


def _scope(call: Call) -> str | None:
    """Return the subject or context that settings are asked for; None for the default context."""
    return (call.named(1) if len(call.path) > 1 else in_context(call.context, "")) or None


async def get_config(call: Call) -> Any:
    return commands.read_config(call.state, _scope(call), default_to_global=call.flag("defaultToGlobal"))


async def put_config(call: Call) -> Any:
    return await call.decide(lambda state: commands.change_config(state, _scope(call), call.body))


async def delete_config(call: Call) -> Any:
    return await call.decide(lambda state: commands.remove_config(state, _scope(call)))


async def get_mode(call: Call) -> Any:
    return commands.read_mode(call.state, _scope(call), default_to_global=call.flag("defaultToGlobal"))


async def put_mode(call: Call) -> Any:
    return await call.decide(
        lambda state: commands.change_mode(state, _scope(call), call.body, force=call.flag("force"))
    )


async def delete_mode(call: Call) -> Any:
    return await call.decide(lambda state: commands.remove_mode(state, _scope(call)))


# Contexts, and the server itself


async def list_contexts(call: Call) -> Any:
    found = [name for name, context in call.state.contexts.items() if context.places or name == DEFAULT_CONTEXT]
    prefix = call.text("contextPrefix")
    return call.paged(name for name in sorted(found) if name.startswith(prefix))


async def delete_context(call: Call) -> Any:
    context = context_name(call.path[1])
    if context is None:
        raise RegistryError(400, f"Context name '{call.path[1]}' cannot contain a colon")
    await call.decide(lambda state: commands.delete_context(state, context))
    return None


async def root(call: Call) -> Any:
    return {}


async def cluster_id(call: Call) -> Any:
    group = call.registry.settings.group
    return {"scope": {"path": [], "clusters": {"schema-registry-cluster": group}}}


async def server_version(call: Call) -> Any:
    return {"version": __version__, "commitId": ""}


async def deployment(call: Call) -> Any:
    return {"attributes": ["strandline"]}


_ROUTES: Final[dict[tuple[str, str], Handler]] = {
    ("GET", ""): root,
    ("GET", "subjects"): list_subjects,
    ("POST", "subjects/*"): look_up,
    ("DELETE", "subjects/*"): delete_subject,
    ("GET", "subjects/*/metadata"): latest_with_metadata,
    ("GET", "subjects/*/versions"): list_versions,
    ("POST", "subjects/*/versions"): register,
    ("GET", "subjects/*/versions/*"): get_version,
    ("DELETE", "subjects/*/versions/*"): delete_version,
    ("GET", "subjects/*/versions/*/schema"): get_version_text,
    ("GET", "subjects/*/versions/*/referencedby"): referenced_by,
    ("GET", "schemas"): list_schemas,
    ("GET", "schemas/types"): list_types,
    ("GET", "schemas/ids/*"): get_schema,
    ("GET", "schemas/ids/*/schema"): get_schema_text,
    ("GET", "schemas/ids/*/subjects"): subjects_of_id,
    ("GET", "schemas/ids/*/versions"): versions_of_id,
    ("GET", "schemas/guids/*"): get_guid,
    ("GET", "schemas/guids/*/ids"): ids_of_guid,
    ("POST", "compatibility/subjects/*/versions"): check_subject,
    ("POST", "compatibility/subjects/*/versions/*"): check_version,
    ("GET", "config"): get_config,
    ("GET", "config/*"): get_config,
    ("PUT", "config"): put_config,
    ("PUT", "config/*"): put_config,
    ("DELETE", "config"): delete_config,
    ("DELETE", "config/*"): delete_config,
    ("GET", "mode"): get_mode,
    ("GET", "mode/*"): get_mode,
    ("PUT", "mode"): put_mode,
    ("PUT", "mode/*"): put_mode,
    ("DELETE", "mode"): delete_mode,
    ("DELETE", "mode/*"): delete_mode,
    ("GET", "contexts"): list_contexts,
    ("DELETE", "contexts/*"): delete_context,
    ("GET", "v1/metadata/id"): cluster_id,
    ("GET", "v1/metadata/version"): server_version,
    ("GET", "v1/metadata/deployment"): deployment,
}
