"""``python -m rlhf_studio``: see :mod:`rlhf_studio.cli.main`."""

import sys

from rlhf_studio.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
