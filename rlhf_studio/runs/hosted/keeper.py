"""A thread of the app that brings runs back from a bucket when the app starts, and copies runs there when they have ended."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Set
from pathlib import Path

from rlhf_studio.language import S_
from rlhf_studio.runs import paths, studio
from rlhf_studio.runs.errors import RunExists, StoreError
from rlhf_studio.runs.finding.folders import RunFolders
from rlhf_studio.runs.hosted.bucket import Bucket, BucketError, Copy
from rlhf_studio.runs.hosted.copying import Changed, fetch, noted, send
from rlhf_studio.runs.hosted.switch import switch
from rlhf_studio.runs.records import ENDED, RunStatus
from rlhf_studio.system import sync

logger = logging.getLogger(__name__)
VARIABLE, VISITORS_VARIABLE = "RLHF_STUDIO_BUCKET", "RLHF_STUDIO_BUCKET_VISITORS"
USUAL = Path("/data")  # where a Space's bucket is mounted, unless it was told another place
LAST_WORDS = S_("The runs on this machine's disk are whole; it is tried again every minute.")


def bucket_of(environment: Mapping[str, str], *, space: bool) -> Path | None:
    """The folder of the bucket: the one that the environment names, or, on a Space, the usual one if it is mounted. None without either."""
    given = environment.get(VARIABLE, "").strip()
    if given:
        return Path(given)
    return USUAL if space and os.path.ismount(USUAL) else None


class Keeper:
    """Keeps copies of the owner's ended runs.

    Args:
        visitors: whether runs of visitors and students are copied as well.
        interval: seconds between two looks; after a failure three times as many.

    Attributes:
        problem: what is wrong, for the owner; empty when all is well.
    """

    def __init__(self, folders: RunFolders, bucket: Bucket, *, visitors: bool = False, interval: float = 20.0) -> None:
        self._folders, self._bucket, self._visitors, self._interval = folders, bucket, visitors, interval
        self.problem = ""
        self._copies: dict[str, Copy] = {}
        self._awaited = True  # until everything is back that can be brought back
        self._tombs = folders.root / paths.DELETED
        self._turn = threading.Lock()
        self._wake, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin in a daemon thread: a bucket that does not answer keeps nobody from using the app."""
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 5.0) -> None:
        """End the thread when its present work is done, or after ``seconds``. A copy that is cut off never counts as whole."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def finish(self, seconds: float) -> bool:
        """Copy the runs that have just ended, for at most ``seconds``. Returns whether every run is copied."""
        self.stop(seconds)
        if self._thread is not None and self._thread.is_alive():
            return False
        last = threading.Thread(target=self._look_and_report, name="keeper-last", daemon=True)
        last.start()
        last.join(seconds)
        return not last.is_alive() and not self.problem

    def forget(self, run_id: str) -> None:
        """Remember that a run was deleted: the next look removes its copies from the bucket, even if another app does that look.

        An empty file remembers it until then, because the bucket may be away for a long time and this app may end. Raises OSError.
        """
        if not paths.is_run_name(run_id):
            return  # no name of a run: left by hand, and in no bucket
        self._tombs.mkdir(exist_ok=True)
        (self._tombs / run_id).touch()
        sync(self._tombs)
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._look_and_report()
            self._wake.wait(self._interval * (3 if self.problem else 1))

    def _look_and_report(self) -> None:
        before = self.problem
        try:
            problem = self.look()
        except (BucketError, StoreError) as error:
            problem = f"{error} {LAST_WORDS}"
        except Exception as error:  # a mistake in here must not end the thread: nothing would be kept any more
            logger.exception("Keeping runs in the bucket failed")
            problem = S_(f"Keeping runs in the bucket failed because of an error in the program: {error}. {LAST_WORDS}")
        self.problem = problem
        if problem and problem != before:
            logger.warning("%s", problem)
        if before and not problem:
            logger.warning("The bucket %s can be used again.", self._bucket.root)

    def look(self) -> str:
        """One round: bring runs back, remove the copies of deleted runs, copy ended runs.

        Returns one sentence for what could not be brought back, or an empty text. Raises BucketError and StoreError.
        """
        with self._turn:
            names, deleted = self._bucket.names(), self._deleted()
            broken = self._bring_back(deleted) if self._awaited else ""
            self._copies = {run: copy for run, copy in self._copies.items() if copy.folder.name in names}
            for run_id in sorted(deleted):
                if not self._is_on_disk(run_id):  # a person may have put it back
                    self._bucket.remove(run_id)
                    self._copies.pop(run_id, None)
                (self._tombs / run_id).unlink(missing_ok=True)
            known = studio.read(self._folders.root)
            for run in self._folders.runs():
                if self._is_to_be_copied(run):
                    self._send(run, known)
            self._awaited = bool(broken)
            return broken

    def _deleted(self) -> set[str]:
        """The runs that were deleted, whose copies may still be in the bucket. Raises OSError."""
        return {entry.name for entry in os.scandir(self._tombs)} if self._tombs.is_dir() else set()

    def _bring_back(self, deleted: Set[str]) -> str:
        copies, parts = self._bucket.copies()
        self._copies |= copies
        failed = [
            S_(f"Of the run {run} the bucket holds only a part of a copy, which is of no use: remove it.")
            for run in parts
            if not self._is_on_disk(run)
        ]
        for run_id in sorted(copies, reverse=True):  # ids begin with the time: the newest first
            if self._is_on_disk(run_id) or run_id in deleted:
                continue
            try:
                fetch(self._folders, copies[run_id])
                logger.warning("The run %s was brought back from the bucket.", run_id)
            except RunExists:
                continue
            except (BucketError, StoreError) as error:
                failed.append(S_(f"The run {run_id} could not be brought back from the bucket: {error}"))
        return " ".join(failed)

    def _is_on_disk(self, run_id: str) -> bool:
        return (self._folders.root / paths.RUNS / run_id).exists()

    def _is_to_be_copied(self, run: RunStatus) -> bool:
        ended = run.state in ENDED and run.last_recorded_step > 0
        return ended and not run.recording and (self._visitors or not run.starter.plays)

    def _send(self, run: RunStatus, known: studio.Studio) -> None:
        copy = self._copies.get(run.run_id)
        now = noted(run, known)
        if copy is not None and all(copy.about.get(name) == value for name, value in now.items()):
            return
        try:
            self._copies[run.run_id] = send(self._folders, self._bucket, run.run_id)
        except Changed:
            logger.info("The run %s went on while it was copied into the bucket.", run.run_id)


def keeper_of(environment: Mapping[str, str], folders: RunFolders, *, space: bool) -> Keeper | None:
    """The keeper of an app that is started in this environment. Raises ValueError for values that cannot be used."""
    visitors = switch(environment, VISITORS_VARIABLE, on=S_("runs of visitors are copied as well"), off=S_("they are not"))
    folder = bucket_of(environment, space=space)
    if folder is not None and folder.resolve().is_relative_to(folders.root.resolve()):
        raise ValueError(S_(f"{VARIABLE} must be a folder outside of the workspace, not {folder}: copies would be taken for runs"))
    return None if folder is None else Keeper(folders, Bucket(folder), visitors=bool(visitors))
