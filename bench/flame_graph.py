"""Flame graphs: sampled stacks drawn as an SVG that opens in a browser, and the functions that cost most by themselves.

A line of sampled stacks is `outermost;...;innermost count`, as py-spy and perf's scripts write them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape
from typing import NamedTuple

Stack = tuple[str, ...]

_PROCESS = re.compile(r'process \d+:"(?:.* -m )?(\S+).*"')
"""The outermost frame of a process, with its whole command line; its group is the module or the program that runs."""

WIDTH = 1400
ROW = 17
TOP = 40
CHARACTER = 6.6
"""The width of a character of the labels."""
NARROWEST = 0.3
"""A frame below this width cannot be seen or clicked."""

_STYLE = "text{font:11px monospace;pointer-events:none}rect{stroke:#fff;stroke-width:.5}"
# A click on a frame gives it the whole width; a click on the outermost one shows everything again.
_SCRIPT = """
const frames = [...document.querySelectorAll("g[data-x]")];
function zoom(from, span) {
  for (const frame of frames) {
    const x = (frame.dataset.x - from) / span * WIDTH, width = frame.dataset.w / span * WIDTH;
    const left = Math.max(x, 0), right = Math.min(x + width, WIDTH);
    frame.style.display = right - left < NARROWEST ? "none" : "";
    const [rect, text] = [frame.querySelector("rect"), frame.querySelector("text")];
    rect.setAttribute("x", left);
    rect.setAttribute("width", Math.max(right - left, 0));
    text.setAttribute("x", left + 3);
    const room = Math.floor((right - left - 6) / CHARACTER);
    text.textContent = room < 3 ? "" : frame.dataset.name.slice(0, room);
  }
}
for (const frame of frames) frame.onclick = () => zoom(+frame.dataset.x, +frame.dataset.w);
zoom(0, TOTAL);
"""


class Frame(NamedTuple):
    depth: int
    name: str
    at: int
    """How many samples lie left of it."""
    samples: int


def read_stacks(text: str) -> Counter[Stack]:
    """Count the stacks. A process is named by what it runs: its directories and options are not for the graph."""
    stacks: Counter[Stack] = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(_PROCESS.sub(r"process \1", frame) for frame in frames.split(";"))] += int(count)
    return stacks


def own_samples(stacks: Mapping[Stack, int]) -> Counter[str]:
    """Return for each function how often it was the innermost: its own time, without what it called."""
    own: Counter[str] = Counter()
    for stack, count in stacks.items():
        own[stack[-1]] += count
    return own


def frames(stacks: Mapping[Stack, int]) -> Iterator[Frame]:
    """Yield the boxes of the graph: neighbouring stacks share the frames that they begin with."""
    opened: list[tuple[str, int]] = []
    at = 0
    for stack, count in [*sorted(stacks.items()), ((), 0)]:
        shared = 0
        while shared < min(len(opened), len(stack)) and opened[shared][0] == stack[shared]:
            shared += 1
        while len(opened) > shared:
            name, since = opened.pop()
            yield Frame(len(opened), name, since, at - since)
        opened += [(name, at) for name in stack[shared:]]
        at += count


def svg(stacks: Mapping[Stack, int], title: str) -> str:
    """Draw the graph: a frame lies below what it calls, as wide as its share of all samples."""
    total = sum(stacks.values())
    drawn = [Frame(0, "all", 0, total), *(frame._replace(depth=frame.depth + 1) for frame in frames(stacks))]
    drawn = [frame for frame in drawn if frame.samples * WIDTH * 20 >= total * NARROWEST]
    height = TOP + ROW * (max(frame.depth for frame in drawn) + 1) + 6
    boxes = "".join(_box(frame, total, height) for frame in drawn)
    numbers = f"const WIDTH={WIDTH},TOTAL={total},CHARACTER={CHARACTER},NARROWEST={NARROWEST};"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">'
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="3" y="20" style="font-size:14px">{escape(title)}</text>{boxes}'
        f"<script><![CDATA[{numbers}{_SCRIPT}]]></script></svg>\n"
    )


def _box(frame: Frame, total: int, height: int) -> str:
    x, width = frame.at / total * WIDTH, frame.samples / total * WIDTH
    y = height - ROW * (frame.depth + 1) - 3
    label = escape(frame.name)
    short = escape(frame.name[: int((width - 6) / CHARACTER)]) if width > 6 + 3 * CHARACTER else ""
    return (
        f'<g data-x="{frame.at}" data-w="{frame.samples}" data-name="{label}">'
        f"<title>{label}: {frame.samples} samples, {frame.samples / total:.1%}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{_colour(frame.name)}"/>'
        f'<text x="{x + 3:.1f}" y="{y + 12}">{short}</text></g>\n'
    )


def _colour(name: str) -> str:
    """Return the colour of a frame: Python's in warm tones, native ones in blue, the same function always the same."""
    shade = sum(name.encode()) % 40
    hue, saturation = (20, 85) if ".py:" in name else (195, 55)
    return f"hsl({hue + shade},{saturation}%,{64 + shade % 12}%)"
