"""A view's records at one moment: a snapshot and what the log said since, or the log alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.views.columns import rows_sql
from strandline.views.definition import ViewDefinition
from strandline.views.folding import Fold
from strandline.views.schema import quoted
from strandline.views.snapshots import RECORD_COLUMNS, HeldSnapshot, Snapshot


@dataclass
class ViewState:
    fold: Fold
    held: HeldSnapshot | None = None
    log_starts: Mapping[int, int] = field(default_factory=dict)
    """When the fold began: a partition that was read from there is right however much was compacted."""
    floors: dict[int, int] = field(default_factory=dict)
    """What lies below was trimmed from the log and is no row any more; none for a state of the past."""
    folded_ms: int = 0
    """When the ends that it was folded to were asked for."""

    @property
    def snapshot(self) -> Snapshot | None:
        return self.held.snapshot if self.held is not None else None

    @property
    def offsets(self) -> dict[int, int]:
        return dict(self.fold.positions)

    @property
    def latest_ms(self) -> dict[int, int]:
        known = dict(self.snapshot.latest_ms) if self.snapshot is not None else {}
        for partition, latest_ms in self.fold.latest_ms.items():
            known[partition] = max(latest_ms, known.get(partition, latest_ms))
        return known

    @property
    def is_right(self) -> bool:
        """Whether it is the state at the log's end, given that the fold goes up to there."""
        based = self.snapshot.offsets if self.snapshot is not None else {}
        return all(
            unbroken or (partition not in based and self.fold.starts[partition] <= self.log_starts[partition])
            for partition, unbroken in self.fold.unbroken.items()
        )

    @property
    def is_exact(self) -> bool:
        """Whether no record that would count is missing, wherever the log goes on to."""
        if not self.fold.is_unbroken:
            return False
        based = self.snapshot.offsets if self.snapshot is not None else {}
        return all(partition in based or start == 0 for partition, start in self.fold.starts.items())

    @property
    def has_all_times(self) -> bool:
        """Whether `latest_ms` counts every record since offset 0: one that was compacted away may have been later."""
        return self.is_exact and (self.snapshot is None or self.snapshot.has_all_times)

    @property
    def is_whole(self) -> bool:
        """Whether every record since offset 0 was there to be folded."""
        starts_whole = self.snapshot.is_whole if self.snapshot is not None else True
        return starts_whole and self.is_exact and not any(self.floors.values())

    def close(self) -> None:
        self.fold.drop()
        if self.held is not None:
            self.held.release()

    # SQL

    def records_sql(self) -> str:
        """The newest record of every key, in parentheses, without those that were taken away."""
        names = ", ".join(RECORD_COLUMNS)
        return self._united(
            f"SELECT {names} FROM {self._of_log()}", ", ".join(f"base.{each}" for each in RECORD_COLUMNS)
        )

    def rows_sql(self, definition: ViewDefinition) -> str:
        """The rows of the view, in parentheses."""
        if self.snapshot is None or not self.snapshot.has_columns_of(definition):
            # The files have the columns of another schema, and the records themselves.
            return f"({rows_sql(definition, self.records_sql())})"
        names = ", ".join(f"base.{quoted(column.name)}" for column in definition.columns)
        return self._united(rows_sql(definition, self._of_log()), names)

    def _of_log(self) -> str:
        return f"(SELECT * FROM {self.fold.table} WHERE _value IS NOT NULL{self._above_floors('')})"

    def _united(self, of_log: str, base_columns: str) -> str:
        if self.snapshot is None:
            return f"({of_log})"
        return (
            f"(SELECT {base_columns} FROM {self.snapshot.source} AS base ANTI JOIN {self.fold.table} AS newer "
            "ON base._key = newer._key AND base._partition = newer._partition "
            f"WHERE true{self._above_floors('base.')} UNION ALL {of_log})"
        )

    def _above_floors(self, prefix: str) -> str:
        return "".join(
            f" AND NOT ({prefix}_partition = {partition} AND {prefix}_offset < {floor})"
            for partition, floor in sorted(self.floors.items())
            if floor > 0
        )
