"""Buckets of quotas, against naive models that follow the rules step by step."""

from __future__ import annotations

import random

import pytest

from strandline.security.quotas.bucket_table import BucketTable, name_of
from strandline.security.quotas.limits import EntityPart, Match
from strandline.security.quotas.rate_bucket import RateBucket
from strandline.security.quotas.token_bucket import TokenBucket

NEVER = 2**31 - 1


class NaiveRate:
    """The same rate, from a plain list of samples that is summed for each question."""

    def __init__(self, limit: float, windows: int, window_ms: int) -> None:
        self.limit, self.windows, self.window_ms = limit, windows, window_ms
        self.samples: list[dict[str, float]] = []

    def charge(self, value: float, now_ms: float) -> int:
        self.forget(now_ms)
        if not self.samples or now_ms - self.samples[-1]["start"] >= self.window_ms:
            self.samples.append({"start": now_ms, "last": now_ms, "value": 0.0})
        self.samples[-1]["value"] += value
        self.samples[-1]["last"] = now_ms
        time_ms = self.time_ms(now_ms)
        rate = sum(each["value"] for each in self.samples) / time_ms * 1000
        if rate <= self.limit:
            return 0
        return max(0, int((rate - self.limit) / self.limit * time_ms + 0.5))

    def time_ms(self, now_ms: float) -> float:
        elapsed = now_ms - self.samples[0]["start"]
        whole = elapsed // self.window_ms
        if whole < self.windows - 1:
            elapsed += (self.windows - 1 - whole) * self.window_ms
        return max(1.0, elapsed)

    def forget(self, now_ms: float) -> None:
        span_ms = self.windows * self.window_ms
        if self.samples and now_ms - self.samples[-1]["last"] >= span_ms:
            self.samples.append({"start": now_ms, "last": now_ms, "value": 0.0})
        while self.samples and now_ms - self.samples[0]["last"] >= span_ms:
            old = self.samples.pop(0)
            share = self.limit * (self.samples[0]["start"] - old["start"]) / 1000
            excess = old["value"] - share
            if excess > 0:
                self.samples[0]["value"] += min(excess, self.limit * span_ms / 1000)


@pytest.mark.parametrize("seed", range(20))
def test_rate_equals_the_naive_one(seed: int) -> None:
    rng = random.Random(seed)
    windows, window_ms = rng.choice([(11, 1000), (2, 1000), (1, 1000), (3, 250)])
    limit = rng.choice([1.0, 1000.0, 10_000_000.0])
    bucket, naive = (
        RateBucket(limit, windows=windows, window_ms=window_ms, throttle_ms_max=NEVER),
        NaiveRate(limit, windows, window_ms),
    )
    now_ms = float(rng.randrange(10**6))
    for _ in range(2000):
        now_ms += rng.choice([0, 1, 3, rng.randrange(50), rng.randrange(3000), rng.randrange(30_000)])
        value = limit * rng.choice([0.0, 0.001, rng.random(), 5 * rng.random()])
        expected = naive.charge(value, now_ms)
        assert bucket.charge(value, now_ms) == pytest.approx(expected, abs=1)
        if rng.random() < 0.1:
            limit = bucket.limit * rng.choice([0.5, 2.0])
            bucket.set_limit(limit)
            naive.limit = limit


def test_throttle_time_is_kafkas() -> None:
    bucket = RateBucket(500.0, windows=11, window_ms=1000, throttle_ms_max=NEVER)
    for second in range(10):
        assert bucket.charge(400.0, second * 1000.0) == 0
    # 6300 bytes in 10.5 seconds are 600 a second: (600 - 500) / 500 x 10.5 s.
    assert bucket.charge(2300.0, 10_500.0) == 2100


def test_idle_client_may_take_ten_windows_at_once() -> None:
    bucket = RateBucket(100.0, windows=11, window_ms=1000, throttle_ms_max=NEVER)
    assert bucket.burst == 1000.0
    assert bucket.charge(1000.0, 5000.0) == 0
    assert bucket.charge(1.0, 5000.0) == 10


def test_what_is_taken_back_was_never_charged() -> None:
    bucket = RateBucket(100.0, windows=11, window_ms=1000, throttle_ms_max=NEVER)
    assert bucket.charge(5000.0, 5000.0) == 40_000
    bucket.take_back(5000.0)
    assert bucket.charge(1000.0, 5001.0) == 0


