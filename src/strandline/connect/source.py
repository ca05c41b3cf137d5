"""What a source is: a class with a few methods.

    class Ticker(connect.Source):
        '''Counts, for demonstrations.'''

        class Config(connect.Config):
            topic: str = option("Where numbers are written to.")

        async def read(self, offsets):
            position = offsets.get({"ticker": 0}) or {"next": 0}
            for number in itertools.count(position["next"]):
                yield Batch([SourceRecord(value=str(number))], {"ticker": 0}, {"next": number + 1})
                await asyncio.sleep(1)

Records and the position behind them are written in one transaction. After a crash `read` goes on behind the last one
that was committed, so each record is in the log once. `read` may be a plain generator: it then runs in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from strandline.connect.config import Config
from strandline.connect.failures import InvalidConnectorConfig
from strandline.connect.paths import ALLOW_ALL, PathRules
from strandline.connect.records import AnyBatch, SourceOffsets, SourcePosition


class Connector:
    """What sources and sinks have in common."""

    Config: ClassVar[type[Config]] = Config
    version: ClassVar[str] = ""
    """Shown by the REST API; that of Strandline if it is empty."""
    paths: PathRules = ALLOW_ALL
    """Which files it may touch; the worker sets its own before `open`."""

    def __init__(self, config: Any) -> None:
        """Take the typed settings. Open nothing here: this is also called to check a config."""
        self.config = config
        self.stopping = threading.Event()
        """Set when the task is to stop: a plain method that waits for its source waits for this, too."""

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Return the settings of each task that differ from the connector's, at most `tasks_max`.

        One task without settings of its own is the default of a source. A sink has as many as it may, because they
        share the partitions of its topics. This runs in a thread, so it may ask the other side.
        """
        return [{}]

    def open(self) -> Awaitable[None] | None:
        """Connect to the other side, before the first read or write. A plain method runs in a thread, as all others."""

    def close(self) -> Awaitable[None] | None:
        """Let go of everything. Called once, also after a failure."""


class Source(Connector):
    """Base of sources."""

    exactly_once: ClassVar[bool] = True
    """Whether `read`, begun at a stored position, gives what follows it, none missing and none twice."""

    transaction_timeout_ms: ClassVar[int] = 60_000
    """After this time the cluster aborts what a task has begun. One whose batches belong together may need longer."""

    waits_for_schemas: ClassVar[bool] = False
    """Whether the task waits, instead of leaving a record out, when a registry refuses the schema of a record."""

    def read(self, offsets: SourceOffsets) -> AsyncIterator[AnyBatch] | Iterator[AnyBatch]:
        """Yield batches for ever, or until there is nothing more; an async generator, or a plain one.

        The next batch is asked for when the one before was handed to the producer, so a slow cluster slows the source.
        Raise RetriableFailure if the other side is away for a while.
        """
        raise NotImplementedError

    def committed(self, positions: Sequence[SourcePosition]) -> Awaitable[None] | None:
        """Learn that records up to these positions are committed: now the source may forget them."""

    def gauges(self) -> Mapping[str, float]:
        """Return numbers of now, as how far the source is behind, by name: the worker's metrics show them."""
        return {}

    def inspect(self, offsets: SourceOffsets) -> Mapping[str, Any]:
        """Ask the other side how it is, for people, as JSON; `problems` are sentences. It runs in a thread.

        The source is not open, and no task need run: people ask when one has failed.
        """
        return {}

    @classmethod
    def only_partition(cls, config: Any) -> Mapping[str, Any] | None:
        """Return the partition of a source that has one alone; None for others."""
        return None

    @classmethod
    def check_offsets(cls, config: Any, offsets: Sequence[SourcePosition]) -> None:
        """Look at positions that an administrator sets. Raise InvalidConnectorConfig for one that makes no sense."""
        only = cls.only_partition(config)
        for partition, offset in offsets:
            if not partition:
                raise InvalidConnectorConfig("the partition of a source is an object with at least one field")
            # The offset of any partition may be removed: it is one that a config before this had.
            if only is not None and offset is not None and partition != only:
                # Its own partition is not named: a URL in it may have a secret of the config.
                raise InvalidConnectorConfig(
                    f"the partition {dict(partition)} is not read by this connector; its offsets show the one that is"
                )
            if offset is not None and not offset:
                raise InvalidConnectorConfig(f"the offset of {dict(partition)} has no field")
