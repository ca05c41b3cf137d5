"""How a page, an action and a stream are declared. `routing` makes routes of what `pages/index` names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from strandline.console.tables import TableHead

if TYPE_CHECKING:
    from strandline.console.context import PageContext
    from strandline.console.events import StreamEvent

Model = Callable[["PageContext"], Awaitable[Mapping[str, Any]]]
"""Answers the question of a page in plain data: what JSON can say, and `TableView`s."""


@dataclass(frozen=True)
class PageTable:
    """A table in the model of a page, for the description of the API."""

    key: str
    """Its key in the model."""
    heads: Sequence[TableHead]
    """Every column that it may have. Rows may have more."""
    name: str | None = None
    """Its name in the URL, where that is not the key; the only table of a page has none."""

    @property
    def prefix(self) -> str:
        """Return what stands before the names of its search, order and page in the URL."""
        name = self.key if self.name is None else self.name
        return "" if name in ("", "table") else f"{name}."


@dataclass(frozen=True)
class PageQuery:
    """A name that the URL of a page may have behind the `?`."""

    name: str
    text: str
    is_required: bool = False


@dataclass(frozen=True)
class ConsolePage:
    """A page. Its JSON twin, its CSV and its place in the navigation follow from this."""

    name: str
    """Its name in templates and tests, unique."""
    path: str
    """Below the cluster: `/topics/{topic}`. A parameter may have any character but a slash."""
    title: str
    """May name parameters: `{topic}`."""
    question: str
    """The question that the page answers, as a visitor would ask it. It stands below the title."""
    model: Model
    template: str
    """Below `templates/pages`. It fills the block `content` of `page.html`."""
    group: str = ""
    """The part of the navigation that the page belongs to; empty for a page that others lead to."""
    under: str = ""
    """The name of the page that the navigation shows as current instead, and that the way back leads to."""
    tables: Sequence[PageTable] = ()
    queries: Sequence[PageQuery] = ()
    """What the URL may have besides search, order and page of its tables."""
    has_charts: bool = False
    """Whether the page loads uPlot."""


@dataclass(frozen=True)
class ActionField:
    """Something that a visitor fills in."""

    name: str
    label: str
    kind: str = "text"
    """text, number, choice, flag, area, names or secret. A secret is asked for at the confirmation, never in the URL.

    The URL may have `names` several times, once for each; they are joined by blanks.
    """
    default: str = ""
    hint: str = ""
    number_max: int = 2**31 - 1
    choices: Sequence[str] = ()
    suggestions: Sequence[str] = ()
    """Texts that the form offers; others are allowed."""
    alias: str = ""
    """Another name that the URL may have it by."""
    is_required: bool = True
    is_fixed: bool = False
    """Whether it names the thing, so that the form shows it and does not let it change."""


Values = Mapping[str, str]
"""What was filled in, by the names of the fields; a flag is `true` or empty."""


@dataclass(frozen=True)
class ActionDone:
    """What an action did, in a sentence, and the page to go on to: a path below the cluster."""

    sentence: str
    location: str


@dataclass(frozen=True)
class ConsoleAction:
    """A change, made by one POST after a confirmation that names the thing and shows the command that does the same."""

    name: str
    """Its path is `/do/NAME`."""
    title: str
    """May name fields: `Delete topic {topic}`."""
    button: str
    """The word on the button: `Delete`."""
    run: Callable[[PageContext, Values], Awaitable[ActionDone]]
    command: Callable[[Values], Sequence[str]]
    """Returns the words of the command that does the same, without `strandline` and without the cluster."""
    server: str = "cluster"
    """What the command is told the address of: cluster, registry or connect."""
    consequence: str = ""
    """What will be different afterwards, in a sentence; may name fields."""
    fields: Sequence[ActionField] = ()
    plan: Callable[[PageContext, Values], Awaitable[Sequence[str]]] | None = None
    """Returns the lines of what would happen, for the confirmation. Raise PageFailed for values that are wrong."""
    is_dangerous: bool = False
    """Whether records or rights are lost, so that the name of the thing must be typed."""
    typed: str = ""
    """The field whose value must be typed for a dangerous action."""
    phrase: Callable[[Values], str] | None = None
    """Returns what must be typed instead, such as `3 topics`."""
    fill: Callable[[PageContext, Values], Awaitable[Values]] | None = None
    """Returns values for fields that the visitor has not given, as the cluster has them now."""
    more_commands: Callable[[Values], Sequence[Sequence[str]]] | None = None
    """Returns commands that follow the first one, where one alone does not do the same."""
    under: str = ""
    """The name of the page that it belongs to."""


@dataclass(frozen=True)
class ConsoleStream:
    """Events that flow as long as a tab is open, by server-sent events."""

    path: str
    """Below the cluster: `/live/overview`."""
    source: Callable[[PageContext, str], AsyncIterator[StreamEvent]]
    """Yields events. The text is the id of the last event that the tab has seen; empty if it has seen none."""


@dataclass(frozen=True)
class DownloadedFile:
    """A file that a browser saves. It is never shown, because its bytes may be anything."""

    name: str
    content: bytes
    media_type: str = "application/octet-stream"


@dataclass(frozen=True)
class ConsoleDownload:
    """A file, such as the value of a record."""

    path: str
    """Below the cluster: `/topics/{topic}/export`."""
    source: Callable[[PageContext], Awaitable[DownloadedFile]]


@dataclass(frozen=True)
class PageModule:
    """What one module of `pages` declares."""

    pages: Sequence[ConsolePage] = ()
    actions: Sequence[ConsoleAction] = ()
    streams: Sequence[ConsoleStream] = field(default=())
    downloads: Sequence[ConsoleDownload] = ()
