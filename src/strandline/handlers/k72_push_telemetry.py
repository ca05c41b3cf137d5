"""PushTelemetry (72), version 0 (KIP-714).

Honoured: subscription ids, push intervals, the last push of a client that goes, all codecs, `telemetry.max.bytes` for
what is sent and eight times that for what it becomes. What was pushed is shown on `/metrics`; it is answered when it
was read.
"""

from __future__ import annotations

from strandline.codec.messages.push_telemetry_request import PushTelemetryRequest
from strandline.codec.messages.push_telemetry_response import PushTelemetryResponse
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.k71_get_telemetry_subscriptions import client_of, subscribe
from strandline.handlers.support.context import RequestContext

API_KEY = 72
VERSIONS = (0, 0)


def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse | None:
    node = context.node
    subscribe(context)
    try:
        instance = node.telemetry.clients.push(
            request.client_instance_id,
            client_of(context),
            context.connection,
            node.runtime.now_ms(),
            asked_subscription_id=request.subscription_id,
            is_terminating=request.terminating,
            codec=request.compression_type,
            size_bytes=len(request.metrics),
            size_bytes_max=node.config.telemetry_max_bytes,
        )
    except RequestError as error:
        return PushTelemetryResponse(error_code=error.code)

    def on_taken(code: ErrorCode) -> None:
        instance.last_error = code
        context.reply(PushTelemetryResponse(error_code=code))

    node.telemetry.take(
        instance.id,
        context.client_id,
        request.compression_type,
        bytes(request.metrics),
        expires_ms=instance.expires_ms,
        size_bytes_max=node.config.telemetry_max_bytes,
        on_taken=on_taken,
    )
    return None
