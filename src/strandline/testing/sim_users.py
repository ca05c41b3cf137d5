"""What users do besides reading and writing, as a seed draws it: each run has some of it, so that each stays small."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from strandline.testing.sim_options import SimOptions

DAY_MS: Final = 24 * 3_600_000
HABITS: Final = ("configure", "minimum", "recreate", "elect uncleanly", "add partitions", "resize", "cancel")


@dataclasses.dataclass(frozen=True, slots=True)
class UserOptions:
    duties: tuple[str, ...] = ()
    """What the administrator does besides its routine."""

    @property
    def recreates(self) -> bool:
        """Whether a topic is deleted and created again under clients that use it."""
        return "recreate" in self.duties


def with_users(options: SimOptions) -> SimOptions:
    """Draw apart from all else, so that the rest of what a seed means is the same with users and without."""
    rng = random.Random(f"users {options.seed}")
    duties = tuple(each for each in HABITS for _ in range(rng.choice([0, 0, 1, 2])))
    users = UserOptions(duties=duties)
    every_s = options.administer_every_s
    if duties and options.nodes > 1:
        every_s = min(every_s or 3.0, rng.choice([1.0, 3.0]))
    return dataclasses.replace(options, users=users, administer_every_s=every_s)
