"""MetricsHistory (20014), version 0: what the node measured in the last day. It is our own.

The console draws its charts from it. Each node tells of itself; one that measures nothing (`metrics.enable=false`)
answers without rings. Values are 32-bit floats in network order, one for each step, NaN where there is none.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.messages.metrics_history_request import MetricsHistoryRequest
from strandline.codec.messages.metrics_history_response import HistoryRing, HistorySeries, MetricsHistoryResponse
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext

API_KEY = 20_014
VERSIONS = (0, 0)

PREFIXES_MAX: Final = 100
"""Beginnings of names that one request may ask for."""


def handle(context: RequestContext, request: MetricsHistoryRequest) -> MetricsHistoryResponse:
    node = context.node
    prefixes = request.prefixes
    if request.ago_ms < 0 or (prefixes is not None and len(prefixes) > PREFIXES_MAX):
        return MetricsHistoryResponse(error_code=ErrorCode.INVALID_REQUEST, node_id=node.node_id)
    response = MetricsHistoryResponse(node_id=node.node_id, now_ms=node.runtime.now_ms())
    if node.config.metrics_enable:
        history = node.metrics_history
        for ring in history.node, history.items:
            first_ms, values = history.read(ring, request.ago_ms, prefixes)
            series = [HistorySeries(name=name, values=points) for name, points in values.items()]
            response.rings.append(HistoryRing(step_ms=ring.step_ms, first_ms=first_ms, series=series))
    return response
