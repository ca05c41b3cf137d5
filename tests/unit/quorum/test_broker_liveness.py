"""Who is held for dead, and who is not: connections that close, and what comes of knocking."""

from __future__ import annotations

import uuid

import pytest
from tests.unit.quorum.test_controller import Cluster

from strandline.codec.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.brokers.broker_liveness import (
    AGAIN_S,
    CONFIRM_S,
    GRACE_S,
    PROBES_MAX,
    PROVE_AGAIN_S,
    SETTLE_S,
    BrokerLiveness,
    ProbeOutcome,
)
from strandline.quorum.controller.features import SUPPORTED_FEATURES

ANSWERED, REFUSED, UNKNOWN = ProbeOutcome.ANSWERED, ProbeOutcome.REFUSED, ProbeOutcome.UNKNOWN


class Wire:
    def __init__(self) -> None:
        self.closed = False


class Watching:
    def __init__(self, *brokers: int, is_proven: bool = True, suspect: int | None = None) -> None:
        self.now = 100.0
        self.liveness = BrokerLiveness(is_proven=is_proven)
        self.liveness.reset(brokers, self.now, suspect=suspect)
        self.not_counted: set[int] = set()

    def due(self, after_s: float = 0.0) -> list[int]:
        self.now += after_s
        self.asked = {each.broker_id: each for each in self.liveness.due(self.now, self._counts)}
        return list(self.asked)

    def _counts(self, broker_id: int) -> bool:
        return broker_id not in self.not_counted

    def told(self, broker_id: int, outcome: ProbeOutcome) -> bool:
        return self.liveness.on_probed(self.asked[broker_id], outcome, self.now)


def connected(**how: bool) -> tuple[Watching, Wire]:
    watching, wire = Watching(1, **how), Wire()
    watching.liveness.on_heartbeat(1, wire)
    return watching, wire


def hung_up() -> Watching:
    """A broker whose connection is seen to be closed."""
    watching, wire = connected()
    wire.closed = True
    assert watching.due() == [], "its process may still be closing what it had open"
    return watching


def test_brokers_that_send_heartbeats_are_not_probed() -> None:
    watching, _ = connected()
    for _ in range(5):
        assert watching.due(100.0) == []


def test_a_broker_that_refuses_twice_is_dead() -> None:
    watching = hung_up()
    assert watching.due(SETTLE_S) == [1]
    assert watching.due(10.0) == [], "one knock at a time"
    watching.due()
    watching.asked = {1: watching.liveness._watched[1]}
    assert not watching.told(1, REFUSED)
    assert watching.due(CONFIRM_S / 2) == []
    assert watching.due(CONFIRM_S) == [1]
    assert watching.told(1, REFUSED)


@pytest.mark.parametrize("outcome", [ANSWERED, UNKNOWN])
def test_who_answers_or_cannot_be_reached_is_left_to_its_session_and_asked_again(outcome: ProbeOutcome) -> None:
    watching = hung_up()
    watching.due(SETTLE_S)
    for _ in range(20):
        assert not watching.told(1, outcome)
        assert watching.due(AGAIN_S) == [1]
    # It dies after all.
    assert not watching.told(1, REFUSED)
    assert watching.due(CONFIRM_S) == [1]
    assert not watching.told(1, outcome), "a refusal before that was not confirmed"
    assert watching.due(AGAIN_S) == [1]
    assert not watching.told(1, REFUSED)
    assert watching.due(CONFIRM_S) == [1]
    assert watching.told(1, REFUSED)


def test_a_heartbeat_by_another_connection_ends_all_doubts() -> None:
    watching = hung_up()
    watching.due(SETTLE_S)
    watching.told(1, REFUSED)
    assert watching.due(CONFIRM_S) == [1]
    watching.liveness.on_heartbeat(1, Wire())
    assert not watching.told(1, REFUSED), "that was about the time before"
    assert watching.due(100.0) == []


def test_an_old_connection_that_closes_late_means_nothing() -> None:
    watching, old = connected()
    watching.liveness.on_heartbeat(1, Wire())
    old.closed = True
    assert watching.due(100.0) == []
    assert watching.due(100.0) == []


def test_a_new_controller_asks_its_predecessor_at_once_and_others_after_a_while() -> None:
    watching = Watching(1, 2, 3, suspect=2)
    assert watching.due() == [2]
    watching.liveness.on_heartbeat(3, Wire())
    assert not watching.told(2, REFUSED)
    assert watching.due(CONFIRM_S) == [2]
    assert watching.told(2, REFUSED)
    assert watching.due(GRACE_S) == [1, 2], "who is still not fenced is still asked after"


def test_who_is_fenced_already_is_not_asked_after() -> None:
    watching = Watching(1, 2)
    watching.not_counted.add(1)
    assert watching.due(GRACE_S) == [2]


