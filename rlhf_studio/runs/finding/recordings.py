"""The recordings that came with the program: runs like any other to look at, unpacked when somebody looks at the first of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from rlhf_studio.config.bundled import PAGE_EXAMPLES, RECORDINGS, Recording
from rlhf_studio.language import S_
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.finding.unpack import Bundle, DamagedBundle, unpack
from rlhf_studio.runs.paths import RECORDINGS as FOLDER_PREFIX
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.records import RunStatus

TITLE = S_("A recording that came with the program")


class Recordings:
    """May be shared by threads.

    Args:
        table: which there are.
        cache_folder: where they are unpacked to; None for the user's own.
        unlisted: more of them, which are found by their ids and are in no list.

    Attributes:
        table: which there are, in the order in which people are shown them.
    """

    def __init__(
        self, table: Sequence[Recording] = RECORDINGS, cache_folder: Path | None = None, unlisted: Sequence[Recording] = PAGE_EXAMPLES
    ):
        self.table = tuple(table)
        self._by_id = {recording.run_id: recording for recording in (*self.table, *unlisted)}
        self._cache_folder = cache_folder
        self._unpacked: dict[Path, Path] = {}  # archive -> folder
        self._lock = threading.Lock()

    def knows(self, run_id: str) -> bool:
        """Whether there is a recording of this id."""
        return run_id in self._by_id

    def folder(self, run_id: str) -> Path:
        """The folder of a recording. Raises StoreError (reason ``damaged``) when it cannot be unpacked, and KeyError for another id."""
        archive = self._by_id[run_id].archive
        with self._lock:
            unpacked = self._unpacked.get(archive)
            if unpacked is None or not (unpacked / run_id).is_dir():  # caches are cleared away while programs run
                unpacked = self._unpacked[archive] = self._unpack(archive)
        return unpacked / run_id

    def runs(self) -> tuple[list[RunStatus], str]:
        """(all recordings that can be read, in their order; why another one cannot, empty where all can)."""
        runs, problem = [], ""
        for recording in self.table:
            try:
                runs.append(RunReader(self.folder(recording.run_id)).status())
            except StoreError as error:
                problem = problem or str(error)
        return runs, problem

    def _unpack(self, archive: Path) -> Path:
        folders = {recording.folder: recording.run_id for recording in self._by_id.values() if recording.archive == archive}
        try:
            return unpack(Bundle(archive, TITLE, FOLDER_PREFIX, folders), self._cache_folder)
        except DamagedBundle as error:
            raise StoreError(str(error), "damaged") from error
