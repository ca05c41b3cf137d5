"""The routes of Confluent's REST API. Each takes a `Call` and returns JSON, or a text as it is.

/subjects  /subjects/{s}  /subjects/{s}/versions  .../{v}  .../schema  .../referencedby  /subjects/{s}/metadata
/schemas  /schemas/types  /schemas/ids/{id}  .../schema  .../subjects  .../versions  /schemas/guids/{guid}  .../ids
/config  /config/{s}  /mode  /mode/{s}  /compatibility/subjects/{s}/versions  .../{v}  /contexts  /contexts/{c}
/contexts/{c}/...   the same API inside a context

Each route declares the right that its caller needs. Routes without one show only what the caller may see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from strandline import __version__
from strandline.schemas import commands, registering
from strandline.schemas.contracts import Json, json_of
from strandline.schemas.engines import Engines, in_thread
from strandline.schemas.failures import (
    INVALID_SCHEMA,
    RegistryError,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from strandline.schemas.http.answers import content_json, registered_json, version_json
from strandline.schemas.http.call import Call, Plain
from strandline.schemas.http.rights import Right
from strandline.schemas.records import SchemaContent, SchemaVersion
from strandline.schemas.registering import Registration
from strandline.schemas.resolving import source_of
from strandline.schemas.subjects import ALL_CONTEXTS, DEFAULT_CONTEXT, context_name, context_of, in_context

PROTOBUF: Final = "PROTOBUF"
SERIALIZED: Final = "serialized"
SCHEMAS_MAX: Final = 1000
"""Schemas with their texts in one answer."""

Handler = Callable[[Call], Awaitable[Any]]


class RegistryRoute(NamedTuple):
    """What answers a request, and the right that it needs on what its path names."""

    handler: Handler
    right: Right | None
    """None: it is open to every caller, and shows nothing of a subject that the caller does not see."""


def routed(call: Call) -> tuple[Handler, Call]:
    """Return what answers a request, and the request inside its context. Raise RegistryError if it may not."""
    call = _in_context(call)
    shape = _shape(call.path)
    route = _ROUTES.get((call.method, shape))
    if route is None:
        known = any(known == shape for _, known in _ROUTES)
        raise RegistryError(405, "HTTP 405 Method Not Allowed") if known else RegistryError(404, "HTTP 404 Not Found")
    if route.right is not None:
        call.require(route.right)
    return route.handler, call


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
            is_asked = (not is_there) if deleted_only else (is_there or call.flag("deleted"))
            if is_asked and call.sees(subject):
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
    return call.paged(sorted({schema_id for place, schema_id in places.items() if call.sees(place[0])}))


# Schemas by id


def _id(call: Call) -> tuple[str, int]:
    """Return the context and the id that a path names; a subject in the query says which context."""
    text = call.path[2]
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise RegistryError(404, "HTTP 404 Not Found")
    subject = call.text("subject")
    return (context_of(subject) if subject.startswith(":.") else call.context), int(text)


def _seen(call: Call) -> tuple[str, int, SchemaContent] | None:
    """Return a subject that the caller sees and that has the id of a path, its version, and what the id stands for."""
    context, schema_id = _id(call)
    known = call.state.contexts.get(context)
    for (subject, version), content in (known.places.get(schema_id, {}) if known else {}).items():
        if call.sees(subject):
            return subject, version, content
    return None


# An id that the caller may not see has the same answer as one that was never given out.


async def get_schema(call: Call) -> Any:
    place = _seen(call)
    if place is None:
        raise schema_not_found(_id(call)[1])
    subject, version, content = place
    stored = call.state.version(subject, version, deleted=True)
    found = {"guid": stored.guid if stored else content.guid, **content_json(content)}
    found |= await _formatted(call, subject, content)
    if call.flag("fetchMaxId"):
        found["maxId"] = call.state.contexts[context_of(subject)].id_max
    return found


async def get_schema_text(call: Call) -> Any:
    place = _seen(call)
    if place is None:
        raise schema_not_found(_id(call)[1])
    return Plain(place[2].text)


async def subjects_of_id(call: Call) -> Any:
    return call.paged(dict.fromkeys(each.subject for each in _versions_of_id(call)))


async def versions_of_id(call: Call) -> Any:
    return call.paged({"subject": each.subject, "version": each.version} for each in _versions_of_id(call))


def _versions_of_id(call: Call) -> list[SchemaVersion]:
    if _seen(call) is None:
        raise schema_not_found()
    found = call.state.versions_of_id(*_id(call), deleted=call.flag("deleted"))
    return [each for each in found if call.sees(each.subject)]


async def get_guid(call: Call) -> Any:
    for place, content in call.state.guids.get(call.path[2].lower(), {}).items():
        if call.sees_id(*place):
            return {"guid": call.path[2].lower(), **content_json(content)}
    raise schema_not_found(call.path[2])


async def ids_of_guid(call: Call) -> Any:
    holders = sorted(call.state.guids.get(call.path[2].lower(), {}))
    return [{"context": context, "id": each} for context, each in holders if call.sees_id(context, each)]


async def list_schemas(call: Call) -> Any:
    prefix = call.text("subjectPrefix")
    is_everywhere = prefix.startswith(ALL_CONTEXTS) or (not prefix and call.context == DEFAULT_CONTEXT)
    prefix = prefix.removeprefix(ALL_CONTEXTS) if is_everywhere else _prefix(call, prefix)
    found = []
    for subject in sorted(call.state.subjects):
        if subject.startswith(prefix) and call.sees(subject):
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


async def get_config(call: Call) -> Any:
    return commands.read_config(call.state, call.scope(), default_to_global=call.flag("defaultToGlobal"))


async def put_config(call: Call) -> Any:
    return await call.decide(lambda state: commands.change_config(state, call.scope(), call.body))


async def delete_config(call: Call) -> Any:
    return await call.decide(lambda state: commands.remove_config(state, call.scope()))


async def get_mode(call: Call) -> Any:
    return commands.read_mode(call.state, call.scope(), default_to_global=call.flag("defaultToGlobal"))


async def put_mode(call: Call) -> Any:
    return await call.decide(
        lambda state: commands.change_mode(state, call.scope(), call.body, force=call.flag("force"))
    )


async def delete_mode(call: Call) -> Any:
    return await call.decide(lambda state: commands.remove_mode(state, call.scope()))


# Contexts, and the server itself


async def list_contexts(call: Call) -> Any:
    found = {DEFAULT_CONTEXT} | {context_of(subject) for subject in call.state.subjects if call.sees(subject)}
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


_ROUTES: Final[dict[tuple[str, str], RegistryRoute]] = {
    ("GET", ""): RegistryRoute(root, None),
    ("GET", "subjects"): RegistryRoute(list_subjects, None),
    ("POST", "subjects/*"): RegistryRoute(look_up, Right.SEE),
    ("DELETE", "subjects/*"): RegistryRoute(delete_subject, Right.DELETE),
    ("GET", "subjects/*/metadata"): RegistryRoute(latest_with_metadata, Right.SEE),
    ("GET", "subjects/*/versions"): RegistryRoute(list_versions, Right.SEE),
    ("POST", "subjects/*/versions"): RegistryRoute(register, Right.REGISTER),
    ("GET", "subjects/*/versions/*"): RegistryRoute(get_version, Right.SEE),
    ("DELETE", "subjects/*/versions/*"): RegistryRoute(delete_version, Right.DELETE),
    ("GET", "subjects/*/versions/*/schema"): RegistryRoute(get_version_text, Right.SEE),
    ("GET", "subjects/*/versions/*/referencedby"): RegistryRoute(referenced_by, Right.SEE),
    ("GET", "schemas"): RegistryRoute(list_schemas, None),
    ("GET", "schemas/types"): RegistryRoute(list_types, None),
    ("GET", "schemas/ids/*"): RegistryRoute(get_schema, None),
    ("GET", "schemas/ids/*/schema"): RegistryRoute(get_schema_text, None),
    ("GET", "schemas/ids/*/subjects"): RegistryRoute(subjects_of_id, None),
    ("GET", "schemas/ids/*/versions"): RegistryRoute(versions_of_id, None),
    ("GET", "schemas/guids/*"): RegistryRoute(get_guid, None),
    ("GET", "schemas/guids/*/ids"): RegistryRoute(ids_of_guid, None),
    ("POST", "compatibility/subjects/*/versions"): RegistryRoute(check_subject, Right.SEE),
    ("POST", "compatibility/subjects/*/versions/*"): RegistryRoute(check_version, Right.SEE),
    ("GET", "config"): RegistryRoute(get_config, Right.SEE),
    ("GET", "config/*"): RegistryRoute(get_config, Right.SEE),
    ("PUT", "config"): RegistryRoute(put_config, Right.CONFIGURE),
    ("PUT", "config/*"): RegistryRoute(put_config, Right.CONFIGURE),
    ("DELETE", "config"): RegistryRoute(delete_config, Right.CONFIGURE),
    ("DELETE", "config/*"): RegistryRoute(delete_config, Right.CONFIGURE),
    ("GET", "mode"): RegistryRoute(get_mode, Right.SEE),
    ("GET", "mode/*"): RegistryRoute(get_mode, Right.SEE),
    ("PUT", "mode"): RegistryRoute(put_mode, Right.CONFIGURE),
    ("PUT", "mode/*"): RegistryRoute(put_mode, Right.CONFIGURE),
    ("DELETE", "mode"): RegistryRoute(delete_mode, Right.CONFIGURE),
    ("DELETE", "mode/*"): RegistryRoute(delete_mode, Right.CONFIGURE),
    ("GET", "contexts"): RegistryRoute(list_contexts, None),
    ("DELETE", "contexts/*"): RegistryRoute(delete_context, Right.CONFIGURE),
    ("GET", "v1/metadata/id"): RegistryRoute(cluster_id, None),
    ("GET", "v1/metadata/version"): RegistryRoute(server_version, None),
    ("GET", "v1/metadata/deployment"): RegistryRoute(deployment, None),
}
