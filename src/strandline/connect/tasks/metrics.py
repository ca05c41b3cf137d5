"""What a task counts."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass
class TaskMetrics:
    """Counters of one task since it was started. Each has the name of its metric."""

    records: int = 0
    """Records written to the log by a source, or to the target by a sink."""
    bytes: int = 0
    batches: int = 0
    commits: int = 0
    failures: int = 0
    """Records that could not be converted, transformed or written."""
    skipped: int = 0
    """Those of them that `errors.tolerance=all` left out."""
    dead_letters: int = 0
    retries: int = 0

    def items(self) -> list[tuple[str, int]]:
        return [(each.name, getattr(self, each.name)) for each in fields(self)]
