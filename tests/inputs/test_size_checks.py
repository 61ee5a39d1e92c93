"""Sizes in config.json that cannot be, or that are not those of the weights, are found before anything is built."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rlhf_studio.inputs.models.facts import check_causal_lm, check_reward_model
from rlhf_studio.inputs.models.files import Hub, ModelError
from rlhf_studio.inputs.preflight import inspect_run

BILLION = 1_000_000_000
CANNOT_BE = {
    "a word": ({"n_layer": "two"}, 'says n_layer "two"; it must be a whole number from 1'),
    "true": ({"n_head": True}, "says n_head true; it must be a whole number from 1"),
    "positions": ({"n_positions": "many"}, 'says n_positions "many"; it must be a whole number from 1'),
    "a share": ({"resid_pdrop": 3}, "says resid_pdrop 3; it must be a number from 0 to 1"),
    "not a number": ({"layer_norm_epsilon": float("nan")}, "says layer_norm_epsilon NaN; it must be a number above 0"),
    "inside": ({"text_config": {"n_layer": []}, "n_embd": 4}, None),
    "no object": ({"text_config": "x"}, 'says text_config "x"; it must be a JSON object'),
    "left out": ({"n_inner": None, "resid_pdrop": 0.1, "n_layer": 1, "n_head": 2, "n_embd": 4}, None),
}


@pytest.mark.parametrize("case", CANNOT_BE)
def test_a_size_that_cannot_be(case: str, make_model: Any) -> None:
    config, message = CANNOT_BE[case]
    folder = make_model(**config)
    if message is None:
        check_causal_lm(str(folder))
        return
    with pytest.raises(ModelError) as caught:
        check_causal_lm(str(folder))
    assert str(caught.value) == f"config.json of {folder} {message}"


OTHER_WEIGHTS = {
    "a billion layers": ({"n_layer": BILLION}, "n_layer 1,000,000,000, but the layers in its weights are 2"),
    "a layer too many": ({"n_layer": 3}, "n_layer 3, but the layers in its weights are 2"),
    "a layer too few": ({"n_layer": 1}, "n_layer 1, but the layers in its weights are 2, and the rest would be left out"),
    "vocabulary": ({"vocab_size": 9}, "vocab_size 9, but transformer.wte.weight in its weights has 8 rows"),
    "width": ({"n_embd": 5}, "n_embd 5, but transformer.wte.weight in its weights has 4 columns"),
    "inner width": ({"n_inner": BILLION}, "n_inner 1,000,000,000, but no side of a matrix in its weights is longer than 12"),
}


@pytest.fixture
def two_layers(make_model: Any) -> Any:
    def make(name: str = "two", **config: Any) -> Path:
        folder = make_model(name, **config)
        tensors = {"transformer.wte.weight": np.zeros((8, 4), np.float32)}
        tensors |= {f"transformer.h.{layer}.attn.c_attn.weight": np.zeros((4, 12), np.float32) for layer in range(2)}
        save_file(tensors, str(folder / "model.safetensors"))
        return folder

    return make


@pytest.mark.parametrize("case", OTHER_WEIGHTS)
def test_a_size_that_the_weights_do_not_have(case: str, two_layers: Any) -> None:
    config, claim = OTHER_WEIGHTS[case]
    folder = two_layers(**{"n_layer": 2, "n_embd": 4, "n_inner": 12, **config})
    with pytest.raises(ModelError) as caught:
        check_causal_lm(str(folder))
    assert str(caught.value) == f"config.json of {folder} says {claim}; they do not belong together"


def test_sizes_that_fit(two_layers: Any) -> None:
    assert check_causal_lm(str(two_layers("plain", n_layer=2, n_embd=4))).parameters == 8 * 4 + 2 * 48
    extra = two_layers("extra", n_layer=1, num_nextn_predict_layers=1)  # a layer that predicts further ahead is stored behind the others
    assert check_causal_lm(str(extra)).parameters


@pytest.mark.parametrize("role", ["reward", "critic", "reference"])
def test_every_model_of_a_run_is_held_against_its_weights(role: str, make_config: Any, make_model: Any, tmp_path: Path) -> None:
    changes: dict[str, dict[str, Any]] = {
        "reward": {},
        "critic": {"critic__kind": "separate", "critic__start": "model", "critic__model": str(tmp_path / "odd")},
        "reference": {"model__reference": str(tmp_path / "odd")},
    }
    make_model("odd", n_layer=BILLION)
    config = make_config(**changes[role])
    if role == "reward":
        odd = (tmp_path / "odd" / "config.json").read_text().replace("LMHeadModel", "ForSequenceClassification")
        (tmp_path / "reward" / "config.json").write_text(odd)
        with pytest.raises(ModelError, match="n_layer 1,000,000,000"):
            check_reward_model(str(tmp_path / "reward"), label="0")
    problems = inspect_run(config, tmp_path, gpus=lambda: ()).problems
    assert any("n_layer 1,000,000,000" in problem.message for problem in problems)


def test_on_the_hub_the_size_of_the_files_is_the_bound(make_model: Any) -> None:
    """Nothing is fetched but config.json: a billion layers cannot be in a file of a megabyte, two can."""
    for layers, fits in ((2, True), (BILLION, False)):
        folder = make_model(f"hub{layers}", n_layer=layers, n_embd=4)
        siblings = [SimpleNamespace(rfilename=path.name, size=path.stat().st_size) for path in folder.iterdir() if path.suffix == ".json"]
        siblings.append(SimpleNamespace(rfilename="model.safetensors", size=1_000_000))
        api = SimpleNamespace(
            model_info=lambda *_, siblings=siblings, **__: SimpleNamespace(siblings=siblings),
            hf_hub_download=lambda _, file_name, folder=folder, **__: str(folder / file_name),
        )
        if fits:
            assert check_causal_lm("someone/model", hub=Hub(api)).download_bytes == 1_000_000
            continue
        with pytest.raises(ModelError, match="its files hold only 1,000,000 bytes; they do not belong together"):
            check_causal_lm("someone/model", hub=Hub(api))
