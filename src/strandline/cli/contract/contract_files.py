"""Reads contracts from files, and says which kinds of things they may contain."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from strandline.cli.common.documents import read_files
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.contract.acls_kind import AclKind
from strandline.cli.contract.kinds import ContractDefaults, ContractItem, ContractKind
from strandline.cli.contract.quotas_kind import QuotaKind
from strandline.cli.contract.schemas_kind import SchemaKind
from strandline.cli.contract.topics_kind import TopicKind
from strandline.documents.fields import Fields
from strandline.documents.yaml_text import INSTALL

KINDS: Final[tuple[ContractKind, ...]] = (TopicKind(), SchemaKind(), AclKind(), QuotaKind())


@dataclass
class Contract:
    """What all files together say, by kind."""

    items: dict[str, list[ContractItem]] = field(default_factory=dict)

    def of(self, kind: ContractKind) -> list[ContractItem]:
        return self.items.get(kind.field, [])

    @property
    def count(self) -> int:
        return sum(len(each) for each in self.items.values())


def read_contract(names: list[str]) -> Contract:
    """Return the contract of files and directories; UsageFailed names file and line of what is wrong."""
    contract = Contract()
    seen: dict[tuple[str, str], ContractItem] = {}
    for document in read_files(names):
        for kind, item in document.read(_items_of):
            placed = replace(item, source=document)
            other = seen.setdefault((kind, item.key), placed)
            if other is not placed:
                raise UsageFailed(
                    f"{placed.place}: {item.key} is declared twice, first in {other.place}",
                    hint="write all that a contract says of one thing in one entry",
                )
            contract.items.setdefault(kind, []).append(placed)
    if not contract.count:
        raise UsageFailed(f"{', '.join(names)} has no contract", hint="docs/contracts.md shows what one looks like")
    return contract


def _items_of(value: Any) -> list[tuple[str, ContractItem]]:
    fields = Fields(value, of="a contract")
    defaults = ContractDefaults(owner=fields.text("owner"))
    fields.text("about")
    found = []
    for kind in KINDS:
        for part in fields.parts(kind.field, of=f"an entry of {kind.field}"):
            found.append((kind.field, kind.parse(part, defaults)))
    fields.done()
    return found


def document_of(value: dict[str, Any]) -> str:
    """Return a document, as people would write it."""
    try:
        import yaml
    except ImportError:
        raise CommandFailed("writing YAML needs PyYAML, which is not installed", hint=INSTALL) from None

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110, default_flow_style=False)
    return text
