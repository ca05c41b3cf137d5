"""A view as a user has it: `strandline.views.open("totals").query("select ...")`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from strandline.views.as_of import Freshness, Reach
from strandline.views.columns import Key
from strandline.views.definition import ViewDefinition
from strandline.views.schema import quoted
from strandline.views.snapshots import Snapshot
from strandline.views.view_session import BOOTSTRAP, DIRECTORY, Answer, ViewSession


class View:
    """One view, kept current as it is asked."""

    def __init__(self, session: ViewSession, name: str) -> None:
        self._session = session
        self.name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._session.close()

    @property
    def definition(self) -> ViewDefinition:
        return self._session.definition(self.name)

    def query(self, sql: str | None = None, *, as_of: Any = None) -> Answer:
        """A SELECT over this view, and others of the cluster; without one, all rows."""
        return self._session.query(sql or f"select * from {self._sql_name}", as_of=as_of)

    def get(self, key: Key, *, as_of: Any = None) -> dict[str, Any] | None:
        """The row of a key. Keys of several columns: a mapping, JSON, or `a=1,b=x`."""
        return self._session.row(self.name, key, as_of=as_of)

    def refresh(self) -> Freshness:
        """Catch up with the log, and keep a snapshot if that is worth it."""
        self._session.refresh([self.name])
        return self.freshness

    def snapshot(self) -> Snapshot | None:
        """Keep the state of now; None if another process is doing that."""
        return self._session.snapshot(self.name)

    @property
    def freshness(self) -> Freshness:
        """How far what was last read is behind the log's committed end."""
        return self._session.freshness(self.name)

    @property
    def reach(self) -> Reach:
        """How far back "as of" can go."""
        return self._session.reach([self.name])

    @property
    def snapshots(self) -> list[Snapshot]:
        return self._session.snapshots(self.name)

    @property
    def _sql_name(self) -> str:
        return ".".join(quoted(part) for part in self.name.split(".", 1))


def open_view(
    view: str | ViewDefinition,
    *,
    bootstrap: str = BOOTSTRAP,
    directory: str | Path = DIRECTORY,
    timeout_s: float = 60.0,
    client_config: Mapping[str, str] | None = None,
) -> View:
    """Open a view by the name that the cluster knows, or by a definition; it is read up to the log's end.

    `client_config` has the security settings of a Kafka client.
    """
    session = ViewSession(bootstrap, directory=directory, timeout_s=timeout_s, client_config=client_config)
    try:
        if isinstance(view, ViewDefinition):
            session.add(view)
        name = view.name if isinstance(view, ViewDefinition) else view
        session.refresh([name])
    except BaseException:
        session.close()
        raise
    return View(session, name)
