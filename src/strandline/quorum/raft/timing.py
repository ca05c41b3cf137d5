"""The durations of the quorum (`controller.quorum.*`), in seconds, and the waits made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

BACKOFF_BASE_S: Final = 0.1
RETRY_DOUBLINGS: Final = 4


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """`controller.quorum.*`, in seconds."""

    election_timeout_s: float = 1.0
    election_backoff_max_s: float = 1.0
    fetch_timeout_s: float = 2.0
    request_timeout_s: float = 2.0
    retry_backoff_s: float = 0.02
    fetch_max_wait_s: float = 0.5
    """How long a leader may keep a Fetch that it has nothing to answer to."""

    @property
    def check_quorum_s(self) -> float:
        """A leader without fetches from a majority for so long resigns, because another may have been elected."""
        return self.fetch_timeout_s * 1.5

    @property
    def begin_epoch_s(self) -> float:
        """A voter that has not fetched for so long gets BeginQuorumEpoch again."""
        return self.fetch_timeout_s / 2

    @property
    def fetch_timeout_min_s(self) -> float:
        """Seconds after a fetch in which a follower does not stand for election."""
        return self.fetch_timeout_s * 0.8

    def fetch_timeout(self, random: Random) -> float:
        """Return a random time below the timeout, so that not all followers stand for election at once."""
        return self.fetch_timeout_min_s + 0.2 * self.fetch_timeout_s * random.random()

    def election_timeout(self, random: Random) -> float:
        """Between one and two election timeouts, so that voters rarely stand at the same moment."""
        return self.election_timeout_s * (1 + random.random())

    def election_backoff(self, retries: int, random: Random) -> float:
        """Binary exponential: the more elections were lost in a row, the further the next ones are spread."""
        spread = BACKOFF_BASE_S * random.randrange(2 << min(10, max(0, retries - 1)))
        return min(spread, self.election_backoff_max_s)

    def succession_delay(self, position: int, count: int) -> float:
        """Return the wait of the voter at `position` of a resigning leader's list: the first does not wait."""
        if position == 0:
            return 0.0
        halvings = min(10, max(0, count - 1 - position))
        return self.election_backoff_max_s / (1 << halvings)

    def retry_delay(self, failures: int) -> float:
        return self.retry_backoff_s * (1 << min(RETRY_DOUBLINGS, max(0, failures - 1)))
