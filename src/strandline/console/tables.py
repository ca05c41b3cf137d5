"""Tables with search, sorting and paging in the URL. Each is data, so that the page, JSON and CSV show the same."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from strandline.console.failures import PageFailed

ROWS_SHOWN: Final = 50
ROWS_SHOWN_MAX: Final = 1000
ROWS_EXPORTED_MAX: Final = 200_000
SEARCH_MAX: Final = 200
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")

Row = Mapping[str, Any]


@dataclass(frozen=True)
class TableHead:
    """A column. `kind` is text, name, number, bytes, rate, span, time, share, verdict or list: how values are shown."""

    key: str
    label: str
    kind: str = "text"
    hint: str = ""
    link: Callable[[Row], str] | None = None
    """Returns where a cell leads to: a path below the cluster."""
    is_sorted: bool = True
    """Whether visitors can sort by it."""
    is_wide: bool = False
    """Whether narrow screens leave it out."""

    @property
    def is_number(self) -> bool:
        return self.kind in ("number", "bytes", "rate", "span", "share")


class TableView:
    """The rows of one page of a table, and the URLs of others. `name` is empty for the only table of a page."""

    def __init__(
        self,
        heads: Sequence[TableHead],
        rows: Iterable[Row],
        query: Mapping[str, str],
        *,
        name: str = "",
        caption: str,
        searched: Sequence[str] = (),
        sort: str = "",
        empty: str = "There is nothing here.",
        is_whole: bool = False,
    ) -> None:
        """`sort` is the key of the column that orders by default, with `-` in front to begin with the largest."""
        self.heads = heads
        self.name = name
        self.caption = caption
        self.empty = empty
        self.can_search = bool(searched)
        self._query = dict(query)
        every = list(rows)
        self.total = len(every)
        self.search = self._given("search")[:SEARCH_MAX]
        found = _found(every, self.search, searched)
        self.found = len(found)
        self.sort = self._given("sort") or sort
        self.every = self._sorted(found)
        self._default_sort = sort
        self.size = ROWS_EXPORTED_MAX if is_whole else _number(self._given("size"), ROWS_SHOWN, ROWS_SHOWN_MAX)
        self.pages = max(1, -(-self.found // self.size))
        self.page = min(_number(self._given("page"), 1, self.pages), self.pages)
        self.rows = self.every[(self.page - 1) * self.size : self.page * self.size]

    @property
    def first(self) -> int:
        return min(self.found, (self.page - 1) * self.size + 1)

    @property
    def last(self) -> int:
        return min(self.found, self.page * self.size)

    @property
    def hidden(self) -> list[tuple[str, str]]:
        """The rest of the URL, for the form of the search."""
        mine = (self._key("search"), self._key("page"), "export", "table")
        return [(name, text) for name, text in self._query.items() if name not in mine]

    def search_key(self) -> str:
        return self._key("search")

    def url(self, **changes: object) -> str:
        """Return the query of the URL with changes of this table: `table.url(page=2)`."""
        found = {name: text for name, text in self._query.items() if name not in ("export", "table")}
        for name, value in changes.items():
            found[self._key(name) if name not in ("export", "table") else name] = str(value)
        return "?" + urlencode({name: text for name, text in found.items() if text})

    def sort_url(self, head: TableHead) -> str:
        """Return the URL that sorts by a column, the other way round if it does already."""
        first = "-" if head.is_number else ""
        is_again = self.sort == f"{first}{head.key}"
        key = head.key if is_again and first else f"-{head.key}" if is_again else f"{first}{head.key}"
        return self.url(sort=key, page="")

    def order(self, head: TableHead) -> str:
        """Return the value of `aria-sort`."""
        if self.sort.lstrip("-") != head.key:
            return "none"
        return "descending" if self.sort.startswith("-") else "ascending"

    def as_object(self) -> dict[str, Any]:
        """Return it for the JSON twin."""
        return {
            "rows": [dict(each) for each in self.rows],
            "total": self.total,
            "found": self.found,
            "page": self.page,
            "pages": self.pages,
            "sort": self.sort,
            "search": self.search,
        }

    def csv(self) -> str:
        """Return every row that was found. A spreadsheet must not take a name for a formula."""
        written = io.StringIO()
        writer = csv.writer(written, lineterminator="\r\n")
        writer.writerow([_cell(head.key) for head in self.heads])
        for row in self.every[:ROWS_EXPORTED_MAX]:
            writer.writerow([_cell(row.get(head.key)) for head in self.heads])
        return written.getvalue()

    def _sorted(self, rows: list[Row]) -> list[Row]:
        key = self.sort.lstrip("-")
        if not any(head.key == key and head.is_sorted for head in self.heads):
            return rows
        # Rows without a value come last, whichever way it is sorted.
        with_value = [row for row in rows if row.get(key) is not None]
        try:
            with_value.sort(key=lambda row: row[key], reverse=self.sort.startswith("-"))
        except TypeError:
            with_value.sort(key=lambda row: str(row[key]), reverse=self.sort.startswith("-"))
        return with_value + [row for row in rows if row.get(key) is None]

    def _given(self, name: str) -> str:
        return self._query.get(self._key(name), "")

    def _key(self, name: str) -> str:
        short = "q" if name == "search" else name
        return f"{self.name}.{short}" if self.name else short


def _found(rows: list[Row], search: str, searched: Sequence[str]) -> list[Row]:
    """Return the rows that have each word of the search; between slashes it is a regular expression."""
    if not search.strip() or not searched:
        return rows
    if len(search) > 2 and search.startswith("/") and search.endswith("/"):
        import re2

        try:
            pattern = re2.compile(search[1:-1])
        except re2.error as error:
            raise PageFailed(400, f"{search} is no regular expression: {error}", "leave the slashes out") from None
        return [row for row in rows if any(pattern.search(_text(row.get(key))) for key in searched)]
    words = search.lower().split()
    return [row for row in rows if _has_all(" ".join(_text(row.get(key)) for key in searched).lower(), words)]


def _has_all(text: str, words: list[str]) -> bool:
    return all(word in text for word in words)


def _text(value: object) -> str:
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _cell(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = _text(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _number(text: str, default: int, most: int) -> int:
    return max(1, min(int(text), most)) if text.isascii() and text.isdigit() and len(text) < 10 else default
