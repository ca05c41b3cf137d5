"""One step of a shard: the time it happens at, the settings, and the effects gathered so far."""

from __future__ import annotations

from strandline.coordinators.events import (
    Append,
    CancelTimer,
    Effect,
    Record,
    Reply,
    Response,
    StartTimer,
    TimerKey,
    Token,
)
from strandline.coordinators.group_config import GroupConfig


class Turn:
    __slots__ = ("config", "effects", "now_ms")

    def __init__(self, now_ms: int, config: GroupConfig) -> None:
        self.now_ms = now_ms
        self.config = config
        self.effects: list[Effect] = []

    def append(self, *records: Record) -> None:
        self.effects.append(Append(records))

    def reply(self, token: Token, response: Response) -> None:
        self.effects.append(Reply(token, response))

    def start_timer(self, key: TimerKey, delay_ms: int) -> None:
        self.effects.append(StartTimer(key, delay_ms))

    def cancel_timer(self, key: TimerKey) -> None:
        self.effects.append(CancelTimer(key))
