from typing import Any

import pytest

from rlhf_studio.runs.messages import text_of

PICTURE = [{"type": "text", "text": "Look"}, {"type": "image"}]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ({"role": "user", "content": "Hi"}, "Hi"),
        ([{"role": "user", "content": "Hi"}], "Hi"),
        ([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}], "user: Hi\nassistant: "),
        ([{"role": "user", "content": PICTURE}], "Look[image]"),
        ([{"role": "user", "content": ["Look", {"no": "type"}]}], "Look[part]"),
        ([1, 2], [1, 2]),
        (None, None),
    ],
)
def test_messages_are_one_text(value: Any, text: Any) -> None:
    assert text_of(value) == text
