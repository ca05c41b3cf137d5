"""Deleting versions and subjects; setting configs and modes. Commands upon a state, as those of `registering`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from strandline.schemas import failures
from strandline.schemas.compatibility import LEVELS
from strandline.schemas.contracts import Json, metadata_of, rule_set_of
from strandline.schemas.failures import (
    RegistryError,
    invalid_version,
    not_permitted,
    subject_not_found,
    version_not_found,
)
from strandline.schemas.records import (
    CONFIG_FIELDS,
    INT_MAX,
    MODES,
    ConfigKey,
    ContextKey,
    ModeKey,
    SchemaKey,
    SchemaRecord,
    SchemaVersion,
    config_record,
    context_record,
    decode_key,
    delete_subject_record,
    mode_record,
    removal,
    schema_record,
)
from strandline.schemas.registering import Written
from strandline.schemas.state import DEFAULT_MODE, RegistryState
from strandline.schemas.subjects import DEFAULT_CONTEXT, GLOBAL_CONTEXT, context_of, in_context, is_valid, split

LATEST: Final = -1

_LEVEL_FIELDS: Final = ("compatibility", "compatibilityLevel")
_FLAGS: Final = ("normalize", "validateFields", "validateRules")
_STRINGS: Final = ("alias", "compatibilityGroup")


def version_number(text: str) -> int:
    """Return the version that a path names, LATEST for the last one."""
    text = text.strip()
    if text.lower() == "latest" or text == "-1":
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:11]) <= INT_MAX:
        raise invalid_version(text)
    return int(text)


def find_version(state: RegistryState, subject: str, version: int, *, deleted: bool = False) -> SchemaVersion:
    """Return a version of a subject. Raise RegistryError if it is not there."""
    if version == LATEST:
        versions = state.versions(subject, deleted=deleted)
        found = versions[-1] if versions else None
    else:
        found = state.version(subject, version, deleted=deleted)
    if found is not None:
        return found
    raise version_not_found(version) if state.has_subject(subject, deleted=deleted) else subject_not_found(subject)


def delete_version(state: RegistryState, subject: str, version: int, *, permanent: bool) -> Written[int]:
    if version == LATEST and not permanent and state.has_subject(subject):
        found = find_version(state, subject, version)
    else:
        found = find_version(state, subject, version, deleted=True)
    if found.deleted and not permanent:
        raise RegistryError(
            failures.VERSION_SOFT_DELETED,
            f"Subject '{subject}' Version {found.version} was soft deleted.Set permanent=true to delete permanently",
        )
    _check_writable(state, subject)
    if state.referring_to(subject, found.version, deleted=permanent):
        raise _referenced(subject, found.version)
    if not permanent:
        return Written((schema_record(replace(found, deleted=True)),), found.version)
    if not found.deleted:
        raise RegistryError(
            failures.VERSION_NOT_SOFT_DELETED,
            f"Subject '{subject}' Version {found.version} was not deleted first before being permanently deleted",
        )
    return Written(_removals(state, subject, [found]), found.version)


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Written[list[int]]:
    if not state.has_subject(subject, deleted=True):
        raise subject_not_found(subject)
    if not permanent and not state.has_subject(subject):
        raise RegistryError(
            failures.SUBJECT_SOFT_DELETED,
            f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently",
        )
    _check_writable(state, subject)
    versions = state.versions(subject, deleted=permanent)
    for each in versions:
        if any(place[0] != subject for place in state.referring_to(subject, each.version, deleted=permanent)):
            raise _referenced(subject, each.version)
    numbers = [each.version for each in versions]
    if not permanent:
        return Written((delete_subject_record(subject, numbers[-1]),), numbers)
    if not all(each.deleted for each in versions):
        raise RegistryError(
            failures.SUBJECT_NOT_SOFT_DELETED,
            f"Subject '{subject}' was not deleted first before being permanently deleted",
        )
    return Written(_removals(state, subject, versions), numbers)


def delete_context(state: RegistryState, context: str) -> Written[None]:
    """Forget a context that has no schemas."""
    if context == DEFAULT_CONTEXT or any(context_of(subject) == context for subject in state.subjects):
        raise RegistryError(failures.CONTEXT_NOT_EMPTY, f"The specified context '{context}' is not empty.")
    name = in_context(context, "")
    written = [
        removal(key(name)) for key, values in ((ConfigKey, state.configs), (ModeKey, state.modes)) if name in values
    ]
    known = state.contexts.get(context)
    if known is None:
        return Written(tuple(written), None)
    # Its ids stay given out: clients keep them for ever.
    gone = context_record(context, id_max=known.id_max) if known.id_max else removal(ContextKey(context))
    return Written((*written, gone), None)


def change_config(state: RegistryState, subject: str | None, body: Any) -> Written[Json]:
    """Written the fields of a config that a request names; the answer is the whole config, in the request's words."""
    subject = _settings_subject(subject)
    if not isinstance(body, dict):
        raise _invalid_level()
    changed = _config_fields(body)
    _check_writable(state, subject)
    config = {
        name: value for name, value in ({**state.configs.get(subject, {}), **changed}).items() if value is not None
    }
    config = {name: config[name] for name in CONFIG_FIELDS if name in config}
    return Written((config_record(subject, config),), config_answer(config, is_change=True))


