"""What users do besides reading and writing, as a seed draws it: each run has some of it, so that each stays small."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Final

from tests.simulator.world.network import TCP_TIMEOUT_S

if TYPE_CHECKING:
    from tests.simulator.options import SimOptions

DAY_MS: Final = 24 * 3_600_000
HABITS: Final = ("configure", "minimum", "recreate", "elect uncleanly", "add partitions", "resize", "cancel")
FAULTS: Final = {"replaced disk": 6, "brimming disk": 5, "absence": 2}
"""What happens besides the faults of `options`, and how often."""
DELIVERY_TIMEOUT_S_MAX: Final = 15.0
"""Of producers that may be forgotten."""
LATE_S: Final = 15.0
"""By how much a producer may miss its delivery timeout: it looks at the clock when it makes batches, in up to 9 s."""
REMEMBERED_S: Final = DELIVERY_TIMEOUT_S_MAX + LATE_S + TCP_TIMEOUT_S[1]
"""How long producers are remembered in runs that forget them. A batch whose producer was forgotten between two attempts
may be written twice. So this is as long as attempts last: they are sent until the delivery timeout is over, and arrive
when a cut network is mended, unless TCP has given up. A broker that is stopped reads what has arrived first."""
REST_S: Final = REMEMBERED_S + 15.0
"""Longer than that, and than brokers may take until they look for silent producers."""


@dataclasses.dataclass(frozen=True, slots=True)
class UserOptions:
    duties: tuple[str, ...] = ()
    """What the administrator does besides its routine."""
    flip_share: float = 0.0
    """How many batches lose a bit on the wire, from producers and from leaders."""
    burst: int = 1
    """How many batches an idempotent producer makes at once."""
    rest_s: float = 0.0
    """How long some producers are away, longer than their ids are remembered; 0 for never."""
    age_ms: int = 0
    """How old the timestamps of some producers are."""
    strangers: int = 0
    """How many producers invent their ids."""
    stalled_readers: int = 0
    """How many readers stop reading, and go on later."""

    @property
    def recreates(self) -> bool:
        """Whether a topic is deleted and created again under clients that use it."""
        return "recreate" in self.duties


def with_users(options: SimOptions) -> SimOptions:
    """Draw apart from all else, so that the rest of what a seed means is the same with users and without."""
    rng = random.Random(f"users {options.seed}")
    duties = tuple(each for each in HABITS for _ in range(rng.choice([0, 0, 1, 2])))
    is_forgetful = options.delivery_timeout_s <= DELIVERY_TIMEOUT_S_MAX and rng.random() < 0.4
    users = UserOptions(
        duties=duties,
        flip_share=rng.choice([0.0, 0.0, 0.01, 0.05]),
        burst=rng.choice([1, 1, 5]),
        rest_s=REST_S if is_forgetful else 0.0,
        age_ms=rng.choice([0, 2 * DAY_MS]),
        strangers=rng.choice([0, 0, 1]),
        stalled_readers=rng.choice([0, 0, 1]),
    )
    every_s = options.administer_every_s
    if duties and options.nodes > 1:
        every_s = min(every_s or 3.0, rng.choice([1.0, 3.0]))
    weights = {**options.nemesis.weights, **{kind: each * rng.choice([0, 1, 1, 3]) for kind, each in FAULTS.items()}}
    if options.nodes == 1:
        weights["replaced disk"] = 0
    settings = {**options.settings, "producer.id.expiration.check.interval.ms": "2000"}
    if is_forgetful:
        settings["producer.id.expiration.ms"] = str(int(REMEMBERED_S * 1000))
        weights["clock jump"] = 0
    topics = options.topics
    if users.age_ms:
        # Two producers whose clocks are days apart would have each batch begin a segment of its own.
        orders = dataclasses.replace(topics[0], configs={**topics[0].configs, "segment.ms": str(7 * DAY_MS)})
        topics = (orders, *topics[1:])
    return dataclasses.replace(
        options,
        topics=topics,
        users=users,
        administer_every_s=every_s,
        settings=settings,
        nemesis=dataclasses.replace(options.nemesis, weights=weights),
    )
