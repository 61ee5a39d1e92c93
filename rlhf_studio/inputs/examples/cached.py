"""Examples for the form, which asks at every change of any setting: the first rows of a source that has not changed are read once."""

from __future__ import annotations

from functools import lru_cache

from rlhf_studio.config import DemonstrationsConfig, PairsConfig
from rlhf_studio.inputs.examples.reading.demonstrations import read_demonstrations
from rlhf_studio.inputs.examples.reading.pairs import read_pairs
from rlhf_studio.inputs.examples.rows import Demonstrations, Pairs
from rlhf_studio.inputs.prompts.cached import REMOTE_ROWS, REMOTE_SECONDS, RemoteMemory, state_of
from rlhf_studio.inputs.prompts.sources.opening import is_remote
from rlhf_studio.inputs.trained import resolve

LOCAL_ROWS = 5_000
WORLD_ROWS = 1_000
"""Writing them takes half a second."""
NOT_READ = {"system_text": "", "max_tokens": 512, "overlong": "cut_prompt", "eval": "", "eval_split": "test", "eval_share": 0.05}
"""Settings that change nothing in what is read, as they are remembered."""

Examples = Demonstrations | Pairs
Settings = DemonstrationsConfig | PairsConfig


def read_first(data: Settings) -> Examples:
    """The examples of the first rows; :attr:`Examples.partial` says whether there may be more. Raises :class:`PromptsError`."""
    about = data.model_copy(update=NOT_READ)
    bundled = data.source.startswith("bundled/")
    return _remote.get(about) if not bundled and is_remote(data.source) else _local(about, state_of(resolve(data.source)))


@lru_cache(maxsize=8)
def _local(data: Settings, state: tuple[tuple[str, int, int], ...]) -> Examples:
    return _read(data, WORLD_ROWS if data.source.startswith("bundled/") else LOCAL_ROWS)


def _read(data: Settings, limit: int) -> Examples:
    if isinstance(data, DemonstrationsConfig):
        return read_demonstrations(data, limit=limit, seconds=REMOTE_SECONDS)
    return read_pairs(data, limit=limit, seconds=REMOTE_SECONDS)


_remote: RemoteMemory[Settings, Examples] = RemoteMemory(lambda data: _read(data, REMOTE_ROWS))
