"""Work by keys: one at a time and in order for each key, without a key in any order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.queue.key_queues import KeyQueues

Work = tuple[str | None, int]


@settings(max_examples=30)
@given(st.lists(st.sampled_from(("a", "b", "c", None)), max_size=40), st.randoms(use_true_random=False))
def test_a_key_is_worked_one_at_a_time_and_in_order(keys: list[str | None], random: object) -> None:
    queues: KeyQueues[Work] = KeyQueues()
    running: list[Work] = []
    done: list[Work] = []
    waiting = [(key, number) for number, key in enumerate(keys)]
    while waiting or running or queues.count:
        step = random.randrange(3)  # type: ignore[attr-defined]
        if step == 0 and waiting:
            work = waiting.pop(0)
            queues.add(work[0], work)
        elif step == 1:
            begun = queues.begin()
            if begun is not None:
                assert begun[0] is None or begun[0] not in [key for key, _ in running]
                running.append(begun)
        elif running:
            ended = running.pop(random.randrange(len(running)))  # type: ignore[attr-defined]
            done.append(ended)
            queues.end(ended[0])
    assert len(done) == len(keys)
    for key in ("a", "b", "c"):
        numbers = [number for each, number in done if each == key]
        assert numbers == sorted(numbers)


def test_what_is_dropped_leaves_its_key_to_others() -> None:
    queues: KeyQueues[Work] = KeyQueues()
    for number, key in enumerate(("a", "a", "b", "b", None)):
        queues.add(key, (key, number))
    assert queues.begin() == ("a", 0)
    queues.drop(lambda work: work[1] in (1, 2, 4))
    assert queues.count == 1
    assert queues.begin() == ("b", 3), "its turn came when the one before it was dropped"
    assert queues.begin() is None
    queues.add("a", ("a", 5))
    assert queues.begin() is None, "the first of its key is still under way"
    queues.end("a")
    assert queues.begin() == ("a", 5)
    queues.end("a")
    queues.end("b")
    queues.add("b", ("b", 6))
    assert queues.begin() == ("b", 6)
