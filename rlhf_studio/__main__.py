"""``python -m rlhf_studio``: see :mod:`rlhf_studio.cli`."""

import sys

from rlhf_studio.cli import main

if __name__ == "__main__":
    sys.exit(main())
