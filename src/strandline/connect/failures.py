"""How connectors fail: for good, or for a while."""

from __future__ import annotations

from strandline.errors import WorldError


class ConnectFailed(WorldError):
    """A task cannot go on, in one sentence. It stays failed until someone restarts it or changes its config."""


class RetriableFailure(ConnectFailed):
    """A task cannot go on for now: the other side is down, full or busy. The task is tried again with back-off."""

    def __init__(self, message: str = "", *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        """Seconds that the other side asks to wait, at least; None if it does not say."""


class RecordFailed(ConnectFailed):
    """One record cannot be written or converted; `errors.tolerance` decides whether the task goes on without it.

    A sink names the record, so that it becomes a dead letter; without a name it is each record of the batch that is
    written alone.
    """

    def __init__(self, message: str, record: object = None) -> None:
        super().__init__(message)
        self.record = record


class RecordsRefused(ConnectFailed):
    """The cluster does not take a record of a transaction, because of its size, its topic's name or its topic's rules.

    Which of the records it is, is not known.
    """


class SchemaRefused(RecordFailed):
    """The registry does not take the schema of a record, because it would break the readers of those before."""


class InvalidConnectorConfig(ConnectFailed):
    """A connector's config is wrong; the message names the settings."""


class FencedOut(ConnectFailed):
    """Another worker runs this task by now; what this one was about to write is not written."""
