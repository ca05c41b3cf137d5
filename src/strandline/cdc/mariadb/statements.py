"""What is read of statements in the binlog: their kind, and the tables that DDL names. No more is parsed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

TableChangeType = Literal["CREATE", "ALTER", "DROP"]
StatementKind = Literal["begin", "commit", "rollback", "change", "truncate", "savepoint", "ddl", "other"]

_NAME: Final = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$@\x80-\U0010ffff]+)"
_FULL_NAME: Final = rf"{_NAME}(?:\s*\.\s*{_NAME})?"
_COMMENTS: Final = re.compile(r"\A(?:\s+|--[ \t][^\n]*\n|#[^\n]*\n|/\*(?!!|M!).*?\*/)+", re.DOTALL)
_EXECUTED: Final = re.compile(r"/\*M?!\d*|\*/")


def _named(begin: str, more: str = "") -> re.Pattern[str]:
    return re.compile(rf"{begin}({_FULL_NAME}{more})", re.IGNORECASE | re.DOTALL)


_CREATE: Final = r"create\s+(?:or\s+replace\s+)?(?:temporary\s+)?table\s+(?:if\s+not\s+exists\s+)?"
_ALTER: Final = r"alter\s+(?:online\s+)?(?:ignore\s+)?table\s+(?:if\s+exists\s+)?"
_DROP: Final = r"drop\s+(?:temporary\s+)?tables?\s+(?:/\*.*?\*/\s*)?(?:if\s+exists\s+)?"
_RENAME: Final = r"rename\s+tables?\s+(?:if\s+exists\s+)?"
_TRUNCATE: Final = r"truncate\s+(?:table\s+)?"
_INDEX: Final = r"(?:create|drop)\s+(?:or\s+replace\s+)?(?:unique\s+|fulltext\s+|spatial\s+)?index\b.*?\bon\s+"
_DATABASE: Final = re.compile(
    rf"(?:create|alter|drop)\s+(?:or\s+replace\s+)?(?:database|schema)\s+(?:if\s+(?:not\s+)?exists\s+)?({_NAME})",
    re.IGNORECASE,
)
_MORE: Final = rf"(?:\s*,\s*{_FULL_NAME})*"
_TO_MORE: Final = rf"\s+to\s+{_FULL_NAME}(?:\s*,\s*{_FULL_NAME}\s+to\s+{_FULL_NAME})*"
_TABLES: Final[Sequence[tuple[TableChangeType, re.Pattern[str]]]] = (
    ("CREATE", _named(_CREATE)),
    ("ALTER", _named(_ALTER)),
    ("DROP", _named(_DROP, _MORE)),
    ("ALTER", _named(_RENAME, _TO_MORE)),
    ("ALTER", _named(_TRUNCATE)),
    ("ALTER", _named(_INDEX)),
)
_RENAMED: Final = re.compile(rf"({_FULL_NAME})\s+to\s+({_FULL_NAME})", re.IGNORECASE)
_LISTED: Final = re.compile(_FULL_NAME)
_PARTS: Final = re.compile(_NAME)
_CHANGES: Final = frozenset(("insert", "update", "delete", "replace", "load"))
_DDL: Final = frozenset(("create", "alter", "drop", "rename"))
_WORD: Final = re.compile(r"[a-z]+", re.IGNORECASE)
_SAVEPOINT: Final = re.compile(rf"(savepoint|rollback(?:\s+work)?\s+to(?:\s+savepoint)?)\s+({_NAME})", re.IGNORECASE)
_XA: Final = re.compile(r"XA\s+(COMMIT|ROLLBACK)\s+(X'[0-9a-f]*',X'[0-9a-f]*',\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class NamedTable:
    """A table that DDL names, and what happens to it."""

    change: TableChangeType
    database: str
    name: str


def plain(statement: str) -> str:
    """Return a statement without comments in front and without the marks of version-dependent parts."""
    return _EXECUTED.sub(" ", _COMMENTS.sub("", statement)).strip() if "/*" in statement else statement.strip()


def kind_of(statement: str) -> StatementKind:
    """Return what a plain statement is."""
    found = _WORD.match(statement)
    word = "" if found is None else found[0].lower()
    match word:
        case "begin" | "commit":
            return word
        case "rollback":
            return "rollback" if len(statement.split()) == 1 else "savepoint"
        case "savepoint":
            return "savepoint"
        case "truncate":
            return "truncate"
    return "change" if word in _CHANGES else "ddl" if word in _DDL else "other"


def tables_of(statement: str, database: str) -> list[NamedTable]:
    """Return the tables that a plain statement of DDL names; `database` is the session's."""
    for change, pattern in _TABLES:
        found = pattern.match(statement)
        if found is None:
            continue
        renamed = _RENAMED.findall(found[1]) if statement[:6].lower() == "rename" else []
        if renamed:
            pairs = ((old, new) for old, new in renamed)
            return [NamedTable("ALTER", *_split(new, database)) for _, new in pairs]
        return [NamedTable(change, *_split(each, database)) for each in _LISTED.findall(found[1])]
    return []


def database_of(statement: str) -> str | None:
    """Return the database that a plain statement creates, alters or drops; None if it is no such statement."""
    found = _DATABASE.match(statement)
    return None if found is None else _unquoted(found[1])


def savepoint_of(statement: str) -> tuple[bool, str]:
    """Return whether a plain statement goes back to a savepoint, and its name."""
    found = _SAVEPOINT.match(statement)
    return (False, "") if found is None else (found[1][0] in "rR", _unquoted(found[2]).lower())


def prepared_end(statement: str) -> tuple[bool, str] | None:
    """Return whether a statement commits a prepared XA transaction, and the id of it; None if it ends none."""
    found = _XA.match(statement)
    return None if found is None else (found[1].upper() == "COMMIT", found[2].lower())


def _split(name: str, database: str) -> tuple[str, str]:
    parts = [_unquoted(each) for each in _PARTS.findall(name)]
    return (parts[0], parts[1]) if len(parts) > 1 else (database, parts[0])


def _unquoted(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name
