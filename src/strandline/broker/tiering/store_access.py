"""The object store of a node: opening it, what is wrong with it, and what the node reports of its tier."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from strandline.errors import InvalidConfig
from strandline.tiers.store.object_store import (
    GuardedStore,
    ObjectStore,
    StoreDenied,
    StoreFailed,
    claim,
    open_store,
    probe,
)
from strandline.tiers.store.read_only_store import ReadOnlyStore
from strandline.tiers.store.waiting import pause

if TYPE_CHECKING:
    from strandline.broker.environment import Environment

log = logging.getLogger("strandline.tiering")

RETRY_S_MIN: Final = 1.0


class StoreAccess:
    def __init__(self, environment: Environment) -> None:
        """Raises StoreFailed or InvalidConfig, in one sentence, if the store cannot be opened as it is configured."""
        self._runtime = environment.runtime
        self._cluster_id = environment.cluster_id
        self.is_read_only = environment.config().strandline_remote_store_read_only
        opened: ObjectStore = GuardedStore(_open(environment), self._runtime)
        self._store = ReadOnlyStore(opened) if self.is_read_only else opened
        self._opened = opened
        self.is_closed = False
        self.problem = self.message = ""
        """What is wrong with the store: a word for programs, and a sentence. Empty if nothing is."""

    def close(self) -> None:
        self.is_closed = True
        close = getattr(self._opened, "close", None)
        if close is not None:
            close()

    async def try_open(self, retry_s: float) -> ObjectStore | None:
        """Check what the store promises, and that it is this cluster's. Return None after a failure and a pause.

        Nothing is written to a store that is read-only: it may be another cluster's.
        """
        try:
            if not self.is_read_only:
                await probe(self._store, runtime=self._runtime)
            await claim(self._store, self._cluster_id, runtime=self._runtime, is_read_only=self.is_read_only)
        except StoreFailed as error:
            self.complain(error)
            await pause(self._runtime, max(retry_s, RETRY_S_MIN))
            return None
        self.clear()
        return self._store

    def complain(self, error: BaseException) -> None:
        """Keep a failure of the store, and log it once and not with each attempt."""
        if str(error) != self.message:
            log.error("tiered topics: %s", error)
        self.problem, self.message = problem_of(error), str(error)

    def clear(self) -> None:
        self.problem = self.message = ""


def problem_of(error: BaseException) -> str:
    """Return a word for programs: that of the failure, and for rights and credentials the reason, too."""
    return f"{type(error).__name__}:{error.reason}" if isinstance(error, StoreDenied) else type(error).__name__


def _open(environment: Environment) -> ObjectStore:
    config = environment.config()
    options: dict[str, str] = {}
    for each in filter(None, (config.strandline_remote_store_options or "").split(",")):
        name, equals, value = each.partition("=")
        if not equals:
            raise InvalidConfig(
                f"strandline.remote.store.options has {name.strip()[:20]!r} without a value; expected name=value,..."
            )
        options[name.strip()] = value.strip()
    assert config.strandline_remote_store_url is not None
    if environment.open_store is None:
        return open_store(config.strandline_remote_store_url, options, runtime=environment.runtime)
    opened: ObjectStore = environment.open_store(config.strandline_remote_store_url, options, environment.runtime)
    return opened
