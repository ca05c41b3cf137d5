"""`python -m strandline` is the `strandline` command."""

import sys

from strandline.cli import main

sys.exit(main())
