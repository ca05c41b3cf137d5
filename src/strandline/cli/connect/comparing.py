"""Compares a sink's target with its topics, also while the sink writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from strandline.cli.common.client import Cluster
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.progress import Progress
from strandline.cli.connect.folding import TopicFold
from strandline.cli.connect.topic_reading import Place, Span, read_spans, spans_of

if TYPE_CHECKING:
    from strandline.connect.sinks.verifiable import VerifiableSink
    from strandline.connect.tasks.conversion import Conversion

SHOWN_MAX: Final = 20
"""Differences that are shown and kept."""

Stored = Callable[[], Mapping[Place, int]]
"""Returns the offsets that the sink has stored by now."""


@dataclass(frozen=True)
class Difference:
    """A row that is not as its topic has it."""

    place: str
    key: tuple[str, ...]
    record: str
    """Where the record is that counts; empty if the topic has none."""
    in_topic: str
    in_target: str

    @property
    def is_surplus(self) -> bool:
        return not self.record

    def json(self) -> dict[str, Any]:
        return {
            "place": self.place,
            "key": list(self.key),
            "record": self.record or None,
            "in_topic": self.in_topic,
            "in_target": self.in_target,
        }


@dataclass
class TargetComparison:
    """What a comparison found."""

    records: int = 0
    rows: int = 0
    left_out: int = 0
    missing: int = 0
    different: int = 0
    not_deleted: int = 0
    surplus: int = 0
    undecided: int = 0
    is_whole: bool = True
    """Whether the topic still has its first record. Otherwise rows without a record are no error."""
    first: list[Difference] = field(default_factory=list)

    @property
    def differences(self) -> int:
        return self.missing + self.different + self.not_deleted + (self.surplus if self.is_whole else 0)

    def json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "rows": self.rows,
            "left_out": self.left_out,
            "missing": self.missing,
            "different": self.different,
            "not_deleted": self.not_deleted,
            "surplus": self.surplus,
            "undecided": self.undecided,
            "differences": self.differences,
            "first": [each.json() for each in self.first],
        }


class Comparing:
    """Compares targets, each through a sink of its own, with one reading of the topics."""

    def __init__(self, cluster: Cluster, conversion: Conversion, topics: Sequence[str]) -> None:
        self._cluster = cluster
        self._conversion = conversion
        self.topics = topics
        self._bad = 0

    def run(self, sinks: Sequence[VerifiableSink], stored: Stored) -> list[TargetComparison]:
        """Compare each target with the records below the stored offsets."""
        offsets = dict(stored())
        whole = spans_of(self._cluster, self.topics)
        spans = {
            place: Span(span.start, max(span.start, min(span.end, offsets.get(place, span.start))))
            for place, span in whole.items()
        }
        is_whole = all(not span.start for place, span in whole.items() if place in offsets)
        with ExitStack() as ended:
            folds = [ended.enter_context(TopicFold(each)) for each in sinks]
            self._fold(spans, folds)
            bad = self._bad
            for fold in folds:
                self._compare(fold)
            if any(fold.has_doubts for fold in folds):
                self._look_again(spans, folds, stored)
            return [_outcome(fold, bad, is_whole=is_whole) for fold in folds]

    def run_rows(
        self,
        sink: VerifiableSink,
        batches: Iterable[Sequence[Any]],
        begin: Mapping[Place, int],
        stored: Stored,
    ) -> tuple[TargetComparison, str]:
        """Compare a target with rows that are not read from the topics; return also their digest.

        Records from the offsets `begin` on may have changed a row since it was read.
        """
        with TopicFold(sink) as fold:
            for batch in batches:
                fold.take(self._conversion.batch(batch, self._on_bad))
            digest, bad = fold.digest(), self._bad
            self._compare(fold)
            if fold.has_doubts:
                self._look_again({place: Span(offset, offset) for place, offset in begin.items()}, [fold], stored)
            return _outcome(fold, bad, is_whole=True), digest

    def _fold(self, spans: Mapping[Place, Span], folds: Sequence[TopicFold]) -> None:
        total = sum(span.end - span.start for span in spans.values())
        done = dict.fromkeys(spans, 0)
        with Progress("reading topics", total=total, unit="records") as progress:
            for batch in read_spans(self._cluster, spans):
                records = list(self._conversion.batch(batch, self._on_bad))
                for fold in folds:
                    fold.take(records)
                for message in batch:
                    place = message.topic(), message.partition()
                    done[place] = message.offset() + 1 - spans[place].start
                progress.reached(sum(done.values()))

    def _on_bad(self, bad: Any, raw: Any) -> None:
        self._bad += 1

    def _compare(self, fold: TopicFold) -> None:
        with Progress("comparing", total=None, unit="rows") as progress:
            for looked_at in fold.compare():
                progress.advance(looked_at)

    def _look_again(self, spans: Mapping[Place, Span], folds: Sequence[TopicFold], stored: Stored) -> None:
        """Look at rows in doubt once more: the sink may have written more records meanwhile."""
        # In this order: the target has at least what is stored before it is read, and at most what is there after.
        offsets = stored()
        for fold in folds:
            fold.look_again()
        if not any(fold.has_doubts for fold in folds):
            return
        ends = spans_of(self._cluster, self.topics)
        later = {place: Span(span.end, max(span.end, ends[place].end)) for place, span in spans.items()}
        for batch in read_spans(self._cluster, later):
            records = list(self._conversion.batch(batch, self._on_bad))
            for fold in folds:
                fold.take_later(records)
        for fold in folds:
            fold.settle(offsets)


def _outcome(fold: TopicFold, bad: int, *, is_whole: bool) -> TargetComparison:
    found = TargetComparison(fold.records, fold.rows, fold.left_out + bad, undecided=fold.undecided, is_whole=is_whole)
    for place, key, record, wanted, actual in fold.differences():
        if not record:
            found.surplus += 1
        elif wanted is None:
            found.not_deleted += 1
        elif actual is None:
            found.missing += 1
        else:
            found.different += 1
        if len(found.first) < SHOWN_MAX and (record or is_whole):
            found.first.append(Difference(place, key, record, _words(record, wanted), _row_words(actual)))
    return found


def _words(record: str, wanted: bytes | None) -> str:
    if not record:
        return "no record"
    return "deleted" if wanted is None else f"row {wanted.hex()[:12]}"


def _row_words(actual: bytes | None) -> str:
    return "no row" if actual is None else f"row {actual.hex()[:12]}"


def lines_of(found: TargetComparison, target: str) -> Iterator[str]:
    """Yield what a comparison found, as sentences."""
    is_same = not found.differences
    yield (
        f"{target} has the {count(found.rows, 'row')} that {count(found.records, 'record')} of the topic make"
        if is_same
        else f"{target} differs in {found.differences:,} of the {count(found.rows, 'row')} that the topic makes"
    )
    kinds = (
        (found.missing, "missing"),
        (found.different, "with other values"),
        (found.not_deleted, "deleted in the topic, and still there"),
    )
    if not is_same:
        counted = [f"{number:,} {words}" for number, words in kinds if number]
        counted += [f"{found.surplus:,} without a record"] if found.surplus and found.is_whole else []
        yield f"  {', '.join(counted)}"
    if found.surplus and not found.is_whole:
        yield f"  {count(found.surplus, 'row')} without a record: the topic no longer has its first records"
    if found.left_out:
        yield f"  {count(found.left_out, 'record')} left out that cannot be converted or written"
    if found.undecided:
        yield f"  {count(found.undecided, 'row')} not compared: changed meanwhile, or the record lacks a large value"


def show(output: Output, found: TargetComparison, target: str) -> None:
    """Print what a comparison found: sentences, then the first differences."""
    for line in lines_of(found, target):
        output.line(line)
    if found.first:
        rows = [
            [each.place, ", ".join(each.key), each.in_topic, each.in_target, each.record or "-"] for each in found.first
        ]
        output.table(["place", "key", "in topic", "in target", "record"], rows)
        left = found.differences - len(found.first)
        if left > 0:
            output.line(f"... and {count(left, 'more row')}")


def stored_offsets(offsets: Sequence[Any]) -> dict[Place, int]:
    """Return Connect's positions of a sink, by partition."""
    found = {}
    for partition, offset in offsets:
        if offset is not None:
            found[partition["kafka_topic"], int(partition["kafka_partition"])] = int(offset["kafka_offset"])
    return found
