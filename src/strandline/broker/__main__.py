import sys

from strandline.broker.main import main

sys.exit(main(sys.argv[1:]))
