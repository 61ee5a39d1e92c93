"""The analyses of a run, each as plain data and as the JSON that the pages get."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from rlhf_studio.analysis.logs.shareable import without_secrets
from rlhf_studio.language import N_, _, told
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.reader import RunReader
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.live import payloads, responses

logger = logging.getLogger(__name__)

KINDS = ("diagnosis", "learned")  # of every watched run
ON_DEMAND = ("scales", "moved", "measures")  # made when somebody asks, of the run as it is then
MOST_KEPT = 8  # runs that go on
BROKEN = N_("This analysis could not be made. The app's own log says why.")

Json = dict[str, Any]
Analysis = Callable[[], Any]
Begin = Callable[[Any], Analysis]
"""From an open reader to what makes the analysis, now and again when the run has got further."""


def analyses() -> dict[str, Begin]:
    """How each kind of analysis begins. Only this function names them; tests replace it.

    They are imported when the first run is looked at, so that the app starts sooner.
    """
    from rlhf_studio.analysis.doctor import Doctor
    from rlhf_studio.analysis.learned import Learning

    def only_ppo(begin: Begin, otherwise: Begin) -> Begin:
        return lambda reader: begin(reader) if reader.config().stage == "ppo" else otherwise(reader)

    return {
        "diagnosis": lambda reader: Doctor(reader).diagnose,
        "learned": only_ppo(lambda reader: Learning(reader).upto, lambda reader: dict),
        "measures": lambda reader: partial(responses.measures, reader),
        "scales": lambda reader: partial(responses.run_scales, reader),
        "moved": lambda reader: partial(responses.clearest_move, reader),
    }


class Analyses:
    """Makes analyses. Use it from one thread at a time.

    For a run that goes on, it keeps what an analysis has read, so that the next time only new steps are read; it does so for the
    :data:`MOST_KEPT` runs that were analysed last. For a run that has ended it keeps nothing, because nothing new comes.
    """

    def __init__(
        self,
        workspace: Workspace,
        open_reader: Callable[[Any], Any] = RunReader,
        find: Callable[[], dict[str, Begin]] = analyses,
    ) -> None:
        self._workspace, self._open_reader, self._find = workspace, open_reader, find
        self._of_runs: OrderedDict[str, dict[str, Analysis]] = OrderedDict()

    def make(self, run: str, kind: str, ended: bool) -> tuple[Json | None, bytes]:
        """One analysis: its record as plain data and as JSON.

        A failure gives None and a ``problem`` for the page; its cause goes to the app's log.
        """
        complete = False
        try:
            analysis = self._analysis(run, kind)()
            record = _plain(analysis if isinstance(analysis, dict) else asdict(analysis))
            body = payloads.encode_text(record)
            complete = True
            return record, body
        except StoreError as error:
            return None, payloads.encode_text({"problem": told(error)})
        except Exception:
            logger.exception("the analysis %s of run %s failed", kind, run)
            return None, payloads.encode_text({"problem": _(BROKEN)})
        finally:
            if ended or not complete:  # a failed analysis may have read only a part
                self._of_runs.get(run, {}).pop(kind, None)

    def _analysis(self, run: str, kind: str) -> Analysis:
        of_run = self._of_runs.setdefault(run, {})
        self._of_runs.move_to_end(run)
        while len(self._of_runs) > MOST_KEPT:
            self._of_runs.popitem(last=False)
        if kind not in of_run:
            of_run[kind] = self._find()[kind](self._open_reader(self._workspace.run_dir(run)))
        return of_run[kind]


FOOLED = {"lesson": "what_goes_wrong", "scene": "two_curves"}
PRICE = {"lesson": "what_goes_wrong", "scene": "price"}
EXPLAINED_BY_VERDICT: dict[str, Json] = {
    "exploiting the reward": FOOLED,
    "collapsed": PRICE,
    "nothing learned": {"lesson": "before_the_loop", "scene": "doubled"},
}
EXPLAINED_BY_CHECK: dict[str, Json] = {
    **dict.fromkeys(("judge-falls", "held-out-falls", "one-phrase", "length-reward", "repetition", "diversity-loss"), FOOLED),
    "kl-exploding": PRICE,
}


def explained(diagnosis: Json) -> Json | None:
    """The lesson, and its scene, about what a run came to: of its verdict, else of the gravest finding that still holds and is no mere
    note; a phrase that took over is told at the end of every run, so it counts as a note, too. None where no lesson is about it: then a
    response of the run itself shows most."""
    kind = diagnosis["verdict"]["kind"]
    if kind in EXPLAINED_BY_VERDICT:
        return EXPLAINED_BY_VERDICT[kind]
    lasting = [finding for finding in diagnosis["findings"] if finding["until"] is None and finding["check"] in EXPLAINED_BY_CHECK]
    told = (finding["check"] for finding in lasting if finding["level"] != "note" or finding["check"] == "one-phrase")
    return next((EXPLAINED_BY_CHECK[check] for check in told), None)


def headline(diagnosis: Json) -> Json:
    """The part of a diagnosis that comes with each poll: the verdict's kind, sentences and first note, how many findings each level
    has, the arrows of the tiles, the lesson that is about it, whether the first note doubts the judge, and the settings to change."""
    verdict = diagnosis["verdict"]
    doubted = verdict["kind"] in ("improving", "improved") and any(
        finding["check"] == "one-phrase" and finding["until"] is None for finding in diagnosis["findings"]
    )
    levels = [finding["level"] for finding in diagnosis["findings"]]
    return {
        "kind": verdict["kind"],
        "sentence": verdict["sentence"],
        "in_counts": verdict["in_counts"],
        "note": verdict["reason"] if verdict["kind"] in ("too early", "not known") else next(iter(verdict["notes"]), ""),
        "step": diagnosis["step"],
        "alarms": levels.count("alarm"),
        "warnings": levels.count("warning"),
        "notes": levels.count("note"),
        "directions": diagnosis["directions"],
        "lesson": explained(diagnosis),
        "doubted": doubted,
        "changes": verdict["changes"],
    }


def _plain(value: Any) -> Any:
    """Numbers that are not finite become None, numpy's numbers become Python's, texts lose secrets; the rest stays."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str | int | None):
        return without_secrets(value) if isinstance(value, str) else value
    return payloads.finite(value)
