"""A node is ready before it has imported the code of groups, and imports that in small pieces afterwards."""

from __future__ import annotations

import json
import subprocess
import sys

AT_ONCE_MAX = 5
"""Modules of one step, which keep the loop together."""
_PROGRAM = """
import json, sys, strandline.broker.node
from strandline.broker.network.routes import routes
from strandline.broker.preloading import import_rest

known = set(sys.modules)
steps = [("start", sorted(known))]
for step in import_rest(routes().values()):
    steps.append((step, sorted(name for name in set(sys.modules) - known if name.startswith("strandline."))))
    known = set(sys.modules)
print(json.dumps(steps))
"""


def test_what_is_imported_when() -> None:
    (_, at_start), *steps = json.loads(subprocess.check_output([sys.executable, "-c", _PROGRAM], text=True))
    assert "strandline.broker.node" in at_start
    assert "strandline.coordinators.groups.events" not in at_start, "it brings the messages of all groups"
    assert [(step, names) for step, names in steps if len(names) > AT_ONCE_MAX] == []
