"""Why the client could not do what was asked, each in one sentence that says what to do."""

from __future__ import annotations


class ClientFailed(Exception):
    """The base of all failures that are explained to the user in one sentence."""


class ClusterFailed(ClientFailed):
    """The cluster was unreachable, or gave no usable answer, until the deadline."""


class DeadlinePassed(ClusterFailed):
    """No attempt succeeded until the deadline; `last_failure` says what became of the last one."""

    def __init__(self, message: str, last_failure: str = "") -> None:
        super().__init__(message)
        self.last_failure = last_failure


class TopicMissing(ClientFailed):
    """A topic or partition that was asked for does not exist."""


class DataLost(ClientFailed):
    """Offsets that were to be read are no longer there."""
