"""GroupLag (20002), version 0: how far groups were behind in the last minutes. No other broker knows this request.

Asked of the node that coordinates the groups, which looks at them every `group.lag.interval.ms`. So that who asks knows
rates and verdicts at once, without looking for a while. A group that the node does not coordinate, or has not looked
at yet, is left out, which is no error: who asks then looks for itself, as it does on any other cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.codec.message_codec import encode
from strandline.codec.messages.group_lag_request import GroupLagRequest
from strandline.codec.messages.group_lag_response import GroupLagResponse, PositionLook, WatchedGroup, WatchedPosition
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.response_parts import joined_response
from strandline.runtime.time_slicing import gradually

API_KEY = 20_002
VERSIONS = (0, 0)

POSITIONS_MAX: Final = 5_000
"""Positions in one answer; others are left out, and who asks looks at them for itself."""


def handle(context: RequestContext, request: GroupLagRequest) -> None:
    around = GroupLagResponse()

    def finish(parts: list[bytes | None]) -> None:
        result = [part for part in parts if part is not None]
        context.reply(joined_response(around, context.api_version, result))

    gradually(context.node.runtime, encoded(context, request.group_ids), finish)


def encoded(context: RequestContext, group_ids: list[str]) -> Iterator[bytes | None]:
    """Yield each group encoded, and None after each of its positions, where other requests may be served."""
    lag = context.node.lag
    now_ms = lag.now_ms()
    left = POSITIONS_MAX
    for group_id in dict.fromkeys(group_ids):
        result = WatchedGroup(group_id=group_id)
        windows = lag.windows_of(group_id)[:left]
        left -= len(windows)
        for (topic, partition), window in windows:
            result.positions.append(
                WatchedPosition(
                    topic=topic,
                    partition=partition,
                    waiting_ms=-1 if window.waiting_since_ms is None else now_ms - window.waiting_since_ms,
                    looks=[
                        PositionLook(
                            ago_ms=max(0, now_ms - sample.at_ms),
                            committed_offset=sample.committed,
                            log_start_offset=sample.log_start,
                            high_watermark=sample.end,
                            age_ms=sample.age_ms,
                            size_bytes=sample.size_bytes,
                            records=sample.records,
                            undecided=sample.undecided,
                        )
                        for sample in window.samples
                    ],
                )
            )
            yield None
        yield encode(result, context.api_version) if result.positions else None
