"""Why a subject does not take a schema: asked of the registry, or computed here for any compatibility level."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.cli.common.failures import CommandFailed, NotFound
from strandline.cli.common.output import Output
from strandline.cli.schema.registry_api import SchemaApi
from strandline.cli.schema.sources import engines_for
from strandline.schemas.compatibility import find_conflict
from strandline.schemas.engines import SchemaSource
from strandline.schemas.failures import RegistryError
from strandline.schemas.types import Incompatibility

Versions = Sequence[tuple[int, SchemaSource]]

_REASON: Final = re.compile(
    r"\{errorType:'(?P<kind>[^']*)', description:(?P<quote>[\"'])(?P<text>.*)(?P=quote)(?:, path:'(?P<path>.*)')?"
    r"(?:, additionalInfo:.*)?\}",
    re.DOTALL,
)
_VERSION: Final = re.compile(r"\{oldSchemaVersion: (\d+)\}")
_ABOUT: Final = ("{oldSchema:", "{compatibility:", "{validateFields:")


@dataclass(frozen=True)
class CompatReason:
    """One reason, in words, and the version that it is about. `kind` and `path` are empty if they are not known."""

    text: str
    version: int | None = None
    kind: str = ""
    path: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"version": self.version, "kind": self.kind, "path": self.path, "text": self.text}


def level_of(api: SchemaApi, subject: str) -> str:
    """Return the compatibility level in force for a subject."""
    level: str = api.ask("GET", "config", subject, defaultToGlobal=True)["compatibilityLevel"]
    return level


def ask_registry(
    api: SchemaApi, subject: str, body: dict[str, Any], *, normalize: bool = False
) -> list[CompatReason] | None:
    """Return why the registry would not take a schema; None if it would."""
    path = ("compatibility", "subjects", subject, "versions")
    try:
        found: dict[str, Any] = api.ask("POST", *path, body=body, verbose=True, normalize=normalize)
    except NotFound:
        # Registries of other makers do not compare with a subject that is not there: it takes any schema.
        return None
    return None if found["is_compatible"] else read_messages(found.get("messages") or ())


def read_messages(messages: Iterable[str]) -> list[CompatReason]:
    """Return the reasons in an answer: Confluent writes them as texts that look like objects (pure)."""
    messages = list(messages)
    version = next((int(found[1]) for each in messages if (found := _VERSION.fullmatch(each))), None)
    reasons = []
    for each in messages:
        if _VERSION.fullmatch(each) or each.startswith(_ABOUT):
            continue
        match = _REASON.fullmatch(each)
        if match is None:
            reasons.append(CompatReason(each, version))
        else:
            reasons.append(CompatReason(match["text"], version, match["kind"], match["path"] or ""))
    return reasons or [CompatReason("the registry gives no reason", version)]


def compare_here(level: str, new: SchemaSource, earlier: Versions) -> list[CompatReason] | None:
    """Return why a level would not take a schema; None if it would. CommandFailed if it is no schema."""
    engines = engines_for([new, *(source for _, source in earlier)])
    try:
        engines.parse(new)
        conflict = find_conflict(engines, level, new, earlier)
    except RegistryError as error:
        raise CommandFailed(error.message) from None
    if conflict is None:
        return None
    version, _, reasons = conflict
    return [reason_of(each, version) for each in reasons]


def reason_of(each: Incompatibility, version: int) -> CompatReason:
    return CompatReason(each.message, version, each.kind, each.path)


def print_reasons(output: Output, reasons: Iterable[CompatReason], indent: str = "  ") -> None:
    for each in reasons:
        version = f"version {each.version}: " if each.version is not None else ""
        output.hanging(indent, f"{indent}  ", f"{version}{each.text}{f' ({each.kind})' if each.kind else ''}")