def remove_config(state: RegistryState, subject: str | None) -> Written[Json]:
    subject = _settings_subject(subject)
    config = state.configs.get(subject)
    if config is None and subject is not None:
        raise subject_not_found(subject)
    _check_writable(state, subject)
    answer = config_answer(config or state.config_in_scope(subject), is_change=False)
    return Written((config_record(subject, None),) if config is not None else (), answer)


def read_config(state: RegistryState, subject: str | None, *, default_to_global: bool) -> Json:
    subject = _settings_subject(subject)
    if default_to_global or subject is None:
        return config_answer(state.config_in_scope(subject), is_change=False)
    config = state.configs.get(subject)
    if config is None:
        raise RegistryError(
            failures.COMPATIBILITY_NOT_CONFIGURED,
            f"Subject '{subject}' does not have subject-level compatibility configured",
        )
    return config_answer({"compatibilityLevel": state.config_in_scope(subject)["compatibilityLevel"]} | config)


def config_answer(config: Json, *, is_change: bool = False) -> Json:
    """Return a config as the API shows it: a request calls `compatibility` what an answer calls its level."""
    names = {"compatibilityLevel": "compatibility"} if is_change else {}
    return {names.get(name, name): config[name] for name in CONFIG_FIELDS if name in config}


def change_mode(state: RegistryState, subject: str | None, body: Any, *, force: bool) -> Written[Json]:
    subject = _settings_subject(subject)
    asked = body.get("mode") if isinstance(body, dict) else None
    mode = asked.upper() if isinstance(asked, str) else None
    if mode not in MODES:
        raise RegistryError(
            failures.INVALID_MODE, "Invalid mode. Valid values are READWRITE, READONLY, IMPORT and FORWARD."
        )
    if mode == "FORWARD" and subject != in_context(GLOBAL_CONTEXT, ""):
        raise RegistryError(failures.INVALID_MODE, "Forward mode only supported on global level")
    written: list[SchemaRecord] = []
    if mode == "IMPORT" and state.mode_in_scope(subject) != "IMPORT" and not force:
        written += _clearing(state, subject)
    return Written((*written, mode_record(subject, mode)), {"mode": mode})


def remove_mode(state: RegistryState, subject: str | None) -> Written[Json]:
    subject = _settings_subject(subject)
    mode = state.modes.get(subject)
    if mode is None and subject is not None:
        raise subject_not_found(subject)
    return Written((mode_record(subject, None),) if mode is not None else (), {"mode": mode or DEFAULT_MODE})


def read_mode(state: RegistryState, subject: str | None, *, default_to_global: bool) -> Json:
    subject = _settings_subject(subject)
    if default_to_global or subject is None:
        return {"mode": state.mode_in_scope(subject)}
    mode = state.modes.get(subject)
    if mode is None:
        raise RegistryError(
            failures.MODE_NOT_CONFIGURED, f"Subject '{subject}' does not have subject-level mode configured"
        )
    return {"mode": mode}


