"""What the bench of a rebuild counts as wrong: a check that cannot fail would prove nothing."""

from __future__ import annotations

import json

from bench.clients.rebuild import EMPTY, MIXED, NEW, OLD, Fold, Looks, summed, tables


def test_the_versions_differ_in_every_way() -> None:
    old, new = tables(4_000, 400)
    both = old.keys() & new.keys()
    assert {old[key] == new[key] for key in both} == {True, False}, "rows that stay, and rows that change"
    assert old.keys() - new.keys(), "rows that go"
    assert new.keys() - old.keys(), "rows that come"
    assert summed(old) != summed(new)


def test_a_view_with_one_row_of_the_other_version_is_mixed() -> None:
    old, new = tables(4_000, 400)
    looks = Looks()
    for table in (old, {**old, min(new.keys() - old.keys()): (1, 1)}, {}, new, old):
        looks.saw(summed(table), summed(old), summed(new), is_empty=not table)
    assert looks.counts == {OLD: 1, MIXED: 2, EMPTY: 1, NEW: 1}, "the old version after the new one is wrong, too"
    assert len(looks.examples) == 3


def test_each_partition_switches_for_itself() -> None:
    looks = Looks()
    for place, what in ((0, "new"), (1, "old"), (0, "new"), (1, "new"), (1, "old")):
        looks.saw(what, "old", "new", is_empty=False, place=place)
    assert looks.counts == {OLD: 1, MIXED: 1, EMPTY: 0, NEW: 3}


def test_a_consumer_folds_what_it_reads() -> None:
    fold = Fold()
    fold.is_at_end = True
    for key, row in ((b"a", (1, 10)), (b"b", (2, 20)), (b"a", (3, 30)), (b"b", None), (b"c", None)):
        fold.take(key, None if row is None else json.dumps({"orders": row[0], "cents": row[1]}).encode())
    assert (fold.rows, fold.sums, fold.is_at_end) == ({b"a": (3, 30)}, (1, 3, 30), False)
