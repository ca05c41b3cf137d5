"""Schemas of subjects in a registry, and the compatibility that each subject asks of the next one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, UsageFailed
from strandline.cli.common.options import REGISTRY_DEFAULT
from strandline.cli.config.access import known_topics
from strandline.cli.contract.kinds import Access, Action, ContractDefaults, ContractItem, ContractStep, Turn
from strandline.cli.contract.schema_contract import (
    SubjectChange,
    SubjectContract,
    SubjectState,
    export_subject,
    parse_subject,
    subject_details,
    subject_losses,
)
from strandline.cli.schema.access import schema_body
from strandline.cli.schema.reasons import CompatReason, ask_registry, compare_here, level_of
from strandline.cli.schema.registry_api import RegistryRefused, SchemaApi
from strandline.cli.schema.sources import SchemaSources, engines_for
from strandline.cli.schema.texts import diff_lines, readable
from strandline.documents.fields import Fields
from strandline.schemas.engines import SchemaSource
from strandline.schemas.failures import RegistryError

_PAGE = 500

Registrations = dict[str, Callable[[], None]]
"""By subject, what registers it: a schema may refer to another one of the same plan."""


@dataclass(frozen=True)
class SchemaKind:
    field: str = "schemas"

    def parse(self, fields: Fields, defaults: ContractDefaults) -> ContractItem:
        subject = parse_subject(fields)
        return ContractItem(subject.subject, subject, fields.path)

    def steps(self, access: Access, items: Sequence[ContractItem]) -> list[ContractStep]:
        if not items:
            return []
        sources = SchemaSources(api_of(access))
        registrations: Registrations = {}
        changes = [_change(sources, item) for item in items]
        for change in changes:
            if change.body is not None:
                registrations[change.wanted.subject] = partial(_run, sources.api, change, registrations)
        return [_step(sources, change, registrations) for change in changes if not change.is_empty]

    def export(self, access: Access, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        api = api_of(access)
        wanted = {f"{name}-{part}" for name in names for part in ("value", "key")}
        found: dict[str, list[dict[str, Any]]] = {}
        try:
            topics = set(known_topics(access.cluster, access.admin))
            for latest in _latest_versions(api):
                subject = latest["subject"]
                if not names or subject in wanted:
                    file, entry = export_subject(subject, latest, _own_level(api, subject), topics)
                    found.setdefault(file, []).append(entry)
        except CommandFailed as failure:
            # Most clusters have no registry, and then there is nothing to say.
            if access.registry_url is not None or not isinstance(failure, Unreachable):
                access.notes.append(f"schemas are not exported: {failure.message}")
            return {}
        return found

    def unmanaged(self, access: Access, items: Sequence[ContractItem]) -> list[str]:
        if not items:
            return []
        named = {item.value.subject for item in items}
        subjects = [each["subject"] for each in _latest_versions(api_of(access))]
        return [f"subject {each}" for each in subjects if each not in named]


# Reading


def api_of(access: Access) -> SchemaApi:
    return SchemaApi(access.registry_url or REGISTRY_DEFAULT, access.cluster.timeout_s)


def _latest_versions(api: SchemaApi) -> Iterator[dict[str, Any]]:
    offset = 0
    while True:
        page = api.ask("GET", "schemas", latestOnly=True, offset=offset, limit=_PAGE)
        yield from page
        if len(page) != _PAGE:
            return
        offset += len(page)


def _own_level(api: SchemaApi, subject: str) -> str | None:
    try:
        level: str = api.ask("GET", "config", subject)["compatibilityLevel"]
    except NotFound:
        return None
    return level


def _state(api: SchemaApi, subject: str) -> SubjectState:
    try:
        latest = api.ask("GET", "subjects", subject, "versions", "latest")
    except NotFound:
        latest = None
    own = _own_level(api, subject)
    return SubjectState(latest, own or level_of(api, subject), own is not None)


def _change(sources: SchemaSources, item: ContractItem) -> SubjectChange:
    wanted: SubjectContract = item.value
    api, before = sources.api, _state(sources.api, wanted.subject)
    if wanted.is_absent:
        # A subject that is not there needs no step.
        return SubjectChange(wanted if before.latest else SubjectContract(wanted.subject), before)
    level = wanted.compatibility if wanted.compatibility != before.level else None
    body = _body(item)
    if body is None:
        return SubjectChange(wanted, before, None, level)
    version = _version_of(api, wanted.subject, body)
    if version is not None:
        numbers = api.ask("GET", "subjects", wanted.subject, "versions")
        return SubjectChange(wanted, before, None, level, tuple(each for each in numbers if each > version))
    if before.latest is None:
        return SubjectChange(wanted, before, body, level)
    unreadable, lines = _compared(sources, wanted.subject, before.latest, body)
    return SubjectChange(wanted, before, body, level, (), unreadable, lines)


def _body(item: ContractItem) -> dict[str, Any] | None:
    """Return the schema of an entry as a request has it. Its file is beside the contract."""
    wanted: SubjectContract = item.value
    if wanted.file is not None:
        beside = Path(item.source.file).parent if item.source is not None else Path()
        try:
            body = schema_body(str(beside / wanted.file), wanted.type, None)
        except CommandFailed as failure:
            raise UsageFailed(f"{item.place}: {failure.message}") from None
    elif wanted.text is not None:
        body = {"schema": wanted.text} | ({"schemaType": wanted.type} if wanted.type not in (None, "AVRO") else {})
    else:
        return None
    return body | ({"references": [dict(each) for each in wanted.references]} if wanted.references else {})


def _version_of(api: SchemaApi, subject: str, body: Mapping[str, Any]) -> int | None:
    """Return the version of a subject that has a schema; None if none has."""
    try:
        version: int = api.ask("POST", "subjects", subject, body=body)["version"]
    except (NotFound, RegistryRefused):
        # What is no schema is refused with its reason when the plan is made.
        return None
    return version


def _compared(
    sources: SchemaSources, subject: str, latest: Mapping[str, Any], body: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return why readers with the last version could not read the new schema's records, and the lines that differ."""
    try:
        old, new = sources.of(latest, subject), sources.of(body, subject)
        reasons = compare_here("FORWARD", new, [(latest["version"], old)])
        unreadable = tuple(each.text for each in reasons or ())
        before, after = (readable(_canonical(each), each.type) for each in (old, new))
    except CommandFailed as failure:
        # What cannot be compared may break a reader.
        return (f"this could not be compared: {failure.message}",), ()
    lines = diff_lines(before, after, ("", ""))
    return unreadable, tuple(each for each in lines if each[:1] in "+-" and each[:3] not in ("+++", "---"))


