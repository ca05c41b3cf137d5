"""A process as sinks with one of their own have it: it does what its config says, and tells of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path


def main() -> None:
    work = json.loads(sys.stdin.readline())
    home = Path(work["properties"]["home"])
    (home / "work").write_text(json.dumps(work))
    (home / "pid").write_text(str(os.getpid()))
    print("a library says something", flush=True)
    for told in json.loads(work["properties"]["tells"]):
        print(json.dumps(told), flush=True)
    if "ends" not in work["properties"]:
        sys.stdin.read()
    (home / "ended").touch()


if __name__ == "__main__":
    main()
