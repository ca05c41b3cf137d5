"""The commands for access rules: ACLs created, and ACLs deleted by filters.

The controller looks ACLs up by their content and by their resource. That index is made from the image when it is first
needed, and again if the image is another one.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from strandline.codec.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.state import ControllerState, Decisions
from strandline.quorum.image.kept_records import KeptRecords
from strandline.security.acl.access_rule import Acl, AclFilter, acl_of, check_acl, record_of
from strandline.security.acl.kinds import WILDCARD, PatternType

ACLS_PER_REQUEST_MAX: Final = 10_000
"""ACLs that one request may create or delete, as in Kafka."""
ACCESS: Final = "access"
ACLS_PER_STEP: Final = 1_000
"""ACLs that a filter looks at before others are served."""


class AclIndex:
    """ACLs with the ids of their records, found by content and by the name of their resource."""

    def __init__(self) -> None:
        self._ids: dict[Acl, list[uuid.UUID]] = {}
        self._by_name: dict[str, dict[Acl, None]] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._ids

    def add(self, acl: Acl, *ids: uuid.UUID) -> None:
        self._ids.setdefault(acl, []).extend(ids)
        self._by_name.setdefault(acl.name, {})[acl] = None

    def pop(self, acl: Acl) -> list[uuid.UUID]:
        """Remove an ACL; return the ids of its records."""
        same_name = self._by_name[acl.name]
        del same_name[acl]
        if not same_name:
            del self._by_name[acl.name]
        return self._ids.pop(acl)

    def candidates(self, selection: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter may select: all of them only if it names no resource."""
        name = selection.name
        if name is None:
            return list(self._ids)
        if selection.pattern_type != PatternType.MATCH:
            return list(self._by_name.get(name, ()))
        covering = {WILDCARD, *(name[:length] for length in range(1, len(name) + 1))}
        return [acl for each in covering for acl in self._by_name.get(each, ())]


class AccessRules:
    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._kept: KeptRecords | None = None
        self._version = 0
        self._index = AclIndex()

    def create(self, acls: Sequence[Acl]) -> Decisions[RequestError | None]:
        """Yield for each ACL its record and None, or why it is rejected.

        One that exists, or that comes twice, succeeds without a record.
        """
        refusal = self._refusal_of_many(acls)
        for acl in acls:
            try:
                if refusal is not None:
                    raise refusal
                check_acl(acl)
                self._refresh()
            except RequestError as refused:
                yield [], refused
                continue
            if acl in self._index:
                yield [], None
                continue
            acl_id = uuid.UUID(int=self._state.rng.getrandbits(128), version=4)
            self._index.add(acl, acl_id)
            yield self._decided([record_of(acl, acl_id)]), None

    def _refusal_of_many(self, acls: Sequence[Acl]) -> RequestError | None:
        if len(acls) <= ACLS_PER_REQUEST_MAX or self._state.refusal is not None:
            return self._state.refusal
        self._refresh()
        new = {acl for acl in acls if acl not in self._index}
        return _too_many("create") if len(new) > ACLS_PER_REQUEST_MAX else None

    def delete(self, filters: Sequence[AclFilter]) -> Decisions[list[Acl] | RequestError]:
        """Yield for each filter the ACLs that it selects, with the records that remove them, or why it is rejected.

        An ACL that several filters select is in the outcome of each of them.
        """
        gone = AclIndex()
        for selection in filters:
            selected: list[Acl] = []
            try:
                selection.check()
                self._refresh()
                candidates = [*self._index.candidates(selection), *gone.candidates(selection)]
                for first in range(0, len(candidates), ACLS_PER_STEP):
                    if first:
                        yield None
                    selected += filter(selection.matches, candidates[first : first + ACLS_PER_STEP])
                # Meanwhile another request may have deleted some of them.
                self._refresh()
                removed = [acl for acl in selected if acl in self._index]
                if len(gone) + len(removed) > ACLS_PER_REQUEST_MAX:
                    raise _too_many("delete")
            except RequestError as refused:
                yield [], refused
                continue
            records = []
            for acl in removed:
                gone.add(acl)
                records += [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in self._index.pop(acl)]
            yield self._decided(records), [acl for acl in selected if acl in gone]

    def _decided(self, records: list[Any]) -> list[Any]:
        kept = self._state.image.kept
        self._state.decided(records)
        self._kept, self._version = kept, kept.versions.get(ACCESS, 0)
        return records

    def _refresh(self) -> None:
        """Make the index again if it is not the image's. NOT_CONTROLLER where nothing is decided."""
        kept = self._state.image.kept
        version = kept.versions.get(ACCESS, 0)
        if kept is self._kept and version == self._version:
            return
        self._kept, self._version = kept, version
        self._index = AclIndex()
        for record in kept.of_kind(ACCESS):
            self._index.add(acl_of(record), record.id)


def _too_many(verb: str) -> RequestError:
    message = f"One request may {verb} at most {ACLS_PER_REQUEST_MAX} ACLs; send several."
    return RequestError(ErrorCode.POLICY_VIOLATION, message)
