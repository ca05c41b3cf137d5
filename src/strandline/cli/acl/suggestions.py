"""From denials to the fewest ACLs that allow what clients asked for (pure)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from strandline.cli.acl.rules import has_short_words
from strandline.security.acl.access_rule import Acl
from strandline.security.acl.denial_log import Denial
from strandline.security.acl.kinds import GRANTS, WILDCARD, Operation, PatternType, Permission, ResourceType

ALIKE_MIN = 2
"""Names that begin alike before one rule for their prefix is suggested."""
ACLS_PER_COMMAND = 20
_PREFIX = re.compile(r"[._-]*[^._-]+[._-]")
_IN_COMMANDS = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)

Place = tuple[str, str, int, int, str]
"""Principal, host, resource type, pattern type and name."""
Wishes = dict[Place, Counter[Operation]]
"""How often each operation was denied."""


def may_be_suggested(denial: Denial) -> bool:
    """Return whether `acl grant` can allow this and nothing more.

    A client chooses the names that it asks for. One that ends with `*` would be granted as a prefix, or as everything.
    """
    names = denial.name, denial.principal
    return (
        denial.resource_type in _IN_COMMANDS
        and denial.operation > Operation.ALL
        and all(name and name.isprintable() and not name.endswith(WILDCARD) for name in names)
        and ":" in denial.principal
    )


def suggested(denials: Mapping[Denial, int], *, by_prefix: bool, by_host: bool) -> list[dict[Acl, int]]:
    """Return the ACLs that allow all of this, those of one command together, with the denials that each prevents."""
    wishes: Wishes = defaultdict(Counter)
    for denial, times in denials.items():
        host = denial.host if by_host else WILDCARD
        place = denial.principal, host, denial.resource_type, PatternType.LITERAL, denial.name
        wishes[place][denial.operation] += times
    if by_prefix:
        wishes = _by_prefix(wishes)
    commands: dict[tuple[str, ...], list[dict[Acl, int]]] = {}
    for (principal, host, kind, pattern, name), operations in sorted(wishes.items(), key=lambda wish: wish[0]):
        for operation in sorted(_not_implied(operations)):
            acl = Acl(kind, pattern, name, principal, host, operation, Permission.ALLOW)
            # A command without --operation can name many kinds of resources. One with it is about a single kind.
            more = () if has_short_words(acl) else (ResourceType(kind).name, operation.name)
            together = commands.setdefault((principal, host, *more), [{}])
            if len(together[-1]) >= ACLS_PER_COMMAND:
                together.append({})
            together[-1][acl] = sum(times for each, times in operations.items() if GRANTS[operation] >> each & 1)
    return [acls for key in sorted(commands) for acls in commands[key]]


def _not_implied(operations: Iterable[Operation]) -> set[Operation]:
    """Leave out what another of the operations allows as well."""
    found = set(operations)
    return {each for each in found if not any(GRANTS[other] >> each & 1 for other in found - {each})}


def _by_prefix(wishes: Wishes) -> Wishes:
    """Put names that begin alike, up to a dot, dash or underscore, under one prefix if they need the same rights."""
    alike: dict[tuple[Place, frozenset[Operation]], list[Place]] = defaultdict(list)
    for place, operations in wishes.items():
        principal, host, kind, _, name = place
        prefix = _PREFIX.match(name)
        if prefix is not None and kind != ResourceType.CLUSTER:
            together: Place = (principal, host, kind, PatternType.PREFIXED, prefix[0])
            alike[together, frozenset(_not_implied(operations))].append(place)
    grouped: Wishes = defaultdict(Counter, wishes)
    for (under, _), places in alike.items():
        if len(places) >= ALIKE_MIN:
            for place in places:
                grouped[under] += grouped.pop(place)
    return grouped
