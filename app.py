"""Start the app: ``python app.py``, then open the address that it prints."""

import sys

from rlhf_studio.child_process.loading import libraries_stay

with libraries_stay():
    from rlhf_studio.ui.app import main

if __name__ == "__main__":
    sys.exit(main())
