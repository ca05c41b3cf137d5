"""What a change of the file means for each dataset, known before anything runs (pure).

same                        nothing that counts has changed
new                         it never ran: it begins with its inputs
continues with old state    its rows are made in another way from now on, and what was written stays
needs rebuild               what was written or kept does not go with what the file says now
gone                        the file does not have it any more; its topic stays as it is
only Spark knows            the file has changed, and Spark was not asked what that means
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import zip_longest
from typing import Final

from strandline.pipelines.versions.state import DatasetState, VersionState, unversioned

REASON_LENGTH_MAX: Final = 120
"""Of each of the two forms that are quoted."""


class Verdict(Enum):
    SAME = "same"
    NEW = "new"
    CONTINUES = "continues with old state"
    NEEDS_REBUILD = "needs rebuild"
    GONE = "gone"
    OPEN = "only Spark knows"


@dataclass(frozen=True)
class Change:
    dataset: str
    verdict: Verdict
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.dataset}: {self.verdict.value}{f' ({self.reason})' if self.reason else ''}"


def changes_of(before: VersionState, planned: Mapping[str, DatasetState], *, is_same_text: bool) -> list[Change]:
    """Return what becomes of each dataset of a version when it runs as `planned`."""
    known = {name: each for name, each in {**before.gone, **before.datasets}.items() if each.query_id is not None}
    found = []
    for name, now in planned.items():
        if name in known:
            found.append(Change(name, *_of_known(known[name], now, is_same_text=is_same_text)))
        else:
            found.append(Change(name, *_of_new(now, known, planned)))
    return found + [
        Change(name, Verdict.GONE, f"what it wrote stays in {each.topic}")
        for name, each in before.datasets.items()
        if name in known and name not in planned
    ]


def declared_changes(before: VersionState, declared: Mapping[str, DatasetState], *, is_same_text: bool) -> list[Change]:
    """Return what is known of a change without Spark: `declared` has kinds, keys and topics, and no plans."""
    known = {**before.gone, **before.datasets}
    filled = {
        name: replace(
            known[name],
            kind=now.kind,
            key=now.key,
            public_topic=now.public_topic,
            schemas=now.schemas or known[name].schemas,
        )
        if name in known
        else now
        for name, now in declared.items()
    }
    found = changes_of(before, filled, is_same_text=is_same_text)
    return [
        replace(each, verdict=Verdict.OPEN, reason="the file has changed; --plan asks Spark what that means")
        if each.verdict is Verdict.SAME and not is_same_text
        else each
        for each in found
    ]


def needing_rebuild(changes: list[Change]) -> list[Change]:
    return [each for each in changes if each.verdict is Verdict.NEEDS_REBUILD]


def lines_of(changes: list[Change], *, is_same_text: bool) -> list[str]:
    """Return what a run says of the changes: nothing of a first run, or where nothing has changed."""
    if all(each.verdict is Verdict.NEW for each in changes):
        return []
    if is_same_text and all(each.verdict is Verdict.SAME and not each.reason for each in changes):
        return []
    head = (
        "the file is that of the last run; its datasets:"
        if is_same_text
        else "the file has changed since the last run:"
    )
    return [head, *(f"  {each}" for each in changes)]


def refusal_of(needing: list[Change], pipeline: str) -> str:
    first, *others = needing
    more = f" (so does {', '.join(each.dataset for each in others)})" if others else ""
    return (
        f"{first.dataset} needs a rebuild: {first.reason}{more}. `strandline pipeline rebuild {pipeline}` runs this "
        "file from the beginning as a new version; --accept goes on with what is there; or put the file back as it "
        "was. Nothing was written"
    )


def noted(
    version: VersionState, planned: Mapping[str, DatasetState], *, waiting: frozenset[str] = frozenset()
) -> VersionState:
    """Return the version as it is planned; datasets in `waiting` stay what they were until they have had a batch."""
    known = {**version.gone, **version.datasets}
    datasets = {
        name: known[name] if name in waiting and name in known else replace(each, query_id=_id_of(known.get(name)))
        for name, each in planned.items()
    }
    gone = {name: each for name, each in known.items() if name not in planned and each.query_id is not None}
    return replace(version, datasets=datasets, gone=gone)


def _id_of(known: DatasetState | None) -> str | None:
    return None if known is None else known.query_id


def _of_new(
    now: DatasetState, known: Mapping[str, DatasetState], planned: Mapping[str, DatasetState]
) -> tuple[Verdict, str]:
    for name, each in known.items():
        if each.public_topic == now.public_topic and name not in planned:
            return Verdict.NEEDS_REBUILD, (
                f"it writes the topic {now.public_topic}, as {name} did: it would write everything a second time"
            )
    return Verdict.NEW, "it begins with its inputs"


def _of_known(was: DatasetState, now: DatasetState, *, is_same_text: bool) -> tuple[Verdict, str]:
    if reason := _why_rebuild(was, now):
        return Verdict.NEEDS_REBUILD, reason
    if not (was.stateful or now.form) or was.form == now.form:
        return _of_same_state(was, now, is_same_text=is_same_text)
    if was.form_made_with == now.form_made_with:
        return Verdict.NEEDS_REBUILD, _difference(was, now)
    kept = "what its state means was not kept" if not was.form_made_with else "Spark or Python is another version"
    if is_same_text:
        return Verdict.SAME, f"{kept}; it is kept from now on"
    return Verdict.NEEDS_REBUILD, (
        f"{kept}, so what the file says now cannot be compared with it: run the file as it was once, then this one"
    )


def _why_rebuild(was: DatasetState, now: DatasetState) -> str:
    """Return a reason for a rebuild that holds whatever the form of the state; empty if there is none."""
    if was.kind.has_keys != now.kind.has_keys:
        return f"it was a {was.kind.value} and is a {now.kind.value}, which one topic cannot be: give it another"
    if now.kind.has_keys and was.key != now.key:
        return f"its key was {', '.join(was.key)} and is {', '.join(now.key)}: rows under the old key would stay"
    if now.kind.has_keys and was.public_topic != now.public_topic:
        return f"its rows are in {was.public_topic}, and {now.public_topic} would have those that change only"
    streams = [sorted(set(map(unversioned, each.streams))) for each in (was, now)]
    if was.streams and streams[0] != streams[1]:
        return f"it read the streams {', '.join(streams[0])}, and reads {', '.join(streams[1])}"
    if (was.stateful or now.form) and was.mode != now.mode:
        return f"its mode was {was.mode} and is {now.mode}"
    return ""


def _of_same_state(was: DatasetState, now: DatasetState, *, is_same_text: bool) -> tuple[Verdict, str]:
    is_comparable = was.form_made_with == now.form_made_with
    if was.public_topic != now.public_topic:
        return Verdict.CONTINUES, f"it wrote {was.public_topic}, and writes {now.public_topic} from now on"
    if was.schema != now.schema and was.schema:
        by = f" ({_other_schemas(was, now)})" if was.schemas != now.schemas else ""
        return Verdict.CONTINUES, f"it has other columns from now on; rows that were written keep theirs{by}"
    if was.schemas != now.schemas:
        return Verdict.CONTINUES, _other_schemas(was, now)
    if (was.plan == now.plan) if is_comparable else is_same_text:
        return Verdict.SAME, ""
    if now.form:
        return Verdict.CONTINUES, "its state means the same; what comes in or goes out holds for new rows"
    return Verdict.CONTINUES, "it keeps no state; it goes on at its position, and what was written stays"


def _other_schemas(was: DatasetState, now: DatasetState) -> str:
    before, after = (", ".join(each.schemas) or "the columns of the file" for each in (was, now))
    return f"it reads by {after}, and read by {before}"


def _difference(was: DatasetState, now: DatasetState) -> str:
    """Return what differs first between two forms."""
    pairs = zip_longest(was.form, now.form, fillvalue="")
    before, after = next((a, b) for a, b in pairs if a != b)
    aspect, _, old = before.partition(": ")
    other, _, new = after.partition(": ")
    if aspect == other:
        return f"{aspect}: {_quoted(old)} before, {_quoted(new)} now"
    return f"it kept {_quoted(before) or 'no such state'}, and would keep {_quoted(after) or 'no such state'}"


def _quoted(text: str) -> str:
    return text if len(text) <= REASON_LENGTH_MAX else f"{text[:REASON_LENGTH_MAX]}..."
