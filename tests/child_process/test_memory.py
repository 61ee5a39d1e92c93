"""The memory limit that a process sets for itself, tried in processes of their own."""

import resource
import subprocess
import sys

HEAD = """
import resource
from rlhf_studio.child_process.memory import leave_memory, limit_memory
limit = lambda: resource.getrlimit(resource.RLIMIT_AS)[0]
"""


def run(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", HEAD + source], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_limit_is_only_ever_lowered():
    assert run("limit_memory(2**33); limit_memory(2**34); print(limit())") == str(2**33)
    assert run("limit_memory(2**33); limit_memory(2**32); print(limit())") == str(2**32)


def test_what_is_left_counts_from_what_is_mapped():
    source = "limit_memory(2**40); leave_memory(2**28); held = bytes(2**27)\ntry: bytes(2**28)\nexcept MemoryError: print('refused')"
    assert run(source) == "refused"


def test_without_a_limit_there_is_nothing_to_lower():
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY, "this test needs a shell without ulimit -v"
    assert run("leave_memory(2**28); print(limit() == resource.RLIM_INFINITY)") == "True"
