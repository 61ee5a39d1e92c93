"""The functions of Help, a place of the Learn page; ``assets/help/`` draws it. Everyone may read."""

from __future__ import annotations

from typing import Any

import gradio as gr

from rlhf_studio.language import told
from rlhf_studio.ui import sent
from rlhf_studio.ui.help.documents import ORDER, NoDocument, document
from rlhf_studio.ui.roles import Role, callable_by

Json = dict[str, Any]


@callable_by(Role.VIEWER)
def help_shelf(data: Any, request: gr.Request) -> Json:
    """All documents in order, each with its title."""
    return {"documents": [{"name": name, "title": document(name).title} for name in ORDER]}


@callable_by(Role.VIEWER)
def help_text(data: Any, request: gr.Request) -> Json:
    """A document as a tree; ``error`` where there is no such document."""
    try:
        found = document(str(sent.member(data, "document")))
    except NoDocument as error:
        return {"error": told(error)}
    return {"title": found.title, "blocks": list(found.blocks)}
