"""A cleaning in steps, for a log whose segments are not all on this disk: each is there only while it is read.

    begin -> learn (each dirty segment, one after the other) -> copy (each group of segments) -> end

The keys that were learned stay in the worker between two steps. If the worker dies, they are gone with it, and the
next step fails: the cleaning is begun again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.log.cleaning.clean import clean_group
from strandline.log.cleaning.copying import GroupCopier
from strandline.log.cleaning.job import CannotClean, CleanedGroup, CleaningJob, SourceSegment
from strandline.log.cleaning.mapping import MapBuilder, make_sieve
from strandline.log.cleaning.reading import Pace
from strandline.log.cleaning.transactions import aborted_transactions
from strandline.log.disk import Disk

CLEANINGS_MAX: Final = 8
"""Of cleanings that were never ended only so many are kept, as there are when nodes share a process in a simulation."""

_begun: dict[str, SteppedCleaning] = {}


class SteppedCleaning:
    """A cleaning between two steps."""

    def __init__(self, job: CleaningJob, disk: Disk) -> None:
        self._job = job
        self._disk = disk
        self.pace = Pace(job.io_bytes_per_s, is_stopped=lambda: False, sleep=lambda _: None)
        self._sieve = make_sieve(job)
        self._aborted = aborted_transactions(job, disk)
        self._builder = MapBuilder(job, disk, self._sieve, self._aborted, self.pace)
        self._copier: GroupCopier | None = None
        self._clean_up_to = job.end_offset

    def learn(self, segment: SourceSegment) -> bool:
        """Learn the keys of the next segment. Return whether there is room for another."""
        has_room = self._builder.learn_segment(segment)
        if not has_room:
            self._clean_up_to = self._builder.learned_up_to
        return has_room

    def copy(self, group: list[SourceSegment]) -> CleanedGroup:
        """Write what stays of the next segments under `.cleaned` names."""
        if self._copier is None:
            self._copier = GroupCopier(
                self._job, self._disk, self._sieve, self._aborted, self.pace, clean_up_to=self._clean_up_to
            )
        return clean_group(self._job, self._disk, group, self._copier, self.pace)

    def facts(self) -> dict[str, Any]:
        return {
            "clean_up_to": self._clean_up_to,
            "records_read": self._sieve.records_sifted,
            "records_kept": self._sieve.records_kept,
            "records_without_key": self._sieve.records_without_key,
        }


def step(
    params: dict[str, Any], *, disk: Disk, is_stopped: Callable[[], bool], sleep: Callable[[float], None]
) -> dict[str, Any]:
    """Do the step that `params` name, and return what is known after it. Raises CannotClean and as `clean` does."""
    name, do = params["cleaning"], params["do"]
    if do == "end":
        _begun.pop(name, None)
        return {}
    if do == "begin":
        _begun[name] = SteppedCleaning(CleaningJob.from_dict(params["job"]), disk)
        while len(_begun) > CLEANINGS_MAX:
            del _begun[next(iter(_begun))]
    cleaning = _begun.get(name)
    if cleaning is None:
        raise CannotClean("the worker that had learned the keys has ended")
    cleaning.pace.is_stopped, cleaning.pace.sleep = is_stopped, sleep
    segments = [SourceSegment(*each) for each in params.get("segments", ())]
    found: dict[str, Any] = {}
    if do == "learn":
        found["has_room"] = cleaning.learn(segments[0])
    elif do == "copy":
        found["group"] = cleaning.copy(segments).to_dict()
    return {**cleaning.facts(), **found}
