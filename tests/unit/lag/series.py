"""Stories of one position as series of samples: who wrote and who read how much, second by second."""

from __future__ import annotations

from collections.abc import Iterable

from strandline.lag.figures import Figures, TopicRetention, figures
from strandline.lag.samples import Sample, Window
from strandline.lag.verdict import LagJudgement, judge

NO_LIMIT = TopicRetention()
DAY_MS = 86_400_000


def window_of(samples: Iterable[Sample]) -> Window:
    window = Window()
    for sample in samples:
        window.add(sample)
    return window


def story(
    *,
    seconds: int,
    written_per_s: int = 0,
    read_per_s: int = 0,
    lag: int = 0,
    age_s: float | None = None,
    every_s: int = 10,
    record_bytes: int = 100,
) -> Window:
    """Looks every `every_s`, of a log that is written and read at even rates, beginning with `lag` records unread.

    Records are as old as it takes to write what lies behind them, unless `age_s` says how old the first unread one is
    at the beginning; then it stays that one, and grows older, if the group does not read.
    """
    samples = []
    for at_s in range(0, seconds + 1, every_s):
        committed, end = 1_000 + read_per_s * at_s, 1_000 + lag + written_per_s * at_s
        committed = min(committed, end)
        unread = end - committed
        if not unread:
            age_ms = 0
        elif age_s is not None:
            age_ms = round((age_s + at_s) * 1000)
        else:
            age_ms = round(unread / written_per_s * 1000) if written_per_s else round(at_s * 1000)
        samples.append(Sample(at_s * 1000, committed, 0, end, age_ms, unread * record_bytes))
    return window_of(samples)


def judged(window: Window, *, is_read: bool | None = True, retention: TopicRetention = NO_LIMIT) -> LagJudgement:
    return judge(figures(window, retention), is_read=is_read)


def seen(window: Window, retention: TopicRetention = NO_LIMIT) -> Figures:
    return figures(window, retention)
