"""What a contestant's process is told: one JSON file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.models import Inputs
from benchmarks.speed.workloads import Workload


@dataclass(frozen=True)
class Job:
    """Attributes:
    settings: PPO settings by our names.
    recording: whether our engine keeps what people look at; the peers keep nothing.
    probe: whether the process measures its matrix rate before and after.
    """

    workload: Workload
    inputs: Inputs
    settings: dict[str, Any]
    threads: int
    recording: bool = True
    probe: bool = True

    @property
    def device(self) -> str:
        return "cuda" if self.workload.gpu else "cpu"

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Job:
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**values, "workload": Workload.from_json(values["workload"]), "inputs": Inputs(**values["inputs"])})
