"""The example's own modules are imported as on a Space, where they lie beside the program."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
