"""What the requests about delegation tokens share: which clients may send them."""

from __future__ import annotations

from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.security.principal import ANONYMOUS

NO_TIME = -1
"""The times of a token in an answer without one."""


def refused_here(context: RequestContext) -> ErrorCode | None:
    """Return why this client may not ask about tokens: it is not authenticated, or by a token."""
    if context.session.principal == ANONYMOUS or context.session.is_token:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return None
