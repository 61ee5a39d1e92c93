"""Small random chat models whose tokenizers and templates end a turn in the ways of well-known families."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEXT = (
    "the a film was good bad slow quick story actor I love hate this that it is not very really well made plot what capital of France "
    "Paris two plus equals four how many apples does Tom have say yes no please thank you hello world user assistant system question "
    "answer write poem about cats dogs Human Assistant"
)
WORDS = TEXT.split()

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# The end of an assistant's turn stands behind {% endgeneration %}: a loss on the marked tokens alone never sees it.
UNMARKED_END = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] }}"
    "{% endgeneration %}{% else %}{{ m['content'] }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HEADERS = (
    "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim "
    "+ '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


def byte_level(specials: list[str], bos: str | None = None) -> Tokenizer:
    """A byte-level BPE tokenizer; the special tokens have the first ids. With ``bos`` every text begins with it."""
    draw = random.Random(0)
    texts = [" ".join(draw.choice(WORDS) for _ in range(draw.randint(4, 14))) + draw.choice([".", "!", "?", "\n\n"]) for _ in range(800)]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=specials, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if bos:
        named = [(bos, tokenizer.token_to_id(bos))]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=named)
    return tokenizer


def fast(tokenizer: Tokenizer, template: str, **specials: str) -> PreTrainedTokenizerFast:
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, model_max_length=100_000, **specials)
    wrapped.chat_template = template
    return wrapped


def llama(vocabulary: int, **tokens: int | list[int] | None) -> LlamaForCausalLM:
    """Two layers of width 32 with weights sharp enough that a wrong token shows."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = LlamaConfig(
        vocab_size=vocabulary, max_position_embeddings=512, tie_word_embeddings=False, initializer_range=0.25, **sizes, **tokens
    )
    return LlamaForCausalLM(config).float().eval()


def chatml() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A turn ends with the tokenizer's own end token and a line break, as in Qwen and SmolLM."""
    bytes_ = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer = fast(bytes_, CHATML, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    return llama(len(tokenizer), bos_token_id=None, eos_token_id=2, pad_token_id=0), tokenizer


def unmarked_end() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """As :func:`chatml`, and the template marks what the model wrote, but not the end of its turn."""
    model, tokenizer = chatml()
    tokenizer.chat_template = UNMARKED_END
    return model, tokenizer


def llama3() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """The tokenizer's end token (1) is not what ends a turn (4); generation_config.json lists both, and sampling options."""
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    bytes_ = byte_level(specials, bos="<|begin_of_text|>")
    tokenizer = fast(bytes_, HEADERS, bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>")
    model = llama(len(tokenizer), bos_token_id=0, eos_token_id=[1, 4])
    model.generation_config.update(eos_token_id=[1, 4], do_sample=True, temperature=0.6, top_p=0.9, repetition_penalty=1.3)
    return model, tokenizer


KINDS = {"chatml": chatml, "unmarked_end": unmarked_end, "llama3": llama3}


def save_chat_model(kind: str, folder: Path) -> Path:
    """Save the model and its tokenizer of this kind as an ordinary folder."""
    model, tokenizer = KINDS[kind]()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# --- a model that answers ----------------------------------------------------------------------------------------------------


def questions() -> list[str]:
    return [f"what is the capital of France {number}?" for number in range(24)]


def save_questions(file: Path, *, answered: bool) -> Path:
    """The questions as chats, one a line; ``answered``: each with "Paris" and its number, to be learned."""
    chats = [[{"role": "user", "content": question}] for question in questions()]
    if answered:
        rows = [{"messages": [*chat, {"role": "assistant", "content": f"Paris {number}"}]} for number, chat in enumerate(chats)]
    else:
        rows = [{"prompt": chat} for chat in chats]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def teach_chat_model(model: Path, run_dir: Path) -> Path:
    """Fine-tune the model on the answered questions in ``run_dir``: 120 steps, a few seconds."""
    from rlhf_studio.cli.main import main

    data = save_questions(run_dir.with_name("answers.jsonl"), answered=True)
    settings = {
        "stage": "sft",
        "model": {"policy": str(model)},
        "data": {"source": str(data), "chat_template": True, "eval_share": 0},
        "sft": {"epochs": 40, "batch_size": 8, "learning_rate": 0.005},
        "generation": {"response_length": 16},
        "engine": {"device": "cpu"},
    }
    assert main(["train", "--run-dir", str(run_dir), "--config", str(save_settings(settings, run_dir))]) == 0
    return run_dir


def save_settings(settings: dict[str, Any], run_dir: Path) -> Path:
    """The settings of a run as a file beside its folder; JSON is YAML."""
    file = run_dir.with_name(f"{run_dir.name}.yaml")
    file.write_text(json.dumps(settings))
    return file


def last_policy(run_dir: Path) -> Path:
    """The model of the newest checkpoint of a run."""
    return sorted((run_dir / "checkpoints").glob("step-*"))[-1] / "policy"


def greedy_answer(folder: Path, most: int = 16) -> list[int]:
    """What transformers alone, with the folder's own way of stopping, makes of one of the questions: at most ``most`` ids."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": questions()[3]}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer: list[int] = model.generate(**ids, do_sample=False, max_new_tokens=most)[0, ids["input_ids"].shape[1] :].tolist()
    return answer
