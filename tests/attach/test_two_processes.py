"""Two processes: the first one records its own responses, and a stop reaches both at the same step."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from rlhf_studio.runs import paths
from rlhf_studio.runs.reader import RunReader


@pytest.mark.long  # two processes that load transformers: eight seconds of computing
def test_the_first_process_records_and_a_stop_reaches_both(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.attach.two_processes", str(tmp_path)]
    root = Path(__file__).parents[2]
    processes = [
        subprocess.Popen(
            command, cwd=root, env={**shared, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        for rank in ("0", "1")
    ]
    errors = [process.communicate()[1].decode()[-3000:] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert ranks[0]["steps"] == ranks[1]["steps"] == 3  # asked for during step 2, told at its end, carried out at the end of the next
    (run,) = (tmp_path / paths.RUNS).iterdir()
    reader = RunReader(run)
    assert reader.status().state == "stopped"
    for step, ids in enumerate(ranks[0]["seen"], 1):
        recorded = [reader.rollout(step, row).tokens for row in range(len(ids))]
        assert [tokens.response_ids.tolist() for tokens in recorded if tokens is not None] == ids
    assert (tmp_path / "out" / "checkpoint-3").is_dir()
