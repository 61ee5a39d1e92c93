"""The gallery, a place of the Learn page; ``assets/gallery/gallery.js`` draws it. Everyone may read."""

from __future__ import annotations

from typing import Any

import gradio as gr

from rlhf_studio.lessons.gallery import shelf
from rlhf_studio.ui.roles import Role, callable_by


@callable_by(Role.VIEWER)
def learn_gallery(data: Any, request: gr.Request) -> dict[str, Any]:
    """All cards."""
    return {"cards": [card.as_data() for card in shelf.cards(shelf.numbers())]}
