"""A thread that looks at the slot, however busy the log is: it warns, and acts, before the slot fills a disk.

It also runs `heartbeat.action.query`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import psycopg

from strandline.cdc.postgres import publications, slots
from strandline.cdc.postgres.connection import ChangesLost, connect
from strandline.cdc.postgres.settings import PostgresCdcConfig
from strandline.cdc.postgres.types import SESSION_SETTINGS
from strandline.connect.failures import ConnectFailed

WARN_EVERY_S: Final = 60.0
CLOSE_S_MAX: Final = 5.0
RETRY_S: Final = 5.0
DROP_S_MAX: Final = 10.0
_log = logging.getLogger(__name__)


class SlotGuard:
    """Looks at a slot and its publication every `slot.guard.interval.ms`."""

    def __init__(self, config: PostgresCdcConfig, on_stop: Callable[[ConnectFailed], None]) -> None:
        """`on_stop` ends the stream with a failure."""
        self._config = config
        self._on_stop = on_stop
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slot-guard-{config.slot_name}", daemon=True)
        self._connection: psycopg.Connection[Any] | None = None
        self._warned_s = float("-inf")
        self.state: slots.SlotState | None = None
        """What was seen last."""

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S_MAX)

    def _run(self) -> None:
        config = self._config
        look_s = beat_s = time.monotonic()
        with contextlib.ExitStack() as stack:
            stack.callback(self._disconnect)
            while not self._closing.is_set():
                now_s = time.monotonic()
                try:
                    if now_s >= look_s:
                        look_s = now_s + config.slot_guard_interval_ms / 1000
                        self.look()
                    if config.heartbeat_action_query and config.is_heartbeat_on and now_s >= beat_s:
                        beat_s = now_s + config.heartbeat_interval_ms / 1000
                        self._connected().execute(config.heartbeat_action_query)
                except (psycopg.Error, ConnectFailed) as error:
                    if self._closing.is_set():
                        return
                    _log.warning("slot %s cannot be looked after: %s", config.slot_name, error)
                    self._disconnect()
                    beat_s = max(beat_s, now_s + RETRY_S)
                    look_s = max(look_s, now_s + RETRY_S)
                wait_s = look_s - time.monotonic()
                if config.heartbeat_action_query and config.is_heartbeat_on:
                    wait_s = min(wait_s, beat_s - time.monotonic())
                self._closing.wait(max(0.01, wait_s))

    def look(self) -> None:
        """Look at the slot and the publication once, and do what the config says."""
        config = self._config
        self.state = state = slots.look(self._connected(), config)
        if not publications.exists(self._connected(), config):
            self._on_stop(ChangesLost(publications.missing_publication(config)))
            self._closing.set()
            return
        if state is None or state.held_bytes <= 0:
            return
        stop, warn = config.slot_guard_stop_bytes, config.slot_guard_warn_bytes
        what = f'the replication slot "{config.slot_name}" holds {state.held_bytes:,} bytes of WAL'
        if stop and state.held_bytes > stop and config.slot_guard_action != "warn":
            self._act(what)
        elif (warn and state.held_bytes > warn) or (stop and state.held_bytes > stop):
            now_s = time.monotonic()
            if now_s > self._warned_s + WARN_EVERY_S:
                self._warned_s = now_s
                _log.warning(
                    "%s, more than slot.guard.%s.bytes: the log takes changes too slowly, or a transaction stays open",
                    what,
                    "warn" if warn and state.held_bytes > warn else "stop",
                )

    def _act(self, what: str) -> None:
        config = self._config
        if config.slot_guard_action == "fail":
            self._on_stop(
                ConnectFailed(
                    f"{what}, more than slot.guard.stop.bytes, so the task has stopped: make room for WAL and "
                    f"run `strandline connect restart NAME`, or drop the slot"
                )
            )
        else:
            self._on_stop(
                ConnectFailed(
                    f"{what}, more than slot.guard.stop.bytes, so it was dropped: "
                    f"set snapshot.mode=when_needed for a new snapshot"
                )
            )
            self._drop()
        self._closing.set()

    def _drop(self) -> None:
        until_s = time.monotonic() + DROP_S_MAX
        while True:
            try:
                slots.drop(self._connected(), self._config)
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > until_s:
                    _log.error("slot %s is in use, and cannot be dropped", self._config.slot_name)
                    return
                time.sleep(0.05)
            else:
                _log.error("dropped the replication slot %s", self._config.slot_name)
                return

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = connect(self._config, SESSION_SETTINGS)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
