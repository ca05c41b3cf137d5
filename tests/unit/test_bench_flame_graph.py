"""Flame graphs of the bench, from stacks as py-spy writes them."""

from xml.etree import ElementTree

from bench.flame_graph import Frame, frames, own_samples, read_stacks, svg

STACKS = """\
main (a.py:1);serve (a.py:9);send (libc.so.6) 6
main (a.py:1);serve (a.py:9) 3
main (a.py:1);parse<T> (b.so) 1
main (a.py:1);serve (a.py:9);send (libc.so.6) 2
"""


def test_equal_stacks_are_counted_together():
    assert read_stacks(STACKS)[("main (a.py:1)", "serve (a.py:9)", "send (libc.so.6)")] == 8


def test_a_process_is_named_by_what_it_runs():
    started = """\
process 7:"bin/python -m strandline.broker --data some/where -X a=b";main (a.py:1) 2
process 8:"bin/python -m strandline.broker --data else/where";main (a.py:1) 1
process 9:"sleep 5";main (a.py:1) 4
"""
    assert read_stacks(started) == {
        ("process strandline.broker", "main (a.py:1)"): 3,
        ("process sleep", "main (a.py:1)"): 4,
    }


def test_own_time_is_that_of_the_innermost_function():
    own = own_samples(read_stacks(STACKS))
    assert own == {"send (libc.so.6)": 8, "serve (a.py:9)": 3, "parse<T> (b.so)": 1}


def test_stacks_share_the_frames_that_they_begin_with():
    assert sorted(frames(read_stacks(STACKS))) == [
        Frame(0, "main (a.py:1)", 0, 12),
        Frame(1, "parse<T> (b.so)", 0, 1),
        Frame(1, "serve (a.py:9)", 1, 11),
        Frame(2, "send (libc.so.6)", 4, 8),
    ]


def test_graph_is_an_svg_with_a_box_for_each_frame():
    drawn = ElementTree.fromstring(svg(read_stacks(STACKS), "one-record & more"))
    titles = [title.text for title in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert "parse<T> (b.so): 1 samples, 8.3%" in titles
    assert "all: 12 samples, 100.0%" in titles
    assert len(titles) == 5
