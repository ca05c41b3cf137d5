"""Members that come and die all the time: in the end the group is stable, and nothing was skipped.

Each seat of the storm holds a member for a while; then it is killed, closed, or paused past its session and woken up
again, and another one takes the seat. Records are written all the time. What the members said is judged at the end.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
from tests.clients.groups.clusters import CLUSTER_PROPERTIES, coordinator_of
from tests.clients.groups.stage import SHORT_SESSION_MS, MemberProcess, Stage
from tests.clients.groups.variants import VARIANTS
from tests.crash.harness import new_seed

from strandline.testing import embedded

PARTITIONS = 12
SURVIVORS = 4
FATES = {"kill": 5, "leave": 3, "pause": 2}
PAUSE_S = SHORT_SESSION_MS / 1000 + 1.0


class Storm:
    """The driver of one storm; all faults come from the seed, in whatever order the machine lets them happen."""

    def __init__(self, stage: Stage, rng: random.Random, *, seats: int, life_s: float) -> None:
        self.stage = stage
        self.rng = rng
        self.life_s = life_s
        self.fates: Counter[str] = Counter()
        self._names = 0
        self._seats: list[tuple[float, str, MemberProcess]] = []
        for _ in range(seats):
            self._seat()

    def blow(self, seconds: float) -> None:
        """For so long, and until each fate has met somebody; a busy machine may take its time."""
        pace = threading.Event()
        end = time.monotonic() + seconds
        while time.monotonic() < end or not all(self.fates[fate] for fate in FATES):
            self._turn()
            self.stage.reap()
            self.stage.write(1)
            pace.wait(0.05)

    def calm(self) -> list[MemberProcess]:
        """All go but some, in all the ways there are; who was paused wakes up."""
        for _, fate, member in self._seats[SURVIVORS:]:
            if fate == "wake":
                member.resume()
            if self.rng.random() < 0.5:
                member.kill()
            else:
                member.ask_to_leave()
        for _, fate, member in self._seats[:SURVIVORS]:
            if fate == "wake":
                member.resume()
        return [member for _, _, member in self._seats[:SURVIVORS]]

    def _turn(self) -> None:
        now = time.monotonic()
        due = [seat for seat in self._seats if seat[0] <= now]
        self._seats = [seat for seat in self._seats if seat[0] > now]
        for _, fate, member in due:
            self.fates[fate] += 1
            if fate == "pause":
                member.pause()
                self._seats.append((now + PAUSE_S, "wake", member))
                continue
            if fate == "wake":
                # It finds out what has happened to its place, and dies some time later.
                member.resume()
                self._seats.append((now + self._span_s(), "kill", member))
                continue
            if fate == "kill":
                member.kill()
            else:
                member.ask_to_leave()
            self._seat()

    def _seat(self) -> None:
        self._names += 1
        # Each fate once, then by chance.
        unmet = list(FATES)[self._names - 1 :]
        fate = unmet[0] if unmet else self.rng.choices(list(FATES), weights=list(FATES.values()))[0]
        member = self.stage.join(f"member-{self._names}")
        self._seats.append((time.monotonic() + self._span_s(), fate, member))

    def _span_s(self) -> float:
        return self.rng.uniform(0.2, 2.0) * self.life_s


def staged(bootstrap: str, topic: str, variant_name: str, *, replication: int = 1) -> Stage:
    variant = VARIANTS[variant_name]
    return Stage(
        bootstrap,
        variant.command(),
        topic,
        protocol=variant.protocol,
        assignor=variant.assignor,
        replication=replication,
    )


def begun(stage: Stage, *, seats: int, life_s: float) -> Storm:
    stage.topic(PARTITIONS)
    stage.notice_deaths_soon()
    return Storm(stage, random.Random(new_seed()), seats=seats, life_s=life_s)


def ended(storm: Storm) -> None:
    """Some stay: they share everything, all was read, and from then on nothing moves any more."""
    stage, survivors = storm.stage, storm.calm()
    stage.until_shared(*((member, PARTITIONS // SURVIVORS) for member in survivors))
    stage.write()
    stage.judge()
    marks = [len(member.life.lines) for member in survivors]
    stage.write()
    stage.judge()
    for member, mark in zip(survivors, marks, strict=True):
        assert not member.taken_away(mark), "the group was not stable"
    print(f"{len(stage.members)} members, {dict(storm.fates)}")


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_a_short_storm_ends_stable(bootstrap: str, topic: str) -> None:
    with staged(bootstrap, topic, "librdkafka consumer") as stage:
        storm = begun(stage, seats=6, life_s=2)
        storm.blow(3)
        ended(storm)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant_name", ["librdkafka range", "librdkafka cooperative", "librdkafka consumer"])
def test_fifty_clients_that_come_and_die_end_in_a_stable_group(bootstrap: str, topic: str, variant_name: str) -> None:
    with staged(bootstrap, topic, variant_name) as stage:
        storm = begun(stage, seats=50, life_s=15)
        storm.blow(120)
        ended(storm)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant_name", ["librdkafka cooperative", "librdkafka consumer"])
def test_a_storm_in_which_coordinators_die_too_ends_stable(topic: str, variant_name: str) -> None:
    with (
        embedded(nodes=3, properties=CLUSTER_PROPERTIES) as cluster,
        staged(cluster.bootstrap, topic, variant_name, replication=3) as stage,
    ):
        storm = begun(stage, seats=8, life_s=5)
        for _ in range(3):
            storm.blow(8)
            coordinator = coordinator_of(cluster.bootstrap, stage.group)
            cluster.kill(coordinator)
            storm.blow(8)
            cluster.start(coordinator)
        ended(storm)
