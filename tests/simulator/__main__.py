"""`python -m tests.simulator`: clusters in a simulated world, see `tests.simulator.simulate`."""

import sys

from tests.simulator.simulate import main

if __name__ == "__main__":
    # The workers of `simulate` are spawned and import this module, too.
    sys.exit(main())
