"""The question before a run starts again from step 0: what the Runs and the Live page ask an operator when Resume is pressed."""

from __future__ import annotations

from typing import Any

from rlhf_studio.language import _, ngettext, together, told
from rlhf_studio.runs.checkpoints import NoCheckpoint, where_to_resume
from rlhf_studio.runs.errors import StoreError
from rlhf_studio.runs.workspace import Workspace
from rlhf_studio.ui.access import Access
from rlhf_studio.ui.outlook import grouped
from rlhf_studio.ui.sent import run_id

Json = dict[str, Any]


def question(workspace: Workspace, access: Access, data: Any, request: Any) -> Json:
    """What to ask before the run that ``data`` names (``{run: id}``, from the page) is resumed.

    ``{}`` when the run simply goes on; else ``title``, ``text`` and ``confirm`` of the question, or a ``problem``.

    Reads the files of the checkpoints that it tries, which takes some seconds for each gigabyte: for operators, and for whoever started
    the run.
    """
    try:
        if not access.is_operator(request, data) and access.own_starter(request, data, workspace) is None:
            return {"problem": access.why_not(request, data)}
        where_to_resume(workspace.own_dir(run_id(data)), read_again=False)
    except NoCheckpoint as error:
        return {"title": _("Begin this run again at step 1?"), "text": cannot_go_on(error), "confirm": _("Begin again")}
    except StoreError as error:
        return {"problem": told(error)}
    return {}


def refusal(error: Exception) -> str:
    """What the page says of a resume, or another action, that the store refuses: without the command for a terminal, and its path."""
    if isinstance(error, NoCheckpoint):
        return together(cannot_go_on(error), _("Nothing was changed: press Resume to be asked."))
    return told(error)


def cannot_go_on(error: NoCheckpoint) -> str:
    """Why the run would begin again, and what would be lost."""
    lost = ngettext(
        "You would lose its {count} recorded step with its responses: each stays until it is played again and is then replaced.",
        "You would lose its {count} recorded steps with their responses: each stays until it is played again and is then replaced.",
        error.steps,
    ).format(count=grouped(error.steps))
    again = _("The run cannot go on from a checkpoint: {why}. It would begin again at step 1, with the untrained policy.")
    return together(again.format(why=error.why), lost)
