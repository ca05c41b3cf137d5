"""Schemas: subjects and their versions, what changed between two, and a new one that is checked before it is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

from strandline.cli.common.failures import NotFound
from strandline.cli.common.plain_words import count
from strandline.cli.schema.reasons import CompatReason, ask_registry, level_of
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.texts import diff_lines, readable
from strandline.console.context import PageContext
from strandline.console.declarations import (
    ActionDone,
    ActionField,
    ConsoleAction,
    ConsolePage,
    PageModule,
    PageQuery,
    PageTable,
    Values,
)
from strandline.console.failures import PageFailed
from strandline.console.reading.schema_reading import (
    REGISTRY,
    VERSIONS_MAX,
    SubjectVersion,
    read_level,
    read_numbers,
    read_subjects,
    read_version,
    version_of,
)
from strandline.console.reading.web_services import asked, registry_of, require_own_login
from strandline.console.tables import TableHead

TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
LINES_MAX: Final = 5000
"""Lines of a schema or of a difference that a page shows."""
REASONS_SHOWN: Final = 5
ASKED_AT_ONCE: Final = 4
SUFFIXES: Final = ("-value", "-key")
_KINDS: Final = {"+": "added", "-": "removed", "@": "place"}


def subject_path(subject: str, **more: object) -> str:
    """Return the page of a subject. Its name may have a slash, so that it stands in the query."""
    return f"/schemas/subject?{urlencode({'name': subject, **more})}"


HEADS: Final = (
    TableHead("subject", "Subject", "name", link=lambda row: subject_path(row["subject"])),
    TableHead(
        "topic",
        "Topic",
        "text",
        "The topic whose keys or values it is for, by the usual names",
        link=lambda row: f"/topics/{quote(row['topic'], safe='')}",
    ),
    TableHead("part", "Part", "text", "Whether it is for keys or values", is_wide=True),
    TableHead("type", "Type", "text"),
    TableHead("version", "Newest version", "number"),
    TableHead("id", "Id", "number", "The id in front of each value that was written with it", is_wide=True),
)
VERSION_HEADS: Final = (
    TableHead("version", "Version", "name", link=lambda row: subject_path(row["subject"], version=row["version"])),
    TableHead("id", "Id", "number"),
    TableHead("type", "Type", "text", is_wide=True),
    TableHead("size_bytes", "Size", "bytes"),
)


async def schemas(context: PageContext) -> Mapping[str, Any]:
    """Answer which schemas there are."""
    try:
        found = await read_subjects(context)
    except PageFailed as failed:
        if failed.words.status != 501:
            raise
        # A cluster without schemas is no failure.
        context.reading.note(f"{failed.words.sentence}. {failed.words.advice[:1].upper()}{failed.words.advice[1:]}.")
        found = []
    is_known = not context.reading.notes
    level = await context.reading.part("The compatibility level", read_level(context), "") if is_known else ""
    topics = (await context.reading.part("Topics", _topics(context), frozenset())) or frozenset()
    rows = [_row(each, topics) for each in found]
    rule = f"; a new version must be {level} compatible, unless its subject says otherwise" if level else ""
    return {
        "answer": f"There {'is' if len(rows) == 1 else 'are'} {count(len(rows), 'subject')}{rule}.",
        "level": level,
        "from": "registry" if context.cluster.registry else "topic",
        "table": context.table(
            HEADS,
            rows,
            caption="Subjects",
            searched=("subject", "topic", "type"),
            sort="subject",
            empty="No schema is registered yet.",
        ),
    }


async def subject(context: PageContext) -> Mapping[str, Any]:
    """Answer what a subject looks like, and what changed."""
    name = context.query.get("name", "")
    if not name:
        raise PageFailed(400, "The address names no subject", "choose one of the list of schemas")
    numbers = await read_numbers(context, name)
    if len(numbers) > VERSIONS_MAX:
        context.reading.note(f"The newest {VERSIONS_MAX:,} of {len(numbers):,} versions are shown.")
        numbers = numbers[-VERSIONS_MAX:]
    chosen = context.number("version", numbers[-1], least=1, most=2**31 - 1)
    earlier = [each for each in numbers if each < chosen]
    against = context.number("against", earlier[-1] if earlier else 0, most=2**31 - 1)
    level = await context.reading.part("The compatibility level", read_level(context, name), "")
    shown = await read_version(context, name, chosen)
    before = await read_version(context, name, against) if against and against != chosen else None
    text = readable(shown.text, shown.type)
    is_newest = chosen == numbers[-1]
    place = "the newest" if is_newest else f"not the newest, which is {numbers[-1]}"
    rule = f" A new version must be {level} compatible." if level else ""
    topic, part = _topic_of(name, frozenset((await context.reading.metadata()).topics))
    return {
        "answer": f"Version {chosen} is {place}, of {count(len(numbers), 'version')}.{rule}",
        "subject": name,
        "topic": topic,
        "part": part,
        "level": level,
        "version": chosen,
        "id": shown.id,
        "type": shown.type,
        "is_deleted": shown.is_deleted,
        "references": list(shown.references),
        "schema": text,
        "numbers": list(reversed(numbers)),
        "against": against or None,
        "difference": None if before is None else difference(before, shown),
        "versions": context.table(VERSION_HEADS, await _versions(context, name, numbers), caption="Versions", sort=""),
        "may_register": bool(context.cluster.registry),
    }


def difference(before: SubjectVersion, after: SubjectVersion) -> dict[str, Any]:
    """Return what differs between two versions, line by line, and in a sentence."""
    names = (f"version {before.version}", f"version {after.version}")
    found = diff_lines(readable(before.text, before.type), readable(after.text, after.type), names)[2:]
    lines = [{"kind": _KINDS.get(line[:1], "same"), "text": line} for line in found]
    added, removed = (sum(each["kind"] == kind for each in lines) for kind in ("added", "removed"))
    return {
        "sentence": f"From {names[0]} to {names[1]} {count(added, 'line')} were added and {removed} removed."
        if lines
        else f"{names[0].capitalize()} and {names[1]} are the same.",
        "lines": lines[:LINES_MAX],
        "left_out": max(0, len(lines) - LINES_MAX),
    }


async def _versions(context: PageContext, name: str, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Return the rows of the table. Those that a registry answers late or not at all have their number alone."""
    newest = list(reversed(numbers))
    room = asyncio.Semaphore(ASKED_AT_ONCE)

    async def row(number: int) -> dict[str, Any]:
        async with room:
            found = await context.reading.part("A version", read_version(context, name, number), None)
        known = {} if found is None else {"id": found.id, "type": found.type, "size_bytes": len(found.text.encode())}
        return {"subject": name, "version": number, "id": None, "type": None, "size_bytes": None} | known

    details = 20
    return [*await asyncio.gather(*(row(each) for each in newest[:details]))] + [
        {"subject": name, "version": each, "id": None, "type": None, "size_bytes": None} for each in newest[details:]
    ]


