"""ListGroups (16), versions 0-5: the groups that this broker coordinates.

Honoured: states (4+) and types (5+) to choose by, in any case; an unknown one chooses nothing. Groups that are still
being loaded are waited for, up to `LOAD_WAIT_S`; then the answer is COORDINATOR_LOAD_IN_PROGRESS. A share of the groups
is listed in each turn of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from strandline.codec.message_codec import encode
from strandline.codec.messages.list_groups_request import ListGroupsRequest
from strandline.codec.messages.list_groups_response import ListGroupsResponse
from strandline.coordinators.groups.events import ListGroups
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.handlers.support.response_parts import joined_response
from strandline.runtime.time_slicing import gradually

if TYPE_CHECKING:
    from strandline.coordinators.groups.group_shard import GroupShard
    from strandline.coordinators.groups.pending_request import PendingRequest

API_KEY = 16
VERSIONS = (0, 5)

LOAD_WAIT_S: Final = 2.0
"""Seconds that groups may take to be loaded; a client that gets an error retries at once."""

GROUPS_PER_PART_MAX: Final = 500
"""Groups that are listed in one step of their shard; each costs it some microseconds."""

Part = list[bytes] | ErrorCode


def handle(context: RequestContext, request: ListGroupsRequest) -> None:
    Listing(context, request).begin()


class Listing:
    def __init__(self, context: RequestContext, request: ListGroupsRequest) -> None:
        self._context = context
        self._states = frozenset(state.strip().lower() for state in request.states_filter)
        self._types = frozenset(kind.lower() for kind in request.types_filter)
        self._gathering = Gathering(self._on_all)
        self._deadline = context.node.runtime.call_later(LOAD_WAIT_S, self._give_up)
        self._is_answered = False

    def begin(self) -> None:
        gradually(self._context.node.runtime, self._look_at_all(), self._gathering.end)

    def _look_at_all(self) -> Iterator[None]:
        groups = self._context.node.groups
        for index in groups.led_indexes():
            self._look_at(index)
            yield

    def _look_at(self, index: int) -> None:
        # A part of its own, which holds the answer back until all of the shard's groups have been asked for.
        asked = self._gathering.token(refusal=lambda code: code)

        def on_loaded(shard: GroupShard | None) -> None:
            # Another broker lists the groups that have moved there.
            group_ids = [] if shard is None else list(shard.groups)
            gradually(self._context.node.runtime, self._ask(index, group_ids), lambda _: asked.answer([]))

        self._context.node.groups.when_loaded(index, on_loaded)

    def _ask(self, index: int, group_ids: list[str]) -> Iterator[None]:
        for at in range(0, len(group_ids), GROUPS_PER_PART_MAX):
            token: PendingRequest = self._gathering.token(refusal=refused_part, shape=self._encoded)
            part = tuple(group_ids[at : at + GROUPS_PER_PART_MAX])
            self._context.node.groups.submit_to(index, ListGroups(token, part, self._states, self._types))
            yield

    def _encoded(self, response: ListGroupsResponse) -> list[bytes]:
        return [encode(group, self._context.api_version) for group in response.groups]

    def _on_all(self, parts: list[Part]) -> None:
        codes = [part for part in parts if isinstance(part, ErrorCode)]
        if codes:
            self._answer(ListGroupsResponse(error_code=codes[0]))
        else:
            version = self._context.api_version
            groups = (group for part in parts if not isinstance(part, ErrorCode) for group in part)
            self._answer(joined_response(ListGroupsResponse(), version, groups))

    def _give_up(self) -> None:
        self._answer(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))

    def _answer(self, response: object) -> None:
        if not self._is_answered:
            self._is_answered = True
            self._deadline.cancel()
            self._context.reply(response)


def refused_part(code: ErrorCode) -> Part:
    return [] if code is ErrorCode.NOT_COORDINATOR else code