def test_no_more_knocks_at_a_time_than_are_allowed() -> None:
    watching = Watching(*range(PROBES_MAX + 30))
    assert len(watching.due(GRACE_S)) == PROBES_MAX
    watching.told(0, ANSWERED)
    assert watching.due() == [PROBES_MAX]


def test_a_controller_that_is_no_broker_believes_refusals_only_where_it_was_answered_before() -> None:
    """Between such a controller and the brokers there may be a firewall that refuses in their name."""
    watching, wire = connected(is_proven=False)
    assert watching.due() == [1], "while it lives"
    assert not watching.told(1, REFUSED)
    assert watching.due(PROVE_AGAIN_S / 2) == []
    wire.closed = True
    watching.due()
    for _ in range(10):
        assert watching.due(AGAIN_S) == [1]
        assert not watching.told(1, REFUSED)
    again = Wire()
    watching.liveness.on_heartbeat(1, again)
    assert watching.due() == [1]
    assert not watching.told(1, ANSWERED)
    assert watching.due(100.0) == [], "once is enough"
    again.closed = True
    watching.due()
    watching.due(SETTLE_S)
    watching.told(1, REFUSED)
    watching.due(CONFIRM_S)
    assert watching.told(1, REFUSED)


# What the controller makes of it.


def taken_over(brokers: int, **settings: str) -> Cluster:
    """A controller that has just become the active one."""
    cluster = Cluster(brokers=brokers, **settings)
    cluster.controller.activate(cluster.image, 0.0)
    return cluster


def knock(cluster: Cluster, now: float, outcome: ProbeOutcome) -> list[int]:
    """Probe the brokers that are due; return the dead ones."""
    controller = cluster.controller
    return [
        each.broker_id
        for each in controller.probes_due(now)
        if controller.on_probed(each, cluster.image.brokers[each.broker_id].epoch, outcome, now=now)
    ]


def registration(broker_id: int, incarnation: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="c",
        incarnation_id=uuid.UUID(int=incarnation),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9000 + broker_id)],
        features=[
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        log_dirs=[uuid.UUID(int=1000 + broker_id)],
    )


def register(cluster: Cluster, broker_id: int, now: float) -> None:
    steps = cluster.controller.registration(
        registration(broker_id, 99), cluster_id="c", now=now, next_offset=lambda: len(cluster.log)
    )
    for records in steps:
        cluster.write(records)


def test_a_dead_broker_is_fenced_at_once_and_its_next_life_need_not_wait() -> None:
    cluster = taken_over(brokers=2)
    assert knock(cluster, GRACE_S, REFUSED) == []
    with pytest.raises(RequestError) as refused:
        register(cluster, 2, GRACE_S)
    assert refused.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert knock(cluster, GRACE_S + CONFIRM_S, REFUSED) == [1, 2]
    assert knock(cluster, GRACE_S + CONFIRM_S + AGAIN_S, REFUSED) == [], "no news"
    register(cluster, 2, 2.0)
    while records := cluster.controller.tick(2.0):
        cluster.write(records)
    assert cluster.image.brokers[1].registration.fenced
    assert cluster.controller.is_known_dead(1)
    assert not cluster.controller.is_known_dead(2), "it lives again"


def test_a_heartbeat_that_comes_before_the_fence_keeps_a_broker_in_office() -> None:
    cluster = taken_over(brokers=1)
    knock(cluster, GRACE_S, REFUSED)
    assert knock(cluster, GRACE_S + CONFIRM_S, REFUSED) == [1]
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=cluster.image.brokers[1].epoch)
    cluster.controller.heartbeat(request, now=1.3, next_offset=len(cluster.log))
    cluster.controller.tick(1.4)
    assert not cluster.controller.is_known_dead(1)
    assert not cluster.image.brokers[1].registration.fenced


def test_a_verdict_on_an_earlier_incarnation_is_ignored() -> None:
    cluster = taken_over(brokers=1)
    controller, epoch = cluster.controller, cluster.image.brokers[1].epoch
    for now in (GRACE_S, GRACE_S + CONFIRM_S):
        (watched,) = controller.probes_due(now)
        assert not controller.on_probed(watched, epoch - 1, REFUSED, now=now)
    assert not controller.is_known_dead(1)


def test_no_probes_where_the_setting_is_off() -> None:
    cluster = taken_over(brokers=2, broker_death_detection_enable="false")
    assert cluster.controller.probes_due(1000.0) == []


def test_an_inactive_controller_probes_no_broker() -> None:
    cluster = taken_over(brokers=2)
    (first, _) = cluster.controller.probes_due(GRACE_S)
    cluster.controller.deactivate()
    assert cluster.controller.probes_due(1000.0) == []
    assert not cluster.controller.on_probed(first, 1, REFUSED, now=1000.0)