def _row(found: SubjectVersion, topics: frozenset[str]) -> dict[str, Any]:
    topic, part = _topic_of(found.subject, topics)
    return {
        "subject": found.subject,
        "topic": topic,
        "part": part,
        "type": found.type,
        "version": found.version,
        "id": found.id,
    }


def _topic_of(subject: str, topics: frozenset[str]) -> tuple[str | None, str | None]:
    """Return the topic that a subject is for, if there is one, and the part of its records."""
    for suffix in SUFFIXES:
        if subject.endswith(suffix) and subject.removesuffix(suffix) in topics:
            return subject.removesuffix(suffix), suffix[1:]
    return None, None


async def _topics(context: PageContext) -> frozenset[str]:
    return frozenset((await context.reading.metadata()).topics)


# Registering


def _body(values: Values) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": values["schema"]}
    if values["type"] != "AVRO":
        body["schemaType"] = values["type"]
    references = []
    for line in filter(None, map(str.strip, values["references"].splitlines())):
        name, _, place = line.partition("=")
        target, _, version = place.rpartition(":")
        if not (name and target and version.isascii() and version.isdigit()):
            raise PageFailed(400, f"{line} is no reference", "write NAME=SUBJECT:VERSION, each on a line of its own")
        references.append({"name": name, "subject": target, "version": int(version)})
    return body | ({"references": references} if references else {})


async def plan(context: PageContext, values: Values) -> Sequence[str]:
    """Return what the registry would do. Raise PageFailed with its reasons if it would not take the schema."""
    api = registry_of(context)
    require_own_login(context, context.cluster.registry, "the registry")
    return await asked(context, REGISTRY, lambda: _planned(api, values))


def _planned(api: SchemaApi, values: Values) -> list[str]:
    name, body = values["subject"], _body(values)
    known = _registered(api, name, body)
    if known is not None:
        return [f"it is version {known[0]} of {name} already, with the id {known[1]}: nothing changes"]
    reasons = ask_registry(api, name, body)
    level = level_of(api, name)
    if reasons is not None:
        raise PageFailed(409, _refusal(name, level, reasons), "change what is named, and continue again")
    try:
        newest = version_of(api, name, "latest")
    except NotFound:
        return [f"{name} is new, and this is its first version", f"later ones must be {level}"]
    after = SubjectVersion(name, newest.version + 1, 0, values["type"], values["schema"])
    return [
        f"it is compatible ({level})",
        f"it becomes the newest version of {name}, after version {newest.version}",
        difference(newest, after)["sentence"].removesuffix("."),
    ]


def _registered(api: SchemaApi, name: str, body: Mapping[str, Any]) -> tuple[int, int] | None:
    try:
        found = api.ask("POST", "subjects", name, body=dict(body))
    except NotFound:
        return None
    return int(found["version"]), int(found["id"])


