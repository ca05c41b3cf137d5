"""`strandline` with the fault points of this source and of source tasks, for tests that kill a worker at each."""

import sys

from strandline.cli import main
from strandline.runtime import fault_points

POINTS = (
    "cdc-slot-created",
    "cdc-snapshot-page",
    "cdc-snapshot-end",
    "cdc-stream-batch",
    "cdc-before-confirm",
    "connect-before-commit",
    "connect-after-commit",
)

if __name__ == "__main__":
    setattr(fault_points, "_POINTS", fault_points._POINTS | frozenset(POINTS))  # noqa: B010  # it is final
    sys.exit(main())
