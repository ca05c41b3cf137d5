"""AlterShareGroupOffsets (91), version 0: where a share group without members begins to read.

The group is made if there is none. Otherwise than in Kafka it gets a new epoch, which fences leaders that still deliver
from the old offsets. UNSUPPORTED_VERSION where heartbeats are too.
"""

from __future__ import annotations

from strandline.codec.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from strandline.codec.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from strandline.coordinators.groups.events import AlterShareOffsets
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.quorum.image.cluster_image import SHARE_VERSION

API_KEY = 91
VERSIONS = (0, 0)


def handle(context: RequestContext, request: AlterShareGroupOffsetsRequest) -> AlterShareGroupOffsetsResponse | None:
    if not context.node.image.features.get(SHARE_VERSION, 0):
        return refusal(ErrorCode.UNSUPPORTED_VERSION)
    pending = PendingRequest(context.reply, refusal=refusal)
    context.node.groups.submit(request.group_id, AlterShareOffsets(pending, request))
    response: AlterShareGroupOffsetsResponse | None = pending.collect()
    return response


def refusal(code: ErrorCode) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code)
