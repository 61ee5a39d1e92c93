"""What the settings of runs say beside each other: which differ in the seed alone, and what tells runs of one name apart."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlhf_studio.analysis.compare.runs import all_known, but_for_the_seed, in_words, plain_settings, told_apart, what_changed
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.records import RunStatus
from rlhf_studio.runs.workspace import Workspace

MOST_AT_ONCE = 20
"""Runs whose settings are read for one look at the table: that takes longer than all else in it. The next look reads on."""
Json = dict[str, Any]


@dataclass(frozen=True)
class _Settings:
    """The settings of a run; ``alike`` is equal for runs that differ in the seed alone, and empty where not all are known."""

    plain: Mapping[str, Any]
    alike: str
    seed: int | None


class Alike:
    """Reads the settings of each run once, and once more when it has ended or began again."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, tuple[tuple[int, str], _Settings | None]] = {}
        self._apart: dict[tuple[str, ...], list[list[tuple[str, Any]]]] = {}

    def of(self, runs: Sequence[RunStatus]) -> dict[str, Json]:
        """For each of these runs that is known already: ``alike`` and ``seed``, and as ``apart`` the settings with its values that tell it
        from others of its name and stage; ``same`` says that nothing does."""
        settings = self._read(runs)
        named: dict[tuple[str, str], list[str]] = {}
        for run in runs:
            if run.run_id in settings:
                named.setdefault((run.name, run.stage), []).append(run.run_id)
        facts: dict[str, Json] = {
            name: {"alike": own.alike, "seed": own.seed, "apart": [], "same": False} for name, own in settings.items()
        }
        before, self._apart = self._apart, {}
        for ids in (ids for ids in named.values() if len(ids) > 1):
            key = tuple(f"{run} {self._known[run][0]}" for run in ids)
            self._apart[key] = before.get(key) or told_apart([settings[run_id].plain for run_id in ids])
            for run_id, apart in zip(ids, self._apart[key], strict=True):
                facts[run_id] |= {"apart": apart, "same": not apart and bool(settings[run_id].alike)}
        return facts

    def names(self, runs: Sequence[RunStatus]) -> dict[str, str]:
        """For a menu: what tells runs from others of their name, in words. Empty for those that nothing does, or not yet."""
        often = Counter((run.name, run.stage) for run in runs)
        facts = self.of([run for run in runs if run.name and often[run.name, run.stage] > 1])
        return {run: in_words(own["apart"]) for run, own in facts.items()}

    def _read(self, runs: Sequence[RunStatus]) -> dict[str, _Settings]:
        left, now = MOST_AT_ONCE, {}
        for run in runs:
            version, known = (run.epoch, run.state), self._known.get(run.run_id)
            if (known is None or known[0] != version) and left:
                left -= 1
                known = version, self._settings(run)
            if known is not None:
                now[run.run_id] = known
        self._known = now
        return {run: settings for run, (_version, settings) in now.items() if settings is not None}

    def _settings(self, run: RunStatus) -> _Settings | None:
        try:
            reader = self._workspace.reader(run.run_id)
            plain, changed = plain_settings(reader), what_changed(reader)
        except StoreError:
            return None  # the row's own state and cause say what is wrong
        whole = f"{run.stage} {but_for_the_seed(plain, changed)}" if all_known(plain) else ""
        return _Settings(plain, hashlib.sha256(whole.encode()).hexdigest()[:16] if whole else "", plain["engine"].get("seed"))
