"""The memory estimate: arithmetic worked by hand, what must never shrink it, what makes it unknown, and advice that is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import parse_config
from rlhf_studio.config.recipes import load_recipe
from rlhf_studio.inputs.estimate.counts import RunModels, reward_model_count, trained_parameters
from rlhf_studio.inputs.estimate.device import Device
from rlhf_studio.inputs.estimate.disk import recorded_bytes
from rlhf_studio.inputs.estimate.memory.lasting import CPU_FRAMEWORK
from rlhf_studio.inputs.estimate.memory.savings import changes, cheapest
from rlhf_studio.inputs.estimate.memory.total import MemoryEstimate, estimate_memory
from rlhf_studio.inputs.models.facts import ModelFacts
from rlhf_studio.inputs.models.safetensors_header import TensorInfo
from rlhf_studio.inputs.models.shape import read_shape
from rlhf_studio.inputs.prompts.lengths import PromptTokens

GPT2 = {"model_type": "gpt2", "n_layer": 2, "n_embd": 8, "n_head": 2, "n_inner": None, "vocab_size": 10, "activation_function": "gelu_new"}
CPU = Device("cpu", "CPU", 10**9, 2 * 10**9, False)
GPU = Device("cuda", "A GPU", 10**9, 2 * 10**9, True)
RULE = [{"kind": "length"}]


def facts(config: dict[str, Any] = GPT2, **more: Any) -> ModelFacts:
    return ModelFacts(path=None, architecture="A", shape=read_shape(config), **more)


def settings(**sections: dict[str, Any]) -> RunConfig:
    base: dict[str, Any] = {
        "data": {"max_prompt_tokens": 6},
        "reward": {"components": RULE},
        "ppo": {"batch_size": 4, "mini_batch_size": 2},
        "generation": {"response_length": 4},
    }
    return parse_config({key: {**base.get(key, {}), **sections.get(key, {})} for key in {*base, *sections}})


def estimate(
    config: RunConfig,
    policy: ModelFacts,
    device: Device = CPU,
    rewards: tuple[ModelFacts, ...] = (),
    prompts: PromptTokens | None = None,
) -> MemoryEstimate:
    return estimate_memory(config, RunModels(policy, rewards), device, prompts)


def table(made: MemoryEstimate) -> dict[str, tuple[int | None, int | None, int | None]]:
    return {part.name: (part.parameters, part.low, part.high) for part in made.parts}


# --- the parts by hand ---------------------------------------------------------------------------------------------------------


def test_without_a_critic_nothing_is_planned_for_one() -> None:
    rloo = {"ppo": {"advantage": "rloo", "responses_per_prompt": 2}}
    made, with_critic = (table(estimate(settings(**sections), facts(parameters=1000))) for sections in (rloo, {}))
    assert with_critic.pop("Critic") == (9, 36, 36)
    assert made.keys() == with_critic.keys()
    matrix = 10 * 8 * 4
    assert (made["Gradients"], made["Optimizer"]) == ((1000, 4000, 4000 + matrix), (2000, 8000, 8000 + matrix))
    value = 4 * 4  # bytes of one quantity of a response's four tokens
    steps, episodes, recorded, watched = 60, 4, 4, 4
    config = settings(engine={"record_samples": recorded, "watch_prompts": watched, "watch_every": 20})
    without = parse_config({**config.model_dump(mode="json"), "ppo": {**config.ppo.model_dump(mode="json"), **rloo["ppo"]}})
    answers = 1 + steps // 20 + 1
    saved = steps * (3 * recorded * value + episodes * value) + answers * watched * value
    assert recorded_bytes(config) - recorded_bytes(without) == saved


def test_full_training_by_hand() -> None:
    made = estimate(settings(), facts(parameters=1000), prompts=PromptTokens(3, (5, 100), count=20))
    cache = 4 * 2 * 16 * 4  # episodes × layers × cached values × bytes, per token
    read = 4 * (8 * 8 + 4 * 32) * 4  # episodes × values × bytes, per token
    odds = 4 * 10 * 4
    logits = 2 * 4 * 10 * 4
    saved = 2 * 2 * (8 * 8 + 2 * 32) * 4
    gaps = 2 * 2 * (6 * 8 + 32) * 4
    matrix = 10 * 8 * 4
    prompts = 20 * 3 * 10, 20 * (3 * 24 + 1000)
    assert table(made) == {
        "Framework": (0, *CPU_FRAMEWORK),
        "Policy": (1000, 4000, 4000),
        "Reference": (1000, 4000, 4000),
        "Critic": (9, 36, 36),
        "Gradients": (1009, 4036, 4036 + matrix),
        "Optimizer": (2018, 8072, 8072 + matrix),
        "Prompts": (0, *prompts),
        "Probes": (0, 0, 4 * 4 * 10 * 4),  # of 4 tokens at most
        "KV cache": (0, cache * 7, int(1.5 * cache * 10)),  # prompts of 3 tokens are usual; none has more than the limit of 6
        "Prefill": (0, read * 3 // 4, read * 6 + 4 * 6 * 6 * 5),  # with, for each pair of tokens, a truth value and a number
        "Next-token odds": (0, 2 * odds, 6 * odds),
        "Logits": (0, 2 * logits, 5 * logits),
        "Activations": (0, saved * 7, (saved + gaps) * 10),
    }
    lasting = 4000 + 4000 + 36 + 4036 + 8072
    sampling = cache * 7 + read * 3 // 4 + 2 * odds
    assert made.low == CPU_FRAMEWORK[0] + lasting + prompts[0] + max(sampling, 2 * logits + saved * 7)
    passing = int(1.5 * cache * 10) + read * 6 + 4 * 6 * 6 * 5 + 6 * odds + 5 * logits + (saved + gaps) * 10
    assert made.high == CPU_FRAMEWORK[1] + lasting + prompts[1] + 640 + 2 * matrix + passing
    assert made.measured_range() == (made.low, made.high)
    on_gpu = estimate(settings(), facts(parameters=1000), GPU)
    assert on_gpu.measured_range() == (on_gpu.low - 400_000_000, on_gpu.high - 900_000_000)  # tensors alone are measured there


def test_the_parts_of_sampling_are_held_together() -> None:
    """Many responses at once and small minibatches, so that sampling needs more than learning."""
    made = estimate(settings(ppo={"batch_size": 64, "mini_batch_size": 1}), facts(parameters=1000))
    cache, read, odds = 64 * 10 * 2 * 16 * 4, 64 * 6 * (8 * 8 + 4 * 32) * 4 // 4, 2 * 64 * 10 * 4
    lasting = CPU_FRAMEWORK[0] + 4000 + 4000 + 36 + 4036 + 8072
    assert made.low == lasting + cache + read + odds


PYTHIA_1B = {
    **{"model_type": "gpt_neox", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 8, "intermediate_size": 8192},
    **{"vocab_size": 50304, "hidden_act": "gelu", "tie_word_embeddings": False},
}


def test_the_cache_of_the_summaries_recipe_by_hand() -> None:
    """512 rows of 512 + 53 tokens; in each of 16 blocks 8 heads of 256 numbers, keys and values, of 2 bytes: 37.9 GB. 64 rows: 4.7 GB."""
    recipe = load_recipe("tldr-pythia-1b").config
    all_together = recipe.model_copy(update={"generation": recipe.generation.model_copy(update={"batch_size": 0})})
    tables = {config.generation.batch_size: table(estimate(config, facts(PYTHIA_1B), GPU)) for config in (recipe, all_together)}
    assert tables[0]["KV cache"][1:] == (37_916_508_160, 56_874_762_240)
    assert tables[64]["KV cache"][1:] == (4_739_563_520, 7_109_345_280)
    assert tables[0]["Next-token odds"][1] == 8 * tables[64]["Next-token odds"][1] == 2 * 512 * 50304 * 4
    # 64 × 512 tokens × (8 · 2048 + 4 · 8192) values of 2 bytes; and 64 × 512 × 512 pairs of 1 + 2 bytes
    assert tables[64]["Prefill"][1:] == (805_306_368, 3_221_225_472 + 50_331_648)
    assert tables[0]["Activations"] == tables[64]["Activations"] and tables[0]["Logits"] == tables[64]["Logits"]


def test_adapters_leave_more_gaps_and_prompts_are_kept_on_a_cpu() -> None:
    """Beside each matrix's result stands its adapter's, twice: 3 H, the cached 2 H, and F."""
    gaps = 2 * 10 * 2 * (6 * 8 + 32 + 2 * (3 * 8 + 16 + 32)) * 4
    saved = 2 * 10 * 2 * (8 * 8 + 2 * 32) * 4
    assert table(estimate(settings(lora={"enabled": True}), facts()))["Activations"] == (0, saved, saved + gaps)
    assert table(estimate(settings(lora={"enabled": True}), facts(), GPU))["Activations"] == (0, saved // 2, int(1.6 * saved / 2))
    unknown = PromptTokens(5, (6, 6))  # a hub dataset whose rows nobody has counted
    up_to = settings(data={"max_prompt_tokens": 6, "max_prompts": 30})
    assert table(estimate(up_to, facts(), prompts=unknown))["Prompts"] == (0, 0, 30 * (5 * 24 + 1000))
    assert not {"Prompts", "Probes"} & table(estimate(up_to, facts(), GPU, prompts=unknown)).keys()  # kept in the computer's memory


@pytest.mark.parametrize(
    ("cores", "threads", "mini", "micro", "copies"),
    [
        (2, 0, 32, 0, 2),  # two lanes with 16 rows each
        (2, 0, 32, 8, 4),  # each with two parts of 4 rows: what it has so far, and what comes to it
        (16, 0, 32, 0, 4),  # never more than four lanes
        (16, 0, 16, 0, 2),  # and never fewer than 8 rows in one
        (16, 1, 32, 8, 1),
    ],
)
def test_each_lane_of_a_cpu_holds_gradients_of_its_own(cores: int, threads: int, mini: int, micro: int, copies: int) -> None:
    ppo = {"batch_size": 32, "mini_batch_size": mini, "micro_batch_size": micro}
    config, matrix = settings(ppo=ppo, engine={"threads": threads}), 10 * 8 * 4
    parts = table(estimate(config, facts(parameters=1000), replace(CPU, cores=cores)))
    assert parts["Gradients"] == (1009, 4036, copies * 4036 + matrix)
    assert table(estimate(config, facts(parameters=1000), replace(GPU, cores=cores)))["Gradients"] == (1009, 4036, 4036 + matrix)


def test_a_reward_model_reads_the_whole_text_of_a_prompt_that_was_cut_for_the_policy() -> None:
    config = settings(reward={"components": [{"kind": "reward_model", "batch_size": 2, "max_tokens": 90}]})
    each = 2 * (8 * 8 + 4 * 32) * 4  # texts × values × bytes, per token
    models = (facts(parameters=5),)
    for usual, longest, expected in ((20, 50, (24, 54)), (20, 500, (24, 90)), (20, None, (24, 90)), (None, 6, (7, 10))):
        read = table(estimate(config, facts(), rewards=models, prompts=PromptTokens(3, (6, 6), 9, usual, longest)))["Scoring"]
        assert read == (0, each * expected[0] // 4, each * expected[1])
    assert table(estimate(config, facts(), rewards=models))["Scoring"][2] == each * 90


def test_sampling_on_a_cpu_prepacks_large_matrices_where_there_is_room() -> None:
    large = facts({**GPT2, "n_embd": 512, "vocab_size": 1024}, parameters=1000)
    roomy = replace(CPU, total=10**12)

    def prepacked(policy: ModelFacts = large, device: Device = roomy, length: int = 16, **model: str) -> Any:
        return table(estimate(settings(generation={"response_length": length}, model=model), policy, device)).get("Weights laid out")

    blocks, head = 2 * (4 * 512 * 512 + 2 * 512 * 2048), 1024 * 512
    assert prepacked() == (0, 0, 2 * 4 * (blocks + head))
    assert prepacked(facts({**GPT2, "vocab_size": 2**17}, parameters=1000)) == (0, 0, 2 * 4 * 2**17 * 8)  # the small blocks are left
    assert prepacked(device=replace(roomy, total=8 * 4 * (blocks + head))) is not None
    assert prepacked(device=replace(roomy, total=8 * 4 * (blocks + head) - 1)) is None
    assert prepacked(facts(parameters=1000)) is None and prepacked(length=15) is None
    assert prepacked(device=GPU) is None and prepacked(dtype="bfloat16") is None
    made = estimate(settings(generation={"response_length": 16}), large, roomy)
    assert made.low == estimate(settings(generation={"response_length": 16}), large, CPU).low  # it need not happen


def test_a_critic_of_its_own_is_trained_whole() -> None:
    critic = facts({**GPT2, "n_layer": 1}, parameters=600)
    for lora in (False, True):
        config = settings(lora={"enabled": lora}, critic={"kind": "separate"})
        shared, own = (table(estimate_memory(config, RunModels(facts(parameters=1000), critic=model), CPU)) for model in (None, critic))
        assert own["Critic"] == (609, 2436, 2436)
        assert own["Gradients"][1] - shared["Gradients"][1] == 2400 and own["Optimizer"][1] - shared["Optimizer"][1] == 4800
        assert own["Activations"][1] - shared["Activations"][1] == 2 * 10 * (8 * 8 + 2 * 32) * 4
    unknown = estimate_memory(settings(), RunModels(facts(), critic=ModelFacts(None, "A")), CPU)
    assert "critic" in unknown.unknown and "activations" in unknown.unknown


def test_lora_by_hand() -> None:
    tensors = {
        "wte.weight": TensorInfo((10, 8), 320),
        "h.0.attn.c_attn.weight": TensorInfo((8, 24), 768),
        "h.0.mlp.c_fc.weight": TensorInfo((8, 32), 1024),
        "h.0.mlp.c_fc.bias": TensorInfo((32,), 128),
    }
    policy = facts(parameters=1000, tensors=tensors)
    adapters = 16 * (18 + 32 + 40)
    made = table(estimate(settings(lora={"enabled": True}), policy))
    assert made["Policy"] == (1000 + adapters, 4000 + 4 * adapters, 4000 + 4 * adapters)
    assert made["Reference"] == (0, 0, 0)
    assert made["Gradients"][1] == 4 * (adapters + 9) and made["Optimizer"][1] == 8 * (adapters + 9)
    assert made["Merged adapters"] == (0, *2 * [2 * (8 * 32 + 2 * 8 * 32) * 4])
    for other in ({"use_dora": True}, {"enabled": False}):
        assert "Merged adapters" not in table(estimate(settings(lora={"enabled": True, **other}), policy))
    only = settings(lora={"enabled": True, "r": 2, "target_modules": "c_attn"})
    assert trained_parameters(only, policy) == 2 * 32
    on_gpu = table(estimate(settings(lora={"enabled": True}), policy, GPU))
    assert on_gpu["Merged adapters"] == (0, *2 * [2 * (8 * 32 + 2 * 8 * 32) * 2])
    assert on_gpu["Policy"][1] == 2000 + 4 * adapters  # the frozen base in bfloat16, the adapters in float32


def test_a_reference_that_is_not_the_base_with_its_adapters_off() -> None:
    policy = facts(parameters=1000)
    pissa = settings(lora={"enabled": True, "init_lora_weights": "pissa"})
    assert table(estimate(pissa, policy))["Reference"] == (1000, 4000, 4000)
    following = settings(lora={"enabled": True}, ppo={"reference_ema": 0.1})
    assert table(estimate(following, policy))["Reference"] == (1000, 4000, 4000)
    other = estimate_memory(settings(), RunModels(policy, reference=facts(parameters=700)), CPU)
    assert table(other)["Reference"] == (700, 2800, 2800)
    adapter = estimate_memory(settings(lora={"enabled": True}), RunModels(policy, reference=facts(parameters=1000, base="a")), CPU)
    assert table(adapter)["Reference"] == (1000, 0, 4000)


def test_quantized_bases_and_gradient_checkpointing() -> None:
    policy = facts(parameters=1000)
    adapters = 16 * 2 * (32 + 16 + 40 + 40)
    for bits, name in ((8, "8bit"), (4, "4bit")):
        rows = table(estimate(settings(lora={"enabled": True}, model={"quantization": name}), policy, GPU))
        assert rows["Policy"][1] == 1000 * bits // 8 + 4 * adapters
    saved = 2 * 10 * (2 * 8 + (8 * 8 + 2 * 32)) * 4  # two blocks' inputs, and one block in full
    gaps = 2 * 10 * (6 * 8 + 32) * 4  # of one block
    assert table(estimate(settings(model={"gradient_checkpointing": True}), policy))["Activations"] == (0, saved, saved + gaps)


def test_every_model_of_an_ensemble_is_counted() -> None:
    ensemble = {"kind": "ensemble", "models": "a, b", "batch_size": 2}
    config = settings(reward={"components": [ensemble, {"kind": "length"}, {"kind": "reward_model", "batch_size": 1}]})
    assert reward_model_count(config) == 3
    rows = table(estimate(config, facts(), rewards=(facts(parameters=5), facts(parameters=6), facts(parameters=7))))
    assert rows["Reward models"][0] == 18
    assert rows["Scoring"][2] == 2 * 512 * (64 + 128) * 4  # the texts are of unknown length: as much as the model may read


def test_the_exact_kl_keeps_two_distributions() -> None:
    before, after = (table(estimate(settings(ppo={"kl_estimator": name}), facts(parameters=1000)))["Logits"] for name in ("k1", "full"))
    assert after[1] - before[1] == after[2] - before[2] == 2 * 4 * 4 * 10 * 4


# --- what must hold whatever the numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [CPU, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("lora", [False, True])
def test_more_is_never_less(device: Device, lora: bool) -> None:
    def total(config: dict[str, Any], **sections: dict[str, Any]) -> tuple[int, int]:
        made = estimate(settings(lora={"enabled": lora}, **sections), facts(config), device)
        assert made.low is not None and made.high is not None and made.low <= made.high
        return made.low, made.high

    for grown in ({"n_layer": 3}, {"n_embd": 16}, {"vocab_size": 50}, {"n_inner": 64}):
        before, after = total(GPT2), total({**GPT2, **grown})
        assert after[0] > before[0] and after[1] > before[1], grown
    for grown in ({"generation": {"response_length": 8}}, {"ppo": {"mini_batch_size": 4}}, {"ppo": {"batch_size": 400}}):
        before, after = total(GPT2), total(GPT2, **grown)
        assert after[0] >= before[0] and after[1] > before[1], grown


def test_unknown_models_say_so() -> None:
    made = estimate(settings(), ModelFacts(path=None, architecture="A", parameters=1000))
    assert made.unknown == "unknown: the model's files do not tell the size of kv cache, prefill, next-token odds, logits, activations"
    assert made.low is made.high is made.fits is made.measured_range() is None and not made.too_large
    assert table(made)["Policy"] == (1000, 4000, 4000)  # what is known is still shown
    nothing = estimate(settings(), ModelFacts(path=None, architecture="A"))
    assert table(nothing)["Gradients"] == (None, None, None)
    unknown = estimate(settings(reward={"components": [{"kind": "reward_model"}]}), facts(), rewards=(ModelFacts(None, "A"),))
    assert "reward models" in unknown.unknown


def test_fits_and_does_not() -> None:
    made = estimate(settings(), facts(parameters=1000))
    for free, fits, too_large in [
        (made.high, True, False),
        (made.high - 1, False, False),
        (made.low - 1, False, True),
        (None, None, False),
    ]:
        other = MemoryEstimate(replace(CPU, free=free), made.parts)
        assert (other.fits, other.too_large) == (fits, too_large)


# --- the cheapest change -----------------------------------------------------------------------------------------------------


def test_the_first_change_that_fits_is_named() -> None:
    config = settings(ppo={"batch_size": 8, "mini_batch_size": 8}, generation={"response_length": 400})
    policy = facts({**GPT2, "vocab_size": 50_000})

    def replan_on(free: int) -> Any:
        return lambda other: estimate(other, policy, replace(CPU, free=free))

    roomy = replan_on(10**12)
    assert cheapest(config, roomy(config), roomy) is None  # nothing to do
    high = roomy(config).high
    offered = changes(config, roomy(config), roomy)
    assert [(change.setting, change.value) for change in offered[:8]] == [
        ("ppo.micro_batch_size", "4"),
        ("ppo.micro_batch_size", "2"),
        ("ppo.micro_batch_size", "1"),
        ("generation.batch_size", "4"),
        ("generation.batch_size", "2"),
        ("generation.batch_size", "1"),
        ("model.gradient_checkpointing", "true"),
        ("lora.enabled", "true"),
    ]
    assert {change.setting for change in offered[8:]} == {"generation.response_length"}
    halved = roomy(settings(ppo={"batch_size": 8, "mini_batch_size": 8, "micro_batch_size": 4}, generation={"response_length": 400}))
    assert offered[0].saves == high - halved.high
    for candidate in offered[:3]:  # each is chosen when the ones before it do not save enough
        tight = replan_on(high - candidate.saves)
        chosen = cheapest(config, tight(config), tight)
        assert chosen is not None and (chosen.setting, chosen.value) == (candidate.setting, candidate.value)
    wide = settings(ppo={"batch_size": 64, "mini_batch_size": 1}, generation={"batch_size": 48})  # sampling is what needs the memory
    names = [(change.setting, change.value) for change in changes(wide, roomy(wide), roomy)]
    assert names[:5] == [("generation.batch_size", size) for size in ("24", "12", "6", "3", "1")]
    hopeless = replan_on(10**6)
    assert cheapest(config, hopeless(config), hopeless) is None


def test_bfloat16_is_offered_where_the_gpu_has_it() -> None:
    config = settings(model={"dtype": "float32"}, ppo={"batch_size": 2, "mini_batch_size": 1})
    for device, offered in [(GPU, True), (replace(GPU, bfloat16=False), False), (CPU, False)]:
        savings = changes(config, estimate(config, facts(), device), lambda c, d=device: estimate(c, facts(), d))
        names = [change.setting for change in savings]
        assert ("model.dtype" in names) == offered


def test_a_quantized_base_is_offered_on_a_gpu_with_lora() -> None:
    for device, lora, offered in [(GPU, True, True), (GPU, False, False), (CPU, True, False)]:
        config = settings(lora={"enabled": lora})
        savings = changes(config, estimate(config, facts(), device), lambda c, d=device: estimate(c, facts(), d))
        assert (("model.quantization", "4bit") in [(change.setting, change.value) for change in savings]) == offered


def test_a_shortest_limit_follows_a_shorter_response(tmp_path: Path) -> None:
    config = settings(generation={"response_length": 8, "response_length_min": 8})
    offered = changes(config, estimate(config, facts()), lambda other: estimate(other, facts()))
    assert [change.value for change in offered if change.setting == "generation.response_length"] == ["4", "2"]
