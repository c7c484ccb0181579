"""``python -m dflash_lab``: everything the pages do, scriptable."""

import sys

from dflash_lab.cli import main

sys.exit(main())
