"""DeleteShareGroupOffsets (92), version 0: a share group without members forgets where it is in some topics.

When it reads them again, it begins where `share.auto.offset.reset` says. UNSUPPORTED_VERSION where heartbeats are too.
"""

from __future__ import annotations

from strandline.codec.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from strandline.codec.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from strandline.coordinators.groups.events import DeleteShareOffsets
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.quorum.image.cluster_image import SHARE_VERSION

API_KEY = 92
VERSIONS = (0, 0)


def handle(context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> DeleteShareGroupOffsetsResponse | None:
    if not context.node.image.features.get(SHARE_VERSION, 0):
        return refusal(ErrorCode.UNSUPPORTED_VERSION)
    pending = PendingRequest(context.reply, refusal=refusal)
    context.node.groups.submit(request.group_id, DeleteShareOffsets(pending, request))
    response: DeleteShareGroupOffsetsResponse | None = pending.collect()
    return response


def refusal(code: ErrorCode) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code)
