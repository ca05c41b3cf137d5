"""Queries over the views of one cluster.

A `ViewSession`, which users call `Desk`, holds what views of one cluster share: a client, what names mean, a database
in memory, and a store of states for each topic that was read. What a name means and how far its topic goes are read in
turn until both agree. So a view is never shown with a part of a rebuild, because the registry says that a switch has
begun before its first record is committed.

Partitions are read one after the other up to ends that were asked for at once. A transaction becomes visible in each
partition when its marker is there, as for any consumer.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

import pyarrow as pa

from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.security import ClientSecurity, SecuredServers, security_of
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.views.as_of import AsOf, AtOffsets, Freshness, Reach, as_moment
from strandline.views.catalog import Catalog
from strandline.views.columns import Key, key_values
from strandline.views.definition import ViewDefinition
from strandline.views.failures import LogMoved, QueryRefused, ViewFailed
from strandline.views.folding import connect
from strandline.views.lookup import found_rows
from strandline.views.querying import names_in, run, words_of_sql
from strandline.views.schema import quoted
from strandline.views.snapshots import Snapshot
from strandline.views.state import ViewState
from strandline.views.view_store import Ends, ViewStore, ends_of, plainly, records_since

if TYPE_CHECKING:
    from strandline.views.registry_values import RegistryFunctions

DIRECTORY: Final = Path(".strandline/views")
BOOTSTRAP: Final = "localhost:9092"
AGREEMENT_ATTEMPTS_MAX: Final = 20
"""Of names and ends that change while they are asked for."""


@dataclass(frozen=True)
class Answer:
    """Rows, and how they compare with the log."""

    table: pa.Table
    freshness: Freshness
    views: tuple[str, ...]
    """Those that were read."""

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        columns = [column.to_pylist() for column in self.table.columns]
        return list(zip(*columns, strict=True)) if columns else []

    def to_pandas(self) -> Any:
        return self.table.to_pandas()


@dataclass(frozen=True)
class _Seen:
    """A view in one answer."""

    definition: ViewDefinition
    ends: Ends
    store: ViewStore
    state: ViewState


class ViewSession:
    """A session over the views of a cluster, for several threads. One at a time has the database."""

    def __init__(
        self,
        bootstrap: str = BOOTSTRAP,
        *,
        directory: str | Path = DIRECTORY,
        timeout_s: float = 60.0,
        client_config: Mapping[str, str] | ClientSecurity | None = None,
        is_confined: bool = False,
    ) -> None:
        """Raise InvalidConfig if the security settings of the `client_config` cannot be followed.

        In a session that is confined SQL reads views and nothing else of this machine; it keeps no snapshots.
        """
        if isinstance(client_config, ClientSecurity):
            security = client_config
        else:
            security = security_of(bootstrap) if client_config is None else ClientSecurity.spoken(client_config)
        with plainly():
            self.client = ClusterClient(
                ClientSettings(bootstrap, client_id="strandline-views", api_timeout_s=timeout_s, security=security)
            )
        self.bootstrap = bootstrap if client_config is None else SecuredServers(bootstrap, security)
        self.directory = Path(directory)
        self.catalog = Catalog(self.client)
        self._connection = connect(is_confined=is_confined)
        self._registry: RegistryFunctions | None = None
        self._stores: dict[tuple[str, UUID], ViewStore] = {}
        self._by_hand: dict[str, ViewDefinition] = {}
        self._cluster_id: str | None = None
        self.on_read: Callable[[int], None] | None = None
        """Told how many records were read, whenever some were."""
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            for store in self._stores.values():
                store.close()
            self._stores.clear()
            self._connection.close()
            self.client.close()

    def interrupt(self) -> None:
        """Have the query that runs fail. Any thread may call this."""
        self._connection.interrupt()

    def names_in(self, sql: str) -> list[str]:
        """Return the views that a query names. Raise QueryRefused if it is not one SELECT."""
        with self._lock:
            return self._names_in(sql)

    def add(self, definition: ViewDefinition) -> None:
        """A view that the cluster does not know of."""
        self._by_hand[definition.name] = definition

    def views(self) -> dict[str, ViewDefinition]:
        with self._lock:
            self.catalog.refresh()
            return self.catalog.views | self._by_hand

    def definition(self, name: str) -> ViewDefinition:
        """What the name means now."""
        with self._lock:
            self.catalog.refresh()
            return self._meant(name)

    def query(self, sql: str, *, as_of: Any = None) -> Answer:
        """The rows of a SELECT over views, current or as they were at one moment."""
        with self._lock:
            names = self._names_in(sql)
            moment = None if as_of is None else as_moment(as_of)
            if isinstance(moment, AtOffsets) and len(names) > 1:
                raise QueryRefused(
                    f"offsets are those of one topic, and the query reads {', '.join(names)}: say a time, or one view"
                )
            seen = self._seen(names, moment)
            for name, each in seen.items():
                self._show(name, each)
            table = run(self._connection, sql)
            return Answer(table, self._freshness(list(seen.values())), tuple(seen))

    def get(self, name: str, key: Key, *, as_of: Any = None) -> Answer:
        """The row of a key, or none."""
        with self._lock:
            seen, table = self._got(name, key, as_of)
            return Answer(table, self._freshness([seen]), (name,))

    def row(self, name: str, key: Key, *, as_of: Any = None) -> dict[str, Any] | None:
        with self._lock:
            rows = self._got(name, key, as_of)[1].to_pylist()
            return rows[0] if rows else None

    def _got(self, name: str, key: Key, as_of: Any) -> tuple[_Seen, pa.Table]:
        seen = self._seen([name], None if as_of is None else as_moment(as_of))[name]
        return seen, found_rows(self._connection, seen.definition, seen.state, key_values(seen.definition, key))

    def refresh(self, names: Sequence[str]) -> None:
        """Catch up with the log, and keep snapshots where they are worth it."""
        with self._lock:
            for each in self._seen(list(names), None).values():
                each.store.maybe_snapshot(each.definition)

    def snapshot(self, name: str) -> Snapshot | None:
        """Keep the state of now, for "as of" and for who comes next; None if another process is at it."""
        with self._lock:
            seen = self._seen([name], None)[name]
            return seen.store.snapshot(seen.definition)

    def freshness(self, name: str) -> Freshness:
        """Of what was last read, without reading more."""
        with self._lock:
            definition = self.definition(name)
            ends = ends_of(self.client, definition)
            store = self._store(definition, ends)
            state = store.at_hand
            if state is None:
                return self._freshness([self._seen([name], None)[name]])
            return self._freshness([_Seen(definition, ends, store, state)], now=ends)

    def reach(self, names: Sequence[str]) -> Reach:
        """Of the one that reaches least far."""
        with self._lock:
            reaches = []
            for name in names:
                definition = self.definition(name)
                definition = definition.past or definition
                ends = ends_of(self.client, definition)
                reaches.append(self._store(definition, ends).reach(ends))
            return max(reaches, key=lambda each: each.distance, default=Reach(None))

    def ends(self, name: str) -> dict[int, int]:
        """Up to where the view's topic could be read now."""
        with self._lock:
            return ends_of(self.client, self.definition(name)).committed

    def records_since(self, name: str, offsets: Mapping[int, int]) -> int:
        """Return how many records the log of the view's topic has behind these offsets."""
        with self._lock:
            definition = self.definition(name)
            return records_since(self.client, definition.topic, offsets, ends_of(self.client, definition))

    def snapshots(self, name: str) -> list[Snapshot]:
        with self._lock:
            definition = self.definition(name)
            return self._store(definition, ends_of(self.client, definition)).snapshot_store.snapshots()

    def rows_of(self, name: str, *, as_of: Any = None) -> tuple[ViewDefinition, pa.Table]:
        """All rows of a view."""
        with self._lock:
            seen = self._seen([name], None if as_of is None else as_moment(as_of))[name]
            return seen.definition, run(self._connection, f"FROM {seen.state.rows_sql(seen.definition)}")

    # What is seen

    def _names_in(self, sql: str) -> list[str]:
        try:
            return names_in(self._connection, sql)
        except QueryRefused as error:
            known = {column.name for view in self.views().values() for column in view.columns}
            said = {word.lower() for word in re.findall(r"\w+", sql)}
            for word in words_of_sql(self._connection, known):
                if word in said:
                    raise QueryRefused(f'{error} ({word} is a word of SQL: write "{word}" for the column)') from None
            raise

    def _meant(self, name: str, moment: AsOf | None = None) -> ViewDefinition:
        found = self._by_hand.get(name) or self.catalog.view(name)
        return self._resolved(found if moment is None else found.past or found)

    def _resolved(self, definition: ViewDefinition) -> ViewDefinition:
        """Return the definition with its columns, and see to the function that reads values of a registry's schemas."""
        if not (definition.is_of_registry or definition.reader_schema):
            return definition
        if self._registry is None:
            # Most views have no need of it.
            from strandline.views.registry_values import RegistryFunctions

            self._registry = RegistryFunctions(self.client, self._connection)
        with plainly():
            found = self._registry.resolved(definition)
            self._registry.make(found)
        return found

    def _seen(self, names: Sequence[str], moment: AsOf | None) -> dict[str, _Seen]:
        """Each of the views at one moment: what the names mean, and up to where, in agreement."""
        is_known = self._by_hand.keys() >= set(names)
        if not is_known:
            self.catalog.refresh()
        for _ in range(AGREEMENT_ATTEMPTS_MAX):
            meant = {name: self._meant(name, moment) for name in names}
            ends = self._ends(meant.values())
            if not is_known:
                self.catalog.refresh()
            if is_known or meant == {name: self._meant(name, moment) for name in names}:
                with suppress(LogMoved):
                    return self._states(meant, ends, moment)
        raise ViewFailed("these views, or what their names mean, change all the time: ask again in a moment")

    def _ends(self, definitions: Iterable[ViewDefinition]) -> dict[str, Ends]:
        """By topic: two names of one topic are shown up to the same offsets."""
        found: dict[str, Ends] = {}
        # Those that must stop early come first, and hold for the others.
        for definition in sorted(definitions, key=lambda each: not each.until):
            if definition.topic not in found:
                found[definition.topic] = ends_of(self.client, definition)
        return found

    def _states(
        self, meant: Mapping[str, ViewDefinition], ends: Mapping[str, Ends], moment: AsOf | None
    ) -> dict[str, _Seen]:
        stores: dict[str, ViewStore] = {}
        states: dict[str, ViewState] = {}
        for definition in meant.values():
            topic = definition.topic
            if topic not in states:
                store = stores[topic] = self._store(definition, ends[topic])
                states[topic] = store.current(ends[topic]) if moment is None else store.as_of(moment, ends[topic])
        return {
            name: _Seen(each, ends[each.topic], stores[each.topic], states[each.topic]) for name, each in meant.items()
        }

    def _store(self, definition: ViewDefinition, ends: Ends) -> ViewStore:
        key = (definition.topic, ends.topic_id)
        store = self._stores.get(key)
        if store is None:
            for other in [each for each in self._stores if each[0] == definition.topic]:
                # The topic was deleted and created again.
                self._stores.pop(other).close()
            directory = self.directory / self._cluster() / str(ends.topic_id)
            store = ViewStore(self.client, self._connection, definition.topic, ends.topic_id, directory)
            self._stores[key] = store
        store.on_read = self.on_read
        return store

    def _cluster(self) -> str:
        if self._cluster_id is None:
            with plainly():
                answer = self.client.retried(
                    "reach the cluster",
                    lambda: self.client.ask_any(MetadataRequest(topics=[]), MetadataResponse),
                )
            self._cluster_id = answer.cluster_id or "unnamed"
        return self._cluster_id

    def _show(self, name: str, seen: _Seen) -> None:
        shown = [quoted(name)]
        schema, dot, plain = name.rpartition(".")
        if dot:
            # Both pipeline.name and "pipeline.name" are understood.
            self._connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
            shown.append(f"{quoted(schema)}.{quoted(plain)}")
        for each in shown:
            self._connection.execute(f"CREATE OR REPLACE VIEW {each} AS FROM {seen.state.rows_sql(seen.definition)}")

    def _freshness(self, seen: Sequence[_Seen], *, now: Ends | None = None) -> Freshness:
        """Of the least fresh of them."""
        told = []
        for each in seen:
            ends = now or ends_of(self.client, each.definition)
            behind = records_since(self.client, each.definition.topic, each.state.offsets, ends)
            age_ms = max(0, time.time_ns() // 1_000_000 - each.state.folded_ms)
            told.append(Freshness(each.state.offsets, age_ms, behind, bool(each.definition.until)))
        return max(told, key=lambda each: (each.records_behind, each.age_ms), default=Freshness({}, 0, 0))