def _refusal(name: str, level: str, reasons: Sequence[CompatReason]) -> str:
    told = [
        f"{f'version {each.version}: ' if each.version is not None else ''}{each.text.rstrip('.')}" for each in reasons
    ]
    more = f"; and {len(told) - REASONS_SHOWN} more" if len(told) > REASONS_SHOWN else ""
    return f"{name} does not take this schema ({level}): {'; '.join(told[:REASONS_SHOWN])}{more}"


async def register(context: PageContext, values: Values) -> ActionDone:
    api, body = registry_of(context), _body(values)
    require_own_login(context, context.cluster.registry, "the registry")

    def ask() -> tuple[int, int]:
        made = api.ask("POST", "subjects", values["subject"], "versions", body=body)
        # Older registries answer with the id alone.
        known = _registered(api, values["subject"], body) if "version" not in made else None
        return (int(made["version"]), int(made["id"])) if known is None else known

    version, schema_id = await asked(context, REGISTRY, ask)
    words = f"{values['subject']} version {version} has the id {schema_id}."
    return ActionDone(words, subject_path(values["subject"], version=version))


def command(values: Values) -> Sequence[str]:
    words = ["schema", "register", values["subject"], "FILE", "--type", values["type"]]
    for line in filter(None, map(str.strip, values["references"].splitlines())):
        words += ["--reference", line]
    return words


REGISTER: Final = ConsoleAction(
    name="schema-register",
    title="Register a schema {subject}",
    button="Register",
    run=register,
    command=command,
    server="registry",
    plan=plan,
    consequence="Producers and consumers of {subject} may use this schema from then on.",
    fields=(
        ActionField("subject", "Subject", hint="Usually TOPIC-value or TOPIC-key"),
        ActionField("type", "Type", "choice", "AVRO", choices=TYPES),
        ActionField("schema", "Schema", "area", hint="It is checked before you confirm"),
        ActionField("references", "References", "area", hint="NAME=SUBJECT:VERSION, one a line", is_required=False),
    ),
    under="schemas",
)


def _delete_path(values: Values) -> tuple[str, ...]:
    version = values["version"]
    return ("subjects", values["subject"], *(("versions", version) if version else ()))


async def deletion(context: PageContext, values: Values) -> Sequence[str]:
    """Return what would be deleted, and what stays."""
    api = registry_of(context)
    require_own_login(context, context.cluster.registry, "the registry")

    def read() -> list[str]:
        if values["version"]:
            numbers = [version_of(api, values["subject"], values["version"]).version]
        else:
            numbers = [int(each) for each in api.ask("GET", "subjects", values["subject"], "versions")]
        shown = ", ".join(map(str, numbers[:REASONS_SHOWN])) + (", ..." if len(numbers) > REASONS_SHOWN else "")
        return [
            f"delete {count(len(numbers), 'version')} of {values['subject']}: {shown}",
            "records that were written with it can still be read, because its id stays",
        ]

    return await asked(context, REGISTRY, read)


async def delete(context: PageContext, values: Values) -> ActionDone:
    api = registry_of(context)
    require_own_login(context, context.cluster.registry, "the registry")
    await asked(context, REGISTRY, lambda: api.ask("DELETE", *_delete_path(values)))
    what = f"Version {values['version']} of {values['subject']}" if values["version"] else values["subject"]
    return ActionDone(f"{what} was deleted.", "/schemas")


def delete_command(values: Values) -> Sequence[str]:
    return [
        *("schema", "delete", values["subject"]),
        *(("--version", values["version"]) if values["version"] else ()),
    ]


DELETE: Final = ConsoleAction(
    name="schema-delete",
    title="Delete schema {subject}",
    button="Delete",
    run=delete,
    command=delete_command,
    server="registry",
    plan=deletion,
    consequence="Producers of {subject} cannot use it any more, and it takes no part in compatibility.",
    fields=(
        ActionField("subject", "Subject", is_fixed=True),
        ActionField("version", "Only version", "number", is_fixed=True, is_required=False),
    ),
    is_dangerous=True,
    typed="subject",
    under="schemas",
)
MODULE: Final = PageModule(
    pages=(
        ConsolePage(
            name="schemas",
            path="/schemas",
            title="Schemas",
            question="Which schemas are there, and for which topics?",
            model=schemas,
            template="schemas.html",
            tables=(PageTable("table", HEADS),),
            group="Data",
        ),
        ConsolePage(
            name="subject",
            path="/schemas/subject",
            title="Schema",
            question="What does a value look like, and what changed?",
            model=subject,
            template="subject.html",
            tables=(PageTable("versions", VERSION_HEADS, ""),),
            queries=(
                PageQuery("name", "The subject", is_required=True),
                PageQuery("version", "A version; the newest by default"),
                PageQuery("against", "The version to compare with"),
            ),
            under="schemas",
        ),
    ),
    actions=(REGISTER, DELETE),
)
