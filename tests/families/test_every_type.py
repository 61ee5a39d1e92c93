"""Every type of causal language model that transformers knows: two PPO steps come out right, or one sentence says why not."""

from __future__ import annotations

import json

import pytest
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tests.families.measure import MODES, RESULTS, guarded
from tests.families.table import DOCS, insert

NOT_BUILT = {
    "gemma3n": "needs the timm package",
    "gemma4_assistant": "drafts for another model, whose keys and values it reads",
    "gemma4_unified_assistant": "drafts for another model, whose keys and values it reads",
}
ALLOWED = {"right", "refused"}


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("model_type", list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
def test_right_or_refused(model_type: str, mode: str) -> None:
    found = guarded(model_type, mode)
    assert found["outcome"] in ({"not built"} if model_type in NOT_BUILT else ALLOWED), found


def test_the_last_measurement_is_of_this_transformers_and_was_silent_nowhere() -> None:
    """What docs/models.md says was measured with the transformers that is installed here, and says it as measured."""
    known = json.loads(RESULTS.read_text(encoding="utf-8"))
    outcomes = {model_type: {result["outcome"] for result in found.values()} for model_type, found in known["types"].items()}
    assert {model_type for model_type, found in outcomes.items() if "not built" in found} <= set(NOT_BUILT)
    assert set().union(*outcomes.values()) <= {*ALLOWED, "not built"}
    text = DOCS.read_text(encoding="utf-8")
    assert insert(text, known) == text, "python -m tests.families.table writes it anew"
    if known["transformers"] == transformers.__version__:
        assert outcomes.keys() == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
