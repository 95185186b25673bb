"""`python -m evenspan`."""

import sys

from evenspan.cli import main

sys.exit(main())
