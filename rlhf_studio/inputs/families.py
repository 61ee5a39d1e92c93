"""Which kinds of causal language models cannot be trained here, and why: by transformers' own source where it shows, else by a table.

The table was measured: a tiny random model of every type in transformers' mapping trains for two steps, and the values that it records
are compared with those of the plain model (``python -m tests.families.measure``; docs/models.md has the result for every type).

At the end: the families with which ways of computing faster were tested.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from rlhf_studio.language import S_

POSITIONS_FROM_MASK = {"bloom", "mpt", "whisper", "moss_transcribe_diarize"}  # right without position_ids: they count what the mask shows

REFUSED_TYPES = {
    "blt": S_("reads bytes in patches, not the tokens of a tokenizer"),
    "cpmant": S_("reads its whole input in both directions"),
    "deepseek_v4": S_("compresses what it has read in groups that are counted from the row's start, padding included"),
    "git": S_("describes images, and expects the places of one before the text once it keeps a cache"),
    "moshi": S_("is made for speech, and gives other numbers token by token than in one pass"),
    "recurrent_gemma": S_("has a window of attention that counts padding as text"),
}
"""Types that no rule finds, with what makes their numbers wrong or stops them."""

REFUSED_WITH_LORA = {
    "inkling2_text": S_("peft does not find all of its layers again in a saved adapter"),
    "jamba": S_("what adapters on dt_proj do while sampling is not what they do while learning"),
    "laguna": S_("peft does not find all of its layers again in a saved adapter"),
    "longcat_flash": S_("its numbers while sampling and while learning part once its adapters are not 0"),
}
"""Types that can be trained in full only."""

BYPASSED = ("conv1d", "out_proj")
"""Layers of a state-space block whose weights a fused kernel reads without calling them: an adapter on them would do nothing."""
BYPASSING = {"falcon_h1", "mamba", "mamba2", "falcon_mamba", "nemotron_h"}
"""Types for which peft refuses adapters on them."""


def family_problem(model_type: str, architecture: str) -> str | None:
    """Why a causal language model of this kind cannot be trained, as the end of a sentence that begins with its name; None when it can."""
    what = f"is {'an' if model_type[:1] in set('aeiou') else 'a'} {model_type} model"
    if model_type in REFUSED_TYPES:
        return S_(f"{what}, which {REFUSED_TYPES[model_type]}; use another model")
    known = mapped_types()
    if known and model_type not in known:
        return S_(f"{what} ({architecture}), which transformers loads only as a part of a larger model; use another model")
    source = model_source(model_type)
    arguments = forward_arguments(source, architecture)
    if arguments and "past_key_values" not in arguments:
        return S_(f"{what} without a key-value cache, which sampling needs; use another model")
    if arguments and "position_ids" not in arguments and model_type not in POSITIONS_FROM_MASK:
        return S_(f"{what}, which counts positions from a row's start, padding included: unequal prompts come out wrong; use another model")
    if "time_step_limit = (config.time_step_min" in source:
        return S_(f"{what}, whose decoding step does not keep the smallest time step that its whole pass keeps; use another model")
    own = re.search(r"not isinstance\(past_key_values, (\w+)\)", source)
    if own and f"class {own[1]}(" in source:
        return S_(f"{what}, which keeps a cache of its own kind ({own[1]}) that sampling here cannot fill; use another model")
    return None


def transformers_folder() -> Path | None:
    """Where the installed transformers lies, found without importing it."""
    spec = find_spec("transformers")
    return Path(spec.submodule_search_locations[0]) if spec is not None and spec.submodule_search_locations else None


@lru_cache(maxsize=1)
def mapped_types() -> frozenset[str]:
    """The types of which ``AutoModelForCausalLM`` makes a model; empty when transformers' table cannot be read."""
    return frozenset(re.findall(r'^\s+\("([^"]+)",', mapping_source("CAUSAL_LM"), re.MULTILINE))


def mapping_source(task: str) -> str:
    """The lines of transformers' own table from types to classes for ``task``; empty when they cannot be found."""
    folder = transformers_folder()
    table = folder / "models" / "auto" / "modeling_auto.py" if folder else None
    source = table.read_text(encoding="utf-8") if table and table.is_file() else ""
    match = re.search(rf"^MODEL_FOR_{task}_MAPPING_NAMES = OrderedDict\(\n(.*?)^\)", source, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


@lru_cache(maxsize=16)
def model_source(model_type: str) -> str:
    """The source of the type's model classes; empty when there is no such file or the type is not a plain name."""
    folder = transformers_folder()
    name = model_type.replace("-", "_")
    if folder is None or not re.fullmatch(r"\w+", name, re.ASCII):
        return ""
    for module in (_modules().get(model_type, name), name.removesuffix("_text")):
        files = sorted((folder / "models" / module).glob("modeling_*.py"))
        if files:
            return "\n".join(file.read_text(encoding="utf-8") for file in files)
    return ""


@lru_cache(maxsize=1)
def _modules() -> dict[str, str]:
    """Types whose source lies in a folder of another name, by transformers' own table."""
    folder = transformers_folder()
    table = folder / "models" / "auto" / "auto_mappings.py" if folder else None
    source = table.read_text(encoding="utf-8") if table and table.is_file() else ""
    match = re.search(r"^SPECIAL_MODEL_TYPE_TO_MODULE_NAME = OrderedDict\(\n(.*?)^\)", source, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r'\("([^"]+)", "(\w+)"\)', match[1])) if match else {}


def forward_arguments(source: str, architecture: str) -> frozenset[str]:
    """Names that the class's ``forward`` takes; empty when the class or its ``forward`` is not in the source."""
    body = re.search(rf"^class {re.escape(architecture)}\(.*?(?=^class |\Z)", source, re.MULTILINE | re.DOTALL)
    signature = re.search(r"^    def forward\((.*?)^    \)", body[0], re.MULTILINE | re.DOTALL) if body else None
    return frozenset(re.findall(r"^        (\w+)\s*[:=,]", signature[1], re.MULTILINE)) - {"self"} if signature else frozenset()


FUSED_EXPERTS = frozenset(
    """
    afmoe beam cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32 dots1 ernie4_5_moe exaone_moe flex_olmo glm4_moe glm4_moe_lite glm_moe_dsa
    hunyuan_v1_moe mellum minimax_m2 mixtral olmoe qwen3_moe qwen3_next solar_open
    """.split()  # noqa: SIM905
)
"""Types of whose experts peft adapts the parameters themselves: all experts of a layer lie in one tensor, and no layer has a matrix of its
own. Measured (``tests/families``)."""
EXPERT_LAYERS = frozenset({"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})
"""Names by which adapters on these experts are asked for."""
SHARES_BLOCKS = frozenset({"zamba"})
"""Types whose blocks use the same matrices, so that no start of LoRA may change one of them."""

TESTED_FAMILIES = frozenset({"gpt2", "gpt_neox", "llama", "mistral", "opt", "phi3", "qwen2", "qwen3"})
"""Types whose forward pass over a packed row (``engine/compute/packing.py``) and whose traced or captured decoding step
(``engine/sampling``) are tested. All others are padded, and sample through the model itself.
"""
