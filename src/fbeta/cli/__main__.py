"""``python -m fbeta.cli``: the command line without its script."""

import sys

from fbeta.cli import main

sys.exit(main())