def test_throttle_of_requests_is_at_most_its_bound() -> None:
    bucket = RateBucket(1.0, windows=11, window_ms=1000, throttle_ms_max=1000)
    assert bucket.charge(10_000.0, 0.0) == 1000


@pytest.mark.parametrize("request_bytes", [16_384.0, 1_000_000.0])
def test_clients_that_share_a_quota_keep_to_it(request_bytes: float) -> None:
    limit, clients = 10_000_000.0, 20
    bucket = RateBucket(limit, windows=11, window_ms=1000, throttle_ms_max=NEVER)
    free_at = [0.0] * clients
    sent = {True: 0.0, False: 0.0}
    now_ms = 0.0
    while now_ms < 45_000:
        client = min(range(clients), key=free_at.__getitem__)
        now_ms = max(now_ms, free_at[client])
        sent[now_ms >= 15_000] += request_bytes
        free_at[client] = now_ms + 1 + bucket.charge(request_bytes, now_ms)
    assert sent[True] / 30 == pytest.approx(limit, rel=0.05)


def test_debt_is_bounded_where_clients_do_not_wait() -> None:
    bucket = RateBucket(100.0, windows=11, window_ms=1000, throttle_ms_max=NEVER)
    for second in range(600):
        bucket.charge(100_000.0, second * 1000.0)
    # What the last eleven seconds used, and what all windows together allow.
    assert bucket.charge(0.0, 600_000.0) <= (11 * 100_000.0 + 1100.0) / 100.0 * 1000
    assert bucket.charge(0.0, 700_000.0) <= 11_000
    assert bucket.is_idle(800_000.0)


class NaiveTokens:
    """Tokens that are added one millisecond at a time."""

    def __init__(self, limit: float, burst: float) -> None:
        self.limit, self.burst, self.tokens = limit, burst, burst
        self.now_ms = 0

    def wait_until(self, now_ms: int) -> None:
        while self.now_ms < now_ms:
            self.now_ms += 1
            self.tokens = min(self.burst, self.tokens + self.limit / 1000)


@pytest.mark.parametrize("is_strict", [True, False])
def test_tokens_equal_the_naive_ones(is_strict: bool) -> None:
    rng = random.Random(7)
    bucket, naive = TokenBucket(5.0, windows=11, window_ms=1000, now_ms=0.0), NaiveTokens(5.0, 55.0)
    for _ in range(300):
        naive.wait_until(naive.now_ms + rng.randrange(2000))
        wanted = rng.randrange(40)
        is_refused = is_strict and naive.tokens < -1e-6
        if not is_refused:
            naive.tokens -= wanted
        owed = naive.tokens if is_refused or not is_strict else 0.0
        expected = max(0, round(-owed / 5.0 * 1000))
        assert bucket.charge(wanted, float(naive.now_ms), is_strict=is_strict) == pytest.approx(expected, abs=1)


def test_table_is_bounded_and_drops_what_is_idle() -> None:
    def make(limit: float, now_ms: float) -> RateBucket:
        return RateBucket(limit, windows=2, window_ms=1000, throttle_ms_max=NEVER)

    table = BucketTable(make, buckets_max=3)
    entity = "alice", EntityPart.DEFAULT
    for name in "abc":
        table.bucket_of(Match(1.0, entity, ("alice", name)), 0.0).charge(100.0, 0.0)
    others = table.bucket_of(Match(1.0, entity, ("alice", "d")), 1.0)
    assert table.bucket_of(Match(1.0, entity, ("alice", "e")), 2.0) is others
    assert len(table.buckets) == 4
    assert name_of((None, entity)) == ("alice", "<others>")
    # All of them are idle after a long time, and a newcomer has its own again.
    own = table.bucket_of(Match(1.0, entity, ("alice", "e")), 1_000_000.0)
    assert own is not others
    assert len(table.buckets) == 1


def test_changed_limit_keeps_what_was_used() -> None:
    table = BucketTable(lambda limit, now_ms: RateBucket(limit, windows=11, window_ms=1000, throttle_ms_max=NEVER))
    match = Match(10.0, ("alice", EntityPart.ABSENT), ("alice", None))
    table.bucket_of(match, 0.0).charge(100.0, 0.0)
    assert table.bucket_of(match._replace(limit=1.0), 0.0).charge(0.0, 0.0) == 90_000
