"""The types of one database, as its catalogue `pg_type` has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row

CATALOG: Final = "pg_catalog"
"""The schema of the types that PostgreSQL has itself."""
DOMAINS_DEEP_MAX: Final = 100
_QUERY: Final = """
select t.oid::int8, t.typname::text, n.nspname::text, t.typtype::text,
  case when t.typinput = 'pg_catalog.array_in'::pg_catalog.regproc then t.typelem::int8 else 0 end,
  t.typbasetype::int8, t.typtypmod, t.typdelim::text,
  (select pg_catalog.array_agg(e.enumlabel::text order by e.enumsortorder)
   from pg_catalog.pg_enum e where e.enumtypid = t.oid)
from pg_catalog.pg_type t join pg_catalog.pg_namespace n on n.oid = t.typnamespace
where n.nspname <> 'pg_toast'
"""


@dataclass(frozen=True)
class PgType:
    """A type of the database."""

    oid: int
    name: str
    namespace: str
    kind: str
    """That of `typtype`: b base, c composite, d domain, e enum, m multirange, p pseudo, r range."""
    element: int = 0
    """The type of an array's elements; 0 if it is no array."""
    base: int = 0
    """The type that a domain is made of; 0 if it is no domain."""
    modifier: int = -1
    """The modifier that a domain gives its base."""
    delimiter: str = ","
    """What stands between values of this type in an array."""
    labels: tuple[str, ...] = ()
    """Those of an enum, in its order."""

    @property
    def is_builtin(self) -> bool:
        """Return whether it is one of PostgreSQL's own types."""
        return self.namespace == CATALOG


class TypeCatalog:
    """The types by their oid."""

    def __init__(self, types: Iterable[PgType]) -> None:
        self._types = {each.oid: each for each in types}
        self._added: list[tuple[int, str]] = []
        """Labels of enums that the catalogue has not any more."""

    @classmethod
    def load(cls, connection: psycopg.Connection[Any]) -> TypeCatalog:
        """Return the types that the database has now, in one query."""
        with connection.cursor(row_factory=tuple_row) as cursor:
            rows = cursor.execute(_QUERY).fetchall()
        return cls(map(_type, rows))

    def reloaded(self, connection: psycopg.Connection[Any]) -> TypeCatalog:
        """Return the types that the database has now. Labels that only the stream has are kept."""
        made = TypeCatalog.load(connection)
        for oid, label in self._added:
            made.add_label(oid, label)
        return made

    def may_be_old(self, oid: int) -> bool:
        """Return whether the database may have something newer: a type is not known, or has labels."""
        found = self.resolved(oid, -1)[0]
        if found is not None and found.element:
            found = self.resolved(found.element, -1)[0]
        return found is None or found.kind == "e"

    def add_label(self, oid: int, label: str) -> None:
        """Add a label of the stream to an enum, unless it has it."""
        found = self._types.get(oid)
        if found is not None and label not in found.labels:
            self._types[oid] = replace(found, labels=(*found.labels, label))
            self._added.append((oid, label))

    def get(self, oid: int) -> PgType | None:
        """Return a type; None if it is not known, because it was created later or is gone."""
        return self._types.get(oid)

    def resolved(self, oid: int, modifier: int) -> tuple[PgType | None, int]:
        """Return the type below all domains, and the modifier that holds for it."""
        found = self.get(oid)
        for _ in range(DOMAINS_DEEP_MAX):
            if found is None or not found.base:
                break
            modifier = found.modifier if modifier == -1 else modifier
            found = self.get(found.base)
        return found, modifier


def _type(row: tuple[Any, ...]) -> PgType:
    oid, name, namespace, kind, element, base, modifier, delimiter, labels = row
    return PgType(oid, name, namespace, kind, element, base, modifier, delimiter, tuple(labels or ()))
