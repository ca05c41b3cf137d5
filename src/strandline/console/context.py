"""What the model of a page gets: the cluster as the visitor may see it, the URL, and what to tell beside the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from strandline.console.failures import PageFailed
from strandline.console.masking import TopicMasks
from strandline.console.reading.cluster_reading import ClusterReading
from strandline.console.settings import ConsoleCluster, ConsoleSettings
from strandline.console.tables import Row, TableHead, TableView

if TYPE_CHECKING:
    from strandline.console.audit import AuditTrail
    from strandline.console.sessions import ConsoleSession


def _no_template(template: str, model: Mapping[str, Any]) -> str:
    raise AssertionError(f"{template} is rendered by the frame: only streams render parts")


@dataclass
class PageContext:
    """One request for a page, an action or a stream."""

    settings: ConsoleSettings
    cluster: ConsoleCluster
    session: ConsoleSession
    reading: ClusterReading
    audit: AuditTrail
    params: Mapping[str, str] = field(default_factory=dict)
    """The parameters of the path."""
    query: Mapping[str, str] = field(default_factory=dict)
    """What stands behind the `?` of the URL."""
    is_export: bool = False
    """Whether tables have all rows, for CSV or JSON."""
    render: Callable[[str, Mapping[str, Any]], str] = field(default=_no_template, repr=False)
    """Returns a template below `templates` with a model, for streams that send parts of a page."""

    @property
    def read_only(self) -> str | None:
        """Why nothing may be changed; None if it may."""
        return self.settings.why_read_only(self.cluster)

    @property
    def user(self) -> str:
        """The name of the visitor in the cluster; empty where it has no login."""
        return self.reading.shared.user.name

    def path(self, *words: str) -> str:
        """Return a path below the cluster: `context.path("topics", name)`."""
        return "/" + "/".join(quote(word, safe="") for word in words)

    def masks(self, topic: str) -> TopicMasks:
        """Return what of the records of a topic no visitor may see. Apply it before a value gets into a model."""
        return TopicMasks(self.settings.masks, topic)

    def table(
        self,
        heads: Sequence[TableHead],
        rows: Iterable[Row],
        *,
        caption: str,
        name: str = "",
        searched: Sequence[str] = (),
        sort: str = "",
        empty: str = "There is nothing here.",
    ) -> TableView:
        """Return a table whose search, order and page are those of the URL. The caption is for screen readers."""
        return TableView(
            heads,
            rows,
            self.query,
            name=name,
            caption=caption,
            searched=searched,
            sort=sort,
            empty=empty,
            is_whole=self.is_export,
        )

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """Return a number of the URL. Raise PageFailed for other text."""
        text = self.query.get(name, "").strip()
        if not text:
            return default
        if not re.fullmatch(r"-?[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise PageFailed(400, f"{name}={text} is not allowed; expected a number from {least} to {most}")
        return int(text)

    def choice(self, name: str, allowed: Sequence[str]) -> str:
        """Return a word of the URL, the first of those that are allowed if there is none. Raise PageFailed."""
        text = self.query.get(name) or allowed[0]
        if text not in allowed:
            raise PageFailed(400, f"{name}={text} is unknown; expected {', '.join(filter(None, allowed))}")
        return text


def plain(value: Any) -> Any:
    """Return a model as JSON has it."""
    if isinstance(value, TableView):
        return plain(value.as_object())
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if value is None or isinstance(value, bool | int | float):
        return None if isinstance(value, float) and value != value else value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)
