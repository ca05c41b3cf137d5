"""Assignors that a coordinator runs for groups of the consumer protocol (KIP-848), pure.

`assign(name, spec)` gives every partition of the subscribed topics to exactly one subscriber, starting from the current
assignment. `uniform` balances and moves as few partitions as possible; `range` gives a member the same numbers of all
topics.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.coordinators.groups.assignors.range_assignor import assign_range
from strandline.coordinators.groups.assignors.spec import Assignment, GroupSpec, MemberSpec
from strandline.coordinators.groups.assignors.uniform import assign_uniform

__all__ = ["ASSIGNORS", "Assignment", "GroupSpec", "MemberSpec", "assign"]

ASSIGNORS: dict[str, Callable[[GroupSpec], dict[str, Assignment]]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that `group.consumer.assignors` and members know them by."""


def assign(name: str, spec: GroupSpec) -> dict[str, Assignment]:
    """Return for each member, in the order of `spec.members`, its partitions by topic id; sorted lists, none empty."""
    return ASSIGNORS[name](spec)
