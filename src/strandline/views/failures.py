"""How a view fails: one sentence with what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from strandline.errors import WorldError


class ViewFailed(WorldError):
    """The root of what views raise."""


class ViewUnknown(ViewFailed):
    """No view has this name."""


class QueryRefused(ViewFailed):
    """The SQL is no query, or not one that the views can answer."""


class DefinitionRefused(ViewFailed):
    """A schema or a key that does not describe rows."""


class BeyondReach(ViewFailed):
    """The state of that moment cannot be had any more, or not yet."""


class SnapshotFailed(ViewFailed):
    """The disk did not take a snapshot."""


class HistoryLost(ViewFailed):
    """Records that were to be folded are no longer in the log. Handled by the view: it begins elsewhere."""


class LogMoved(ViewFailed):
    """The log went on and was compacted while it was folded. Handled by the desk: it asks again where the log ends."""


def guess(name: str, known: Iterable[str]) -> str:
    """` (did you mean totals?)`, or nothing."""
    near = difflib.get_close_matches(name, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""
