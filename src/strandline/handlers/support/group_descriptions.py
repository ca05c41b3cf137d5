"""Groups described one by one, each by its shard, over several turns of the loop; one answer holds them all.

A group that is named twice is described once, so that an answer is never larger than all groups together. Authorized
operations are all of them; with access rules `handlers/access` replaces them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from strandline.codec.message_codec import encode
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.handlers.support.response_parts import joined_response
from strandline.runtime.time_slicing import gradually

# Bits by operation number: read, delete, describe, describe and alter configs.
GROUP_OPERATIONS: Final = sum(1 << operation for operation in (3, 6, 8, 10, 11))


def describe_each(
    context: RequestContext,
    group_ids: Iterable[str],
    *,
    api_key: int,
    response: Any,
    described_class: Any,
    with_operations: bool,
    ask: Callable[[PendingRequest, str], object],
) -> None:
    """Answer with `response` and one `described_class` for each group, which `ask` asks the group's shard for."""
    version = context.api_version

    def answer(parts: list[bytes]) -> None:
        context.reply(joined_response(response, version, parts))

    gathering = Gathering(answer)

    def encoded(group: Any) -> bytes:
        if group.error_code:
            context.node.count_error(api_key, group.error_code)
        elif with_operations:
            group.authorized_operations = GROUP_OPERATIONS
        return encode(group, version)

    def refused(group_id: str, code: ErrorCode) -> bytes:
        return encoded(described_class(group_id=group_id, error_code=code))

    def ask_all() -> Iterator[None]:
        for group_id in dict.fromkeys(group_ids):
            ask(gathering.token(refusal=partial(refused, group_id), shape=encoded), group_id)
            yield

    gradually(context.node.runtime, ask_all(), gathering.end)
