"""Drives the controller of a node while it is the active one: time, steps that go on, and what people should know.

Wiring (`broker/kraft/membership`):

    driver = ControllerDriver(runtime, controller, metadata.write)
    metadata.on_leading = lambda epoch: driver.begin(metadata.image, heard_leader=metadata.raft.heard_leader(now))
    metadata.on_not_leading = driver.end
    driver.close() at the end

After each look `on_look` is told the time: there the network is asked about brokers that are silent.

It looks at the controller at least every `LOOK_S`: a request may have begun something that goes on in steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.config.security.sasl_settings import SaslSettings
from strandline.observability.log_lines import fields
from strandline.quorum.controller.brokers.heartbeats import FENCE
from strandline.quorum.controller.controller import Controller
from strandline.quorum.controller.partition_changes import RECOVERING
from strandline.quorum.controller.submission import Write
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.runtime.runtime import Runtime, TimerHandle

log = logging.getLogger("strandline.controller")

LOOK_S: Final = 0.1


class ControllerDriver:
    def __init__(
        self, runtime: Runtime, controller: Controller, write: Write, token_check_s: float | None = None
    ) -> None:
        self._runtime = runtime
        self._controller = controller
        self._write = write
        controller.connect(runtime, write)
        self._timer: TimerHandle | None = None
        self._token_check_s = token_check_s
        self._tokens_checked_at = 0.0
        self.on_look: Callable[[float], object] = lambda now: None

    def begin(self, image: ClusterImage, *, heard_leader: tuple[int, float] | None = None) -> None:
        """This node leads the quorum, and `image` holds everything committed; who led before, and was heard when."""
        self._tokens_checked_at = self._runtime.monotonic()
        self._controller.activate(image, self._tokens_checked_at, heard_leader=heard_leader)
        self._look_in(0.0)

    def end(self) -> None:
        """Another node may lead."""
        self.close()
        self._controller.deactivate()

    def look_now(self) -> None:
        """Something has changed that `tick` should see."""
        if self._controller.is_active:
            self._look_in(0.0)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_in(self, delay_s: float) -> None:
        self.close()
        self._timer = self._runtime.call_later(delay_s, self._look)

    def _look(self) -> None:
        self._timer = None
        records: list[Any] = []
        try:
            now = self._runtime.monotonic()
            records = self._controller.tick(now) or self._expired_tokens(now)
            if records:
                self._tell(records)
                # A write that fails is followed by `revert` or `end`: the controller decides again.
                self._write(records, _on_written)
            self.on_look(now)
        finally:
            # Whatever went wrong, sessions end and brokers must be fenced.
            if self._controller.is_active and self._timer is None:
                self._look_in(0.0 if records or self._controller.is_busy else LOOK_S)

    def _expired_tokens(self, now: float) -> list[Any]:
        if self._token_check_s is None or now - self._tokens_checked_at < self._token_check_s:
            return []
        records = self._controller.remove_expired_tokens(self._runtime.now_ms())
        if not records:
            # Otherwise the next look follows, because there may be more than are removed at one time.
            self._tokens_checked_at = now
        return records

    def _tell(self, records: list[Any]) -> None:
        elections = unclean = 0
        for record in records:
            if isinstance(record, PartitionChangeRecord):
                elections += record.leader >= 0
                unclean += record.leader >= 0 and record.leader_recovery_state == RECOVERING
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCE:
                is_dead = self._controller.is_known_dead(record.broker_id)
                reason = "broker_died" if is_dead else "session_expired"
                facts = fields(broker_id=record.broker_id, broker_epoch=record.broker_epoch, reason=reason)
                words = "is dead" if is_dead else "was not heard for a session"
                log.warning("broker %d %s and is fenced", record.broker_id, words, extra=facts)
        if elections:
            log.info("elected leaders of %d partitions", elections, extra=fields(elections=elections))
        if unclean:
            log.warning("%d of these elections were unclean: acknowledged records may be lost", unclean)


def token_check_s(config: SaslSettings) -> float | None:
    """Return how often delegation tokens that are over are removed; None if there are no tokens."""
    return config.delegation_token_expiry_check_interval_ms / 1000 if config.delegation_token_secret_key else None


def _on_written(error: BaseException | None) -> None:
    if error is not None:
        log.warning("a decision of the controller was not written: %s", error)
