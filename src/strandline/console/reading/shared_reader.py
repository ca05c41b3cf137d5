"""The connections and answers of one user of one cluster, shared by all of its tabs.

A question runs in a thread, with a client that no other question uses meanwhile. So a broker that hangs holds up the
questions to it, and no others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Executor
from typing import Any, Final, TypeVar

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.codec.message import Message
from strandline.console.reading.kept_value import KeptValue, Known
from strandline.console.reading.user_cluster import TIMEOUT_S, ClusterUser, UserCluster, cluster_of
from strandline.console.settings import ConsoleCluster

T = TypeVar("T")

CLIENTS_MAX: Final = 4
"""Clients that are kept open between questions."""
ANSWERS_MAX: Final = 500
"""Answers that are kept; the one that was not used for longest goes first."""
CLIENT_ID: Final = "strandline-console"


class SharedReader:
    """One user of one cluster. Used by one event loop; `executor` runs what blocks."""

    def __init__(
        self, settings: ConsoleCluster, user: ClusterUser, executor: Executor, clock: Callable[[], float]
    ) -> None:
        self.settings = settings
        self.user = user
        self.cluster: UserCluster = cluster_of(settings.bootstrap, user)
        self.memory: dict[str, Any] = {}
        """What pages remember between requests, such as the state before, by their names."""
        self.clock = clock
        self.used_at = clock()
        self._executor = executor
        self._idle: list[ClusterClient] = []
        self._kept: dict[Hashable, KeptValue[Any]] = {}
        self._is_closed = False

    async def know(self, key: Hashable, ask: Callable[[], Awaitable[T]], fresh_s: float) -> Known[T]:
        """Return the answer that is kept under `key`, asked again when it is older than `fresh_s`."""
        self.used_at = self.clock()
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= ANSWERS_MAX:
                del self._kept[min(self._kept, key=lambda each: self._kept[each].used_at)]
            kept = self._kept[key] = KeptValue(ask, self.clock)
        return await kept.get(fresh_s)

    def first_asked_s(self, key: Hashable) -> float:
        """Return how long the first answer to a question is being waited for; 0 if there is one."""
        kept = self._kept.get(key)
        return 0.0 if kept is None else kept.first_asked_s

    async def ask(self, work: Callable[[ClusterClient], T], timeout_s: float = TIMEOUT_S) -> T:
        """Return what `work` gets with our own client, in a thread."""
        return await self.in_thread(lambda: self._with_client(work, timeout_s))

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what a blocking reader of the command line returns, which opens its own connections to `cluster`."""
        self.used_at = self.clock()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def offers(self, request_class: type[Message]) -> bool:
        """Return whether the cluster has this API: how a page knows that the brokers are Strandline's."""

        def look(client: ClusterClient) -> frozenset[int]:
            connection = client.connection(_first(client))
            return frozenset(connection.offered.versions)

        known = await self.know("offered", lambda: self.ask(look), 60.0)
        return request_class.API_KEY in known.value

    def forget(self) -> None:
        """Have the next pages wait for new answers, because something was changed."""
        for kept in self._kept.values():
            kept.forget()

    def close(self) -> None:
        self._is_closed = True
        for kept in self._kept.values():
            kept.cancel()
        with contextlib.suppress(RuntimeError):
            for client in self._idle:
                self._executor.submit(client.close)
        self._idle.clear()

    def _with_client(self, work: Callable[[ClusterClient], T], timeout_s: float) -> T:
        try:
            client = self._idle.pop()
        except IndexError:
            client = ClusterClient(
                ClientSettings.within(self.settings.bootstrap, CLIENT_ID, timeout_s, self.user.security)
            )
        try:
            return work(client)
        finally:
            # Lists are changed by one thread at a time, so none gets a client that another has.
            if len(self._idle) < CLIENTS_MAX and not self._is_closed:
                self._idle.append(client)
            else:
                client.close()


def _first(client: ClusterClient) -> tuple[str, int]:
    """Return the address of a broker that answers. Raise Disconnected if there is none."""
    from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
    from strandline.codec.messages.describe_cluster_response import DescribeClusterResponse

    answer = client.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
    broker = min(answer.brokers, key=lambda each: each.broker_id)
    return broker.host, broker.port
