"""A clock for each node that can be put forward and back while the node runs, by libfaketime.

Only the time of day moves, as when an operator or NTP sets it; the monotonic clock goes on.
"""

from __future__ import annotations

from pathlib import Path

# The library for programs with threads: the plain one made time.sleep fail in one of our tries.
_NAME = "libfaketimeMT.so.1"


def faketime_library() -> Path | None:
    for directory in ("/usr/lib", "/usr/lib64", "/usr/local/lib"):
        for path in sorted(Path(directory).glob(f"**/faketime/{_NAME}")):
            return path
    return None


class NodeClock:
    def __init__(self, library: Path, setting: Path) -> None:
        self._setting = setting
        self.environ = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(setting),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # The file is looked at once a second, not at every call.
            "FAKETIME_CACHE_DURATION": "1",
        }
        self.put(0)

    def put(self, seconds: int) -> None:
        """How far the clock is from the true time."""
        self._setting.parent.mkdir(parents=True, exist_ok=True)
        draft = self._setting.with_suffix(".new")
        draft.write_text(f"{seconds:+d}s\n")
        draft.rename(self._setting)
