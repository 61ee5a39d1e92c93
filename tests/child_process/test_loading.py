"""What is loaded at a start is out of the way of Python's search for garbage."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from rlhf_studio.child_process.loading import libraries_stay
with libraries_stay():
    assert not gc.isenabled()
    import xml.dom.minidom
frozen = gc.get_freeze_count()
assert gc.isenabled() and frozen > 1000
kept = [[] for _ in range(1000)]
with libraries_stay():
    import xml.dom.minidom
assert gc.isenabled() and gc.get_freeze_count() == frozen
try:
    with libraries_stay():
        import there_is_no_such_module
except ModuleNotFoundError:
    assert gc.isenabled()
"""


def test_what_is_loaded_stays_out_of_the_collectors_way_and_nothing_else_does() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
