"""`python -m evenspan.cli`."""

import sys

from evenspan.cli import main

sys.exit(main())
