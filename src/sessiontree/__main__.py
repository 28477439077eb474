"""`python -m sessiontree`."""

import sys

from sessiontree.cli import main

sys.exit(main())
