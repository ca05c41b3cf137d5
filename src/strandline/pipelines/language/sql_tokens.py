"""Spark SQL as far as a pipeline's file must be understood without Spark: words, quotes, comments, relations (pure).

Nothing is parsed that Spark will parse. What is found is where statements end, and which relations a query reads:
names after FROM and JOIN and the commas of a FROM clause, that are no common table expressions and no functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<quoted>`(?:[^`]|``)*`)
      | (?P<word>\w+)
      | (?P<open>['"`]|/\*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_FROM_ENDS: Final = ("WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW")
_QUERY_ENDS: Final = ("UNION", "EXCEPT", "INTERSECT", "MINUS")


class NotSql(Exception):
    """A text that cannot be taken apart: where, and why."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(why)
        self.at = at


class TokenKind(Enum):
    WORD = "word"
    QUOTED = "quoted"
    """An identifier in backticks."""
    TEXT = "text"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Token:
    kind: TokenKind
    text: str
    start: int
    end: int

    def says(self, *words: str) -> bool:
        return self.kind is TokenKind.WORD and self.text.upper() in words

    def is_sign(self, sign: str) -> bool:
        return self.kind is TokenKind.SIGN and self.text == sign

    @property
    def is_name(self) -> bool:
        return self.kind is TokenKind.QUOTED or (self.kind is TokenKind.WORD and not self.text.isdigit())

    @property
    def name(self) -> str:
        """As an identifier."""
        return self.text[1:-1].replace("``", "`") if self.kind is TokenKind.QUOTED else self.text

    @property
    def unquoted(self) -> str:
        """As a text."""
        quote = self.text[0]
        return re.sub(r"\\(.)", r"\1", self.text[1:-1].replace(quote * 2, quote), flags=re.DOTALL)


def tokens(text: str) -> list[Token]:
    found = []
    for match in _TOKEN.finditer(text):
        match match.lastgroup:
            case "space":
                pass
            case "open":
                what = "the comment" if match[0] == "/*" else f"the quote {match[0]}"
                raise NotSql(match.start(), f"{what} is not closed: close it")
            case kind:
                found.append(Token(TokenKind(kind), match[0], *match.span()))
    return found


def statements(text: str) -> Iterator[list[Token]]:
    """Return the tokens of each statement, without the semicolons."""
    statement: list[Token] = []
    for token in tokens(text):
        if token.is_sign(";"):
            if statement:
                yield statement
            statement = []
        else:
            statement.append(token)
    if statement:
        yield statement


@dataclass(frozen=True, slots=True)
class Relation:
    """A name that a query reads, and where it stands."""

    name: str
    is_stream: bool
    """STREAM(name)."""
    start: int
    end: int


@dataclass
class _Level:
    """One pair of parentheses."""

    is_query: bool = False
    in_from: bool = False
    wants_relation: bool = False


def relations(query: list[Token]) -> list[Relation]:
    """Return what the query reads, in the order of its text."""
    common = _common_names(query)
    found: list[Relation] = []
    # Outside of all parentheses FROM means a query, also one that begins with it: FROM orders |> WHERE paid.
    levels = [_Level(is_query=True)]
    index = 0
    while index < len(query):
        token, level = query[index], levels[-1]
        if level.wants_relation and token.is_name and not token.says("LATERAL", "SELECT", "VALUES", "WITH"):
            level.wants_relation = False
            relation, index = _relation(query, index)
            if relation is not None and relation.name.lower() not in common:
                found.append(relation)
            continue
        if token.is_sign("("):
            # FROM (a JOIN b) goes on inside; FROM (SELECT ...) begins again there.
            levels.append(_Level(level.wants_relation, level.wants_relation, level.wants_relation))
            level.wants_relation = False
        elif token.is_sign(")"):
            if len(levels) > 1:
                levels.pop()
        elif token.says("SELECT"):
            levels[-1] = _Level(is_query=True)
        elif token.says("FROM") and _begins_relations(query, index, level):
            level.in_from = level.wants_relation = True
        elif token.says("JOIN") or (token.is_sign(",") and level.in_from):
            level.wants_relation = True
        elif token.is_sign("|") or token.says(
            *_FROM_ENDS, *_QUERY_ENDS, "VALUES", *(("VIEW",) if level.in_from else ())
        ):
            # LATERAL VIEW names columns with commas between them, and so does what stands behind |>.
            level.in_from = level.wants_relation = False
        index += 1
    return found


def _begins_relations(query: list[Token], index: int, level: _Level) -> bool:
    """Return whether this FROM is followed by what is read: it is also a word of functions, and of IS DISTINCT FROM."""
    before = query[index - 1] if index else None
    return not (before is not None and before.says("DISTINCT")) and (
        level.is_query or (before is not None and before.is_sign("("))
    )


def _common_names(query: list[Token]) -> set[str]:
    """Names before AS ( in a query that begins WITH, here or in parentheses."""
    if not any(token.says("WITH") for token in query):
        return set()
    found = set()
    for index, token in enumerate(query):
        if not token.is_name:
            continue
        rest = index + 1
        if rest < len(query) and query[rest].is_sign("("):
            rest = _after_parentheses(query, rest)
        if rest + 1 < len(query) and query[rest].says("AS") and query[rest + 1].is_sign("("):
            found.add(token.name.lower())
    return found


def _relation(query: list[Token], index: int) -> tuple[Relation | None, int]:
    """Return the relation that begins here, if it is one of ours, and the index behind it."""
    token = query[index]
    after = query[index + 1] if index + 1 < len(query) else None
    if token.says("STREAM") and after is not None:
        if after.is_sign("(") and index + 3 < len(query) and query[index + 3].is_sign(")"):
            return Relation(query[index + 2].name, True, token.start, query[index + 3].end), index + 4
        if after.is_name and not after.says("AS", "WHERE", "JOIN", "GROUP"):
            return Relation(after.name, True, token.start, after.end), index + 2
    if after is not None and after.is_sign("("):
        return None, _after_parentheses(query, index + 1)
    if after is not None and after.is_sign("."):
        while index + 1 < len(query) and query[index + 1].is_sign("."):
            index += 2
        return None, index + 1
    return Relation(token.name, False, token.start, token.end), index + 1


def _after_parentheses(query: list[Token], index: int) -> int:
    depth = 0
    while index < len(query):
        depth += query[index].is_sign("(") - query[index].is_sign(")")
        index += 1
        if depth == 0:
            break
    return index