def with_other_keys(state: RegistryState, written: Iterable[SchemaRecord]) -> tuple[SchemaRecord, ...]:
    """Return the records, and before each the removal of the forms in which another registry wrote its key.

    Else compaction would keep both forms, and a schema that was removed in one would come back in the other.
    """
    found: list[SchemaRecord] = []
    for record in written:
        key = decode_key(record.key)
        others = state.other_keys.get(key, ()) if key is not None else ()
        found += [SchemaRecord(each, None) for each in sorted(others)]
        found.append(record)
    return tuple(found)


def _removals(state: RegistryState, subject: str, versions: Sequence[SchemaVersion]) -> tuple[SchemaRecord, ...]:
    """Return the records that remove versions for good, and what goes with the last one."""
    # The newest first: older versions may be what newer ones refer to.
    written = [removal(SchemaKey(subject, each.version)) for each in reversed(versions)]
    if len(versions) == len(state.subjects[subject]):
        if subject in state.modes:
            written.append(mode_record(subject, None))
        if subject in state.configs:
            written.append(config_record(subject, None))
    return (*_id_marks(state, [(subject, each.version) for each in versions]), *written)


def _id_marks(state: RegistryState, removed: Sequence[tuple[str, int]]) -> list[SchemaRecord]:
    """Return records that keep the largest id of each context in the topic, where these removals would lose it."""
    gone = set(removed)
    marks = []
    for name in sorted({context_of(subject) for subject, _ in removed}):
        context = state.contexts[name]
        if not any(place not in gone for place in context.places.get(context.id_max, ())):
            marks.append(context_record(name, id_max=context.id_max))
    return marks


def _clearing(state: RegistryState, subject: str | None) -> tuple[SchemaRecord, ...]:
    """Return the removals of all soft-deleted versions in the scope of a mode; there must be no others."""
    wanted = split(subject or "")
    if subject is not None and wanted.subject:
        names = [subject] if subject in state.subjects else []
    elif wanted.context == GLOBAL_CONTEXT:
        names = sorted(state.subjects)
    else:
        names = sorted(each for each in state.subjects if context_of(each) == wanted.context)
    if any(state.has_subject(each) for each in names):
        raise not_permitted("Cannot import since found existing subjects")
    gone = [(each.subject, each.version) for name in names for each in state.versions(name, deleted=True)]
    for place in gone:
        if any(other not in gone for other in state.referring_to(*place, deleted=True)):
            raise _referenced(*place)
    return (*_id_marks(state, gone), *(removal(SchemaKey(*place)) for place in gone))


def _settings_subject(subject: str | None) -> str | None:
    """Return the subject or context that settings belong to; None for the default context."""
    if subject is None or not subject:
        return None
    if not is_valid(subject, is_for_settings=True):
        raise RegistryError(failures.INVALID_SUBJECT, f"The specified subject '{subject}' is not a valid.")
    return subject


def _config_fields(body: Json) -> Json:
    found: Json = {}
    for name in _LEVEL_FIELDS:
        if name in body:
            level = body[name]
            if level is not None and (not isinstance(level, str) or level.upper() not in LEVELS):
                raise _invalid_level()
            found["compatibilityLevel"] = None if level is None else level.upper()
    for name in (*_FLAGS, *_STRINGS):
        kind = bool if name in _FLAGS else str
        if name in body:
            if body[name] is not None and not isinstance(body[name], kind):
                raise RegistryError(422, f"{name} must be a {'boolean' if kind is bool else 'string'}")
            found[name] = body[name]
    for name in ("defaultMetadata", "overrideMetadata"):
        if name in body:
            found[name] = metadata_of(body[name])
    for name in ("defaultRuleSet", "overrideRuleSet"):
        if name in body:
            found[name] = rule_set_of(body[name])
    return found


def _check_writable(state: RegistryState, subject: str | None) -> None:
    if state.mode_in_scope(subject).startswith("READONLY"):
        context = context_of(subject or "")
        raise not_permitted(f"Subject {subject} in context {context} is in read-only mode")


def _referenced(subject: str, version: int) -> RegistryError:
    return RegistryError(
        failures.REFERENCE_EXISTS,
        f"One or more references exist to the schema {{magic=1,keytype=SCHEMA,subject={subject},version={version}}}.",
    )


def _invalid_level() -> RegistryError:
    return RegistryError(
        failures.INVALID_COMPATIBILITY_LEVEL,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )
