"""The quota on changes of topics and partitions (KIP-599), charged by the active controller.

A change costs as many tokens as it creates or deletes partitions. A client that owes tokens is refused what it asks for
next with THROTTLING_QUOTA_EXCEEDED; one that does not know this code is only delayed. The broker that the client asked
reads the throttle time in the response, and mutes the connection.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import RequestError
from strandline.handlers.support.context import MutationQuota, RequestContext


class FreeMutations:
    """No quota: changes cost nothing."""

    def pay(self, partitions: int) -> None:
        """Do nothing."""

    def throttle_ms(self) -> int:
        return 0


FREE: Final = FreeMutations()


def mutation_quota(context: RequestContext, *, strict_from: int = 0) -> MutationQuota:
    """Return the quota of the client that asks; strict from this version of the API on."""
    if not context.pays_quotas:
        return FREE
    is_strict = context.api_version >= strict_from
    return context.node.mutation_quota(context.session.principal.name, context.client_id or "", is_strict=is_strict)


def paid_for(context: RequestContext, names: list[str]) -> list[str]:
    """Return the topics that the client may have created on first use; it retries the others."""
    quota, paid = mutation_quota(context), []
    for name in names:
        try:
            quota.pay(context.node.config.num_partitions)
        except RequestError:
            break
        paid.append(name)
    return paid
