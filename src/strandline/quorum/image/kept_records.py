"""Access rules, quotas, credentials and tokens, and records that mean nothing here, kept by their identity.

The newest record of each identity is kept and written out again with a snapshot, also where Apache Kafka wrote it and
nothing here acts on it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

Identity = tuple[object, ...]

# By class name, so that a node which meets none of these need not import their modules at start.
_ADDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "RegisterControllerRecord": ("controller", ("controller_id",)),
    "AccessControlEntryRecord": ("access", ("id",)),
    "ClientQuotaRecord": ("quota", ("entity", "key")),
    "UserScramCredentialRecord": ("scram", ("name", "mechanism")),
    "DelegationTokenRecord": ("token", ("token_id",)),
    "ZkMigrationStateRecord": ("migration", ()),
}
_REMOVES: dict[str, tuple[str, tuple[str, ...]]] = {
    "RemoveAccessControlEntryRecord": ("access", ("id",)),
    "RemoveUserScramCredentialRecord": ("scram", ("name", "mechanism")),
    "RemoveDelegationTokenRecord": ("token", ("token_id",)),
}


@dataclasses.dataclass(slots=True)
class KeptRecords:
    by_identity: dict[Identity, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, int] = dataclasses.field(default_factory=dict, compare=False)
    """How often records of a kind (`access`, `quota`, `scram`, `token`) were applied; changes with each."""

    def copy(self) -> KeptRecords:
        return KeptRecords(dict(self.by_identity), dict(self.versions))

    def of_kind(self, kind: str) -> list[Any]:
        """Return the records of a kind, in no particular order."""
        return [record for identity, record in self.by_identity.items() if identity[0] == kind]

    def same_as(self, record: Any) -> Any | None:
        """Return the record that is kept of what this one describes."""
        return self.by_identity.get(_identity(record, *_ADDS[type(record).__name__]))

    def apply(self, record: Any) -> None:
        """Keep the record, or forget the one it removes. TypeError for what is no record of the metadata log."""
        name = type(record).__name__
        if name in _REMOVES or name in _ADDS:
            kind = (_REMOVES.get(name) or _ADDS[name])[0]
            self.versions[kind] = self.versions.get(kind, 0) + 1
        if name in _REMOVES:
            self.by_identity.pop(_identity(record, *_REMOVES[name]), None)
        elif name not in _ADDS:
            raise TypeError(f"no record of the metadata log: {name}")
        elif name == "ClientQuotaRecord" and record.remove:
            self.by_identity.pop(_identity(record, *_ADDS[name]), None)
        else:
            self.by_identity[_identity(record, *_ADDS[name])] = record

    def records(self) -> list[Any]:
        return [self.by_identity[identity] for identity in sorted(self.by_identity, key=repr)]


def _identity(record: Any, kind: str, attributes: tuple[str, ...]) -> Identity:
    """Return the key of what the record describes."""
    parts: list[object] = [kind]
    for attribute in attributes:
        value = getattr(record, attribute)
        if attribute == "entity":
            # A null name is the default of its type, which is not the entity named "".
            value = tuple(sorted((each.entity_type, repr(each.entity_name)) for each in value))
        parts.append(value)
    return tuple(parts)
