"""Subjects and versions of schemas: of a registry by REST, or else of the cluster's topic `_schemas`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.common.failures import NotFound
from strandline.cli.schema.registry_api import SchemaApi
from strandline.client.cluster_client import ClusterClient
from strandline.console.context import PageContext
from strandline.console.failures import PageFailed
from strandline.console.reading.web_services import asked, registry_of
from strandline.schemas.records import SCHEMAS_TOPIC, SchemaRecord, SchemaVersion
from strandline.schemas.state import RegistryState

SUBJECTS_S: Final = 5.0
TOPIC_S: Final = 15.0
RECORDS_MAX: Final = 200_000
SUBJECTS_MAX: Final = 50_000
VERSIONS_MAX: Final = 1000
_PAGE: Final = 500
REGISTRY: Final = "The schema registry"
NO_SCHEMAS: Final = (
    "This console knows no schema registry, and the cluster has no topic of schemas. "
    "Start the console with --registry URL, and a registry with `strandline registry serve`."
)


@dataclass(frozen=True)
class SubjectVersion:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    type: str
    text: str
    references: tuple[str, ...] = ()
    is_deleted: bool = False


async def read_subjects(context: PageContext) -> list[SubjectVersion]:
    """Return the newest version of each subject."""
    if not context.cluster.registry:
        state = await _topic_state(context)
        known = [state.versions(subject) for subject in sorted(state.subjects)]
        return [_of_topic(versions[-1]) for versions in known if versions]
    api = registry_of(context)

    def read() -> list[SubjectVersion]:
        found: list[Any] = []
        while len(found) < SUBJECTS_MAX:
            page = api.ask("GET", "schemas", latestOnly=True, offset=len(found), limit=_PAGE)
            found += page
            if len(page) < _PAGE:
                break
        return [_of_answer(each) for each in found]

    return await context.reading.know("schemas", lambda: asked(context, REGISTRY, read), SUBJECTS_S)


async def read_level(context: PageContext, subject: str | None = None) -> str:
    """Return the compatibility level of a subject, or the one of all that have none of their own."""
    if not context.cluster.registry:
        state = await _topic_state(context)
        return str(state.config_in_scope(subject)["compatibilityLevel"])
    api = registry_of(context)

    def read() -> str:
        path = ("config",) if subject is None else ("config", subject)
        more = {} if subject is None else {"defaultToGlobal": True}
        return str(api.ask("GET", *path, **more)["compatibilityLevel"])

    return await context.reading.know(("level", subject), lambda: asked(context, REGISTRY, read), SUBJECTS_S)


async def read_numbers(context: PageContext, subject: str) -> list[int]:
    """Return the versions of a subject, in order. Raise PageFailed if there is no such subject."""
    if not context.cluster.registry:
        numbers = [each.version for each in (await _topic_state(context)).versions(subject)]
        if not numbers:
            raise _unknown(subject)
        return numbers
    api = registry_of(context)

    def read() -> list[int]:
        return [int(each) for each in api.ask("GET", "subjects", subject, "versions")]

    try:
        return await context.reading.know(("versions", subject), lambda: asked(context, REGISTRY, read), SUBJECTS_S)
    except NotFound:
        raise _unknown(subject) from None


async def read_version(context: PageContext, subject: str, number: int) -> SubjectVersion:
    """Return a version of a subject, also one that is deleted but not for good."""
    if not context.cluster.registry:
        found = (await _topic_state(context)).version(subject, number, deleted=True)
        if found is None:
            raise _unknown(subject, number)
        return _of_topic(found)
    api = registry_of(context)

    def read() -> SubjectVersion:
        return version_of(api, subject, number)

    # A version never changes, but it may be deleted.
    key = ("version", subject, number)
    try:
        return await context.reading.know(key, lambda: asked(context, REGISTRY, read), 60.0)
    except NotFound:
        raise _unknown(subject, number) from None


def version_of(api: SchemaApi, subject: str, number: int | str) -> SubjectVersion:
    """Ask a registry for a version, or for the `latest` one. Raise NotFound."""
    return _of_answer(api.ask("GET", "subjects", subject, "versions", str(number), deleted=number != "latest"))


async def _topic_state(context: PageContext) -> RegistryState:
    """Return the fold of the topic of schemas. Raise PageFailed if there is none, or if it cannot be read."""
    if SCHEMAS_TOPIC not in (await context.reading.metadata()).topics:
        raise PageFailed(501, NO_SCHEMAS.partition(". ")[0], NO_SCHEMAS.partition(". ")[2].rstrip("."))
    try:
        from strandline.client.followed_topic import FollowedTopic
    except ModuleNotFoundError as error:
        advice = "start the console with --registry URL, or pip install 'strandline[spark]'"
        raise PageFailed(501, f"The topic {SCHEMAS_TOPIC} needs {error.name} to be read", advice) from None

    def read(client: ClusterClient) -> RegistryState:
        state, taken = RegistryState(), 0

        def take(key: bytes | None, value: bytes | None) -> None:
            nonlocal taken
            taken += 1
            if taken > RECORDS_MAX:
                advice = "start the console with --registry URL"
                raise PageFailed(507, f"The topic {SCHEMAS_TOPIC} has more than {RECORDS_MAX:,} records", advice)
            state.apply(SchemaRecord(key or b"", value))

        FollowedTopic(client, SCHEMAS_TOPIC).read_on(lambda: None, take)
        return state

    return await context.reading.know("schemas-topic", lambda: context.reading.shared.ask(read), TOPIC_S)


def _of_topic(found: SchemaVersion) -> SubjectVersion:
    references = tuple(f"{each.name}={each.subject}:{each.version}" for each in found.content.references)
    return SubjectVersion(
        found.subject, found.version, found.id, found.content.type, found.content.text, references, found.deleted
    )


def _of_answer(found: Any) -> SubjectVersion:
    return SubjectVersion(
        str(found["subject"]),
        int(found["version"]),
        int(found["id"]),
        str(found.get("schemaType") or "AVRO"),
        str(found["schema"]),
        tuple(f"{each['name']}={each['subject']}:{each['version']}" for each in found.get("references") or ()),
        bool(found.get("deleted")),
    )


def _unknown(subject: str, number: int | None = None) -> PageFailed:
    version = "" if number is None else f"version {number} of "
    return PageFailed(404, f"There is no {version or 'subject '}{subject}", "see the list of schemas")
