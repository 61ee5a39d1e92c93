"""What is printed when the app starts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rlhf_studio.language import _
from rlhf_studio.ui.access import TOKEN_VARIABLE, Access
from rlhf_studio.ui.classroom.link import address_for, class_link, only_here, operator_link, printed_code
from rlhf_studio.ui.hosts import is_loopback
from rlhf_studio.ui.visiting.modes import Mode


def greeting(url: str, workspace: Path, access: Access, host: str) -> list[str]:
    """Where the app is, and who is an operator now. A token that came from outside is never printed."""
    url = access.address or url
    lines = [_("RLHF Studio is at {url}  (runs are kept in {workspace})").format(url=url, workspace=workspace)]
    if access.mode is Mode.CLASSROOM:
        port = url.rstrip("/").rpartition(":")[2]
        address = address_for(f"localhost:{port}", alone=access.loopback)
        students = class_link(address, access.room.link)
        token = (
            _("...  (the value of {token_variable})").format(token_variable=TOKEN_VARIABLE) if access.token_only else access.operator_token
        )
        if only_here(address):
            lines.append(_("Only this machine can reach it: start the app without --host for your students' devices."))
        lines += [_("Students open this link, or the code below with their phones' cameras:"), f"  {students}", *printed_code(students)]
        return [*lines, _("The teacher, who may do everything, opens:"), f"  {operator_link(address, token)}"]
    if access.read_only:
        return [*lines, _("Read-only: nobody is an operator; runs can be watched, not started or changed.")]
    if access.loopback and not access.token_only:
        note = _("If several people use it, or a proxy leads to it, set {token_variable}.").format(token_variable=TOKEN_VARIABLE)
        return [*lines, _("Operators, who may start and change runs: whoever uses this machine. {note}").format(note=note)]
    who = _("Whoever uses this machine") if is_loopback(host) else _("Everyone who reaches this address")
    token = _("...  (the value of {token_variable})").format(token_variable=TOKEN_VARIABLE) if access.token_only else access.token
    if access.mode is Mode.SPACE:
        lines.append(_("Visitors may watch, and start small runs of their own. The owner, who may do everything, opens the operator link:"))
    else:
        lines.append(_("{who} may watch. Operators, who may start and change runs, open the operator link:").format(who=who))
    return [*lines, f"  {operator_link(url, token)}"]


def has_screen(environment: Mapping[str, str], system: str = sys.platform) -> bool:
    """Whether a browser that this process opens would appear before the person who started it."""
    if environment.get("SSH_CONNECTION"):
        return False
    return system in ("darwin", "win32") or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))