def _canonical(source: SchemaSource) -> str:
    try:
        return engines_for([source]).parse(source).canonical()
    except RegistryError as error:
        raise CommandFailed(error.message) from None


# Changing


def _step(sources: SchemaSources, change: SubjectChange, registrations: Registrations) -> ContractStep:
    if change.wanted.is_absent or change.removed:
        action, turn = Action.DELETE if change.wanted.is_absent else Action.CHANGE, Turn.DELETE
    elif change.before.latest is None and change.body is not None:
        action, turn = Action.CREATE, Turn.CREATE
    else:
        action, turn = Action.CHANGE, Turn.CHANGE
    return ContractStep(
        "schemas",
        action,
        f"subject {change.wanted.subject}",
        turn,
        partial(_run, sources.api, change, registrations),
        tuple(subject_details(change)),
        tuple(subject_losses(change)),
        _refusal(sources, change, registrations),
        change,
    )


def _refusal(sources: SchemaSources, change: SubjectChange, registrations: Registrations) -> str:
    """Return why the registry would not take the schema, under the level that the contract says."""
    subject = change.wanted.subject
    if change.body is None or any(each["subject"] in registrations for each in change.wanted.references):
        return ""
    try:
        if change.level is None or change.before.latest is None:
            reasons = ask_registry(sources.api, subject, dict(change.body))
        else:
            reasons = compare_here(change.level, sources.of(change.body, subject), sources.versions(subject))
    except Unreachable:
        raise
    except CommandFailed as failure:
        return failure.message
    return "" if reasons is None else _words(change, reasons)


def _words(change: SubjectChange, reasons: Sequence[CompatReason]) -> str:
    if not reasons[0].kind:
        return reasons[0].text
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    level = change.level or change.before.level
    file = change.wanted.file or "FILE"
    return (
        f"not compatible under {level}: {reasons[0].text}{more}. "
        f"`strandline schema evolve {change.wanted.subject} {file}` names the nearest change that passes"
    )


def _run(api: SchemaApi, change: SubjectChange, registrations: Registrations) -> None:
    subject = change.wanted.subject
    if change.wanted.is_absent:
        api.ask("DELETE", "subjects", subject)
        return
    if change.level is not None:
        api.ask("PUT", "config", subject, body={"compatibility": change.level})
    for version in reversed(change.removed):
        api.ask("DELETE", "subjects", subject, "versions", str(version))
    if change.body is None:
        return
    for each in change.wanted.references:
        # What it refers to comes first. To do the same again, in a step of its own, changes nothing.
        before = registrations.pop(each["subject"], None)
        if before is not None and each["subject"] != subject:
            before()
    api.ask("POST", "subjects", subject, "versions", body=change.body)
