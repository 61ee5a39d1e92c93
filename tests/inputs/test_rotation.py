"""Where rotary frequencies change with the length, and whether the texts of a run lie on one side of that."""

from __future__ import annotations

from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.inputs.checks.policy import rotation_problems
from rlhf_studio.inputs.models.facts import ModelFacts, _max_positions
from rlhf_studio.inputs.models.rotation import boundary_problem, rotation_boundary
from rlhf_studio.inputs.prompts.lengths import PromptTokens

PHI3 = {"model_type": "phi3", "max_position_embeddings": 131072, "original_max_position_embeddings": 4096}


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({**PHI3, "rope_scaling": {"type": "longrope", "short_factor": [1.0]}}, 4096),
        ({**PHI3, "rope_scaling": {"type": "su"}}, 4096),
        ({"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 8192}, "max_position_embeddings": 65536}, 8192),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}, "max_position_embeddings": 2048}, 2048),
        ({"rope_parameters": {"full": {"rope_type": "longrope", "original_max_position_embeddings": 512}, "sliding": {}}}, 512),
        ({"rope_scaling": {"rope_type": "dynamic", "alpha": 1000.0}, "max_position_embeddings": 2048}, None),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "max_position_embeddings": 2048}, None),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "max_position_embeddings": 2048}, None),
        ({"rope_scaling": None}, None),
        ({"rope_scaling": "longrope"}, None),
    ],
)  # fmt: skip
def test_boundary(config: dict[str, Any], tokens: int | None) -> None:
    assert rotation_boundary(config) == tokens


def test_which_lengths_lie_on_one_side() -> None:
    assert boundary_problem("m", None, (1, 9000), 500) is None
    assert boundary_problem("m", 4096, (3, 4000), 96) is None
    assert boundary_problem("m", 4096, (4097, 9000), 96) is None
    problem = boundary_problem("m", 4096, (3, 4001), 96)
    assert problem is not None and "prompts of 3 to 4,001 tokens" in problem and "keep data.max_prompt_tokens at 4,000 or less" in problem
    assert "keep generation.response_length below 64" in str(boundary_problem("m", 64, (3, 3), 64))
    assert boundary_problem("m", 4096, (4096, 4097), 96) is not None


def test_it_is_found_at_the_door() -> None:
    facts = ModelFacts(path=None, architecture="Phi3ForCausalLM", rotation_boundary=64)
    config = RunConfig.model_validate({"generation": {"response_length": 20}})
    assert not list(rotation_problems(config, facts, PromptTokens(10, (44, 44), 4)))
    assert not list(rotation_problems(config, facts, None))
    [problem] = rotation_problems(config, facts, PromptTokens(10, (45, 512), 4))
    assert problem.field == "data.max_prompt_tokens" and "more than 64 tokens" in problem.message


def test_positions_that_begin_behind_the_padding_id() -> None:
    """514 positions of RoBERTa hold 512 tokens; other models lose none."""
    assert _max_positions({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}) == 512
    assert _max_positions({"model_type": "xlm-roberta", "max_position_embeddings": 514}) == 512
    assert _max_positions({"model_type": "gpt2", "n_positions": 1024, "pad_token_id": 1}) == 1024
