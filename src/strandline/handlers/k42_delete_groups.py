"""DeleteGroups (42), versions 0-2: groups without members are deleted with all their offsets.

A group that is named twice is answered once. Many groups are deleted over several turns of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from strandline.coordinators.groups.events import DeleteGroup
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.runtime.time_slicing import gradually

API_KEY = 42
VERSIONS = (0, 2)


def handle(context: RequestContext, request: DeleteGroupsRequest) -> None:
    gathering = Gathering(lambda results: context.reply(DeleteGroupsResponse(results=results)))

    def ask_all() -> Iterator[None]:
        for group_id in dict.fromkeys(request.groups_names):
            token = gathering.token(refusal=partial(refusal, group_id))
            context.node.groups.submit(group_id, DeleteGroup(token, group_id))
            yield

    gradually(context.node.runtime, ask_all(), gathering.end)


def refusal(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=code)
