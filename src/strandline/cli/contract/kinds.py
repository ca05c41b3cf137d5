"""What a contract may contain: each kind of thing knows how to read, compare, change and write itself.

A kind has a field of the document (`topics:`). It parses its entries, reads what the cluster has of them, and returns
the steps between the two. A step carries its own change, so that a plan and its application cannot differ. New kinds
(connectors, pipelines) are a class more in `KINDS` of `contract_files`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, Protocol

from strandline.cli.common.client import Cluster
from strandline.cli.common.documents import NamedDocument
from strandline.documents.fields import Fields, Path


class Action(StrEnum):
    """What a step does."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


class Turn(IntEnum):
    """The order of steps: what others need comes first, what takes away comes last."""

    CREATE = 10
    CHANGE = 20
    GRANT = 30
    QUOTA = 40
    DELETE = 80
    REVOKE = 90


@dataclass(frozen=True)
class ContractDefaults:
    """What a document says once for all of its entries."""

    owner: str | None = None


@dataclass(frozen=True)
class ContractItem:
    """One entry of a contract. `key` is what may be declared only once in all files."""

    key: str
    value: Any
    path: Path
    source: NamedDocument | None = None

    @property
    def place(self) -> str:
        if self.source is None:
            return "the contract"
        return f"{self.source.file}:{self.source.document.line_of(self.path)}"


class Detail(NamedTuple):
    """One difference. Without values it is a thing that comes or goes as a whole."""

    name: str
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        if self.before is None:
            return self.name if self.after is None else f"{self.name}: {self.after}"
        return f"{self.name}: {self.before} -> {self.after}"


@dataclass(frozen=True)
class ContractStep:
    """One change that brings a cluster nearer to its contracts."""

    kind: str
    action: Action
    name: str
    """What is changed, in words: `topic orders`."""
    turn: Turn
    run: Callable[[], None] = field(repr=False, compare=False)
    details: tuple[Detail, ...] = ()
    destroys: tuple[str, ...] = ()
    """What it takes away for good, or from clients."""
    refusal: str = ""
    """Why it cannot be done."""
    change: Any = None
    """The change as its kind has it, for checks."""

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "action": str(self.action),
            "name": self.name,
            "details": [{"name": each.name, "before": each.before, "after": each.after} for each in self.details],
            "destroys": list(self.destroys),
            "refusal": self.refusal or None,
        }


@dataclass
class Access:
    """A cluster with one admin client for a whole command, and the registry beside it."""

    cluster: Cluster
    admin: Any
    notes: list[str] = field(default_factory=list)
    """What a person should know beside the steps."""
    registry_url: str | None = None
    """The schema registry, if it was named."""


class ContractKind(Protocol):
    """One kind of thing in a contract."""

    @property
    def field(self) -> str:
        """The field of the document that has its entries, which is also the name of the kind."""

    def parse(self, fields: Fields, defaults: ContractDefaults) -> ContractItem:
        """Return one entry; DocumentFailed says what is wrong with it."""

    def steps(self, access: Access, items: Sequence[ContractItem]) -> list[ContractStep]:
        """Return the steps from what the cluster has to what the entries say."""

    def export(self, access: Access, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Return entries that describe what the cluster has, by the name of the file that suits them.

        `names` selects topics; without any, everything is exported.
        """

    def unmanaged(self, access: Access, items: Sequence[ContractItem]) -> list[str]:
        """Return what the cluster has of this kind, and no entry names."""
