"""The commands for access rules: ACLs created, and ACLs deleted by filters.

The controller looks ACLs up by their content and by their resource. That index is made from the image when it is first
needed, and again if the image is another one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from strandline.codec.messages.access_control_entry_record import AccessControlEntryRecord
from strandline.codec.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.state import ControllerState, Decision, Decisions
from strandline.quorum.image.kept_records import KeptRecords
from strandline.security.acl.access_rule import Acl, AclFilter, acl_of, check_acl, record_of
from strandline.security.acl.kinds import WILDCARD, PatternType

ACLS_PER_REQUEST_MAX: Final = 10_000
"""ACLs that one request may create or delete, as in Kafka."""
ACCESS: Final = "access"
ACLS_PER_STEP: Final = 1_000
"""ACLs that a filter looks at before others are served."""


class AccessRules:
    def __init__(self, state: ControllerState) -> None:
        self._state = state
        self._kept: KeptRecords | None = None
        self._version = 0
        self._ids: dict[Acl, list[uuid.UUID]] = {}
        self._by_name: dict[str, dict[Acl, None]] = {}

    def create(self, acls: Sequence[Acl]) -> Decision[list[RequestError | None]]:
        """Return the records of all new ACLs, and for each ACL None or why it is rejected.

        One that exists, or that comes twice, succeeds without a record.
        """
        self._refresh()
        records = []
        outcomes: list[RequestError | None] = []
        created: dict[Acl, None] = {}
        for acl in acls:
            try:
                check_acl(acl)
            except RequestError as refused:
                outcomes.append(refused)
                continue
            outcomes.append(None)
            if acl not in self._ids:
                created[acl] = None
        if len(created) > ACLS_PER_REQUEST_MAX:
            raise _too_many("create")
        for acl in created:
            acl_id = uuid.UUID(int=self._state.rng.getrandbits(128), version=4)
            self._add(acl, acl_id)
            records.append(record_of(acl, acl_id))
        self._decided(records)
        return records, outcomes

    def delete(self, filters: Sequence[AclFilter]) -> Decisions[list[Acl] | RequestError]:
        """Yield for each filter the ACLs that it selects, with the records that remove them, or why it is rejected.

        An ACL that several filters select is in the outcome of each of them.
        """
        gone: dict[Acl, None] = {}
        for selection in filters:
            selected: dict[Acl, None] = {}
            try:
                selection.check()
                self._refresh()
                for count, acl in enumerate([*self._candidates(selection), *gone], start=1):
                    if selection.matches(acl):
                        selected[acl] = None
                    if count % ACLS_PER_STEP == 0:
                        yield None
                # Meanwhile another request may have deleted some of them.
                self._refresh()
                removed = [acl for acl in selected if acl in self._ids]
                if len(gone) + len(removed) > ACLS_PER_REQUEST_MAX:
                    raise _too_many("delete")
            except RequestError as refused:
                yield [], refused
                continue
            gone.update(dict.fromkeys(removed))
            yield self._remove(removed), [acl for acl in selected if acl in gone]

    def _candidates(self, selection: AclFilter) -> Iterable[Acl]:
        name = selection.name
        if name is None:
            return self._ids
        if selection.pattern_type != PatternType.MATCH:
            return self._by_name.get(name, ())
        return self._covering(name)

    def _covering(self, name: str) -> Iterator[Acl]:
        for each in {WILDCARD, *(name[:length] for length in range(1, len(name) + 1))}:
            yield from self._by_name.get(each, ())

    def _remove(self, acls: list[Acl]) -> list[RemoveAccessControlEntryRecord]:
        records = []
        for acl in acls:
            records += [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in self._ids.pop(acl)]
            same_name = self._by_name[acl.name]
            del same_name[acl]
            if not same_name:
                del self._by_name[acl.name]
        self._decided(records)
        return records

    def _decided(self, records: list[AccessControlEntryRecord] | list[RemoveAccessControlEntryRecord]) -> None:
        kept = self._state.image.kept
        self._state.decided(list(records))
        self._kept, self._version = kept, kept.versions.get(ACCESS, 0)

    def _refresh(self) -> None:
        """Make the index again if it is not the image's. NOT_CONTROLLER where nothing is decided."""
        kept = self._state.image.kept
        version = kept.versions.get(ACCESS, 0)
        if kept is self._kept and version == self._version:
            return
        self._kept, self._version = kept, version
        self._ids, self._by_name = {}, {}
        for record in kept.of_kind(ACCESS):
            self._add(acl_of(record), record.id)

    def _add(self, acl: Acl, acl_id: uuid.UUID) -> None:
        self._ids.setdefault(acl, []).append(acl_id)
        self._by_name.setdefault(acl.name, {})[acl] = None


def _too_many(verb: str) -> RequestError:
    message = f"One request may {verb} at most {ACLS_PER_REQUEST_MAX} ACLs; send several."
    return RequestError(ErrorCode.POLICY_VIOLATION, message)
