"""Where prompts come from, which of them are used, and how they are cut."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from rlhf_studio.config.base import Section, setting

INPUT_COLUMN = (
    "Column or key with what an instruction is about; it goes below the prompt. Empty: 'input' or 'context' beside 'instruction'."
)


def check_prompt_writing(prompt_format: str, chat_template: bool, system_text: str) -> None:
    """Raise ValueError where prompts cannot be written as these settings say."""
    if prompt_format and prompt_format.count("{prompt}") != 1:
        raise ValueError("prompt_format: needs {prompt} exactly once, where the prompt stands, such as: Human: {prompt}\\n\\nAssistant:")
    if prompt_format and chat_template:
        raise ValueError("prompt_format: the chat template says how prompts are written; use one of the two")
    if system_text and not chat_template:
        raise ValueError("system_text: is used only with chat_template; switch that on, or leave this empty")


class DataConfig(Section):
    """Where the prompts come from, which are used, and how they are cut."""

    prompts: str = setting(
        "bundled/world-prompts", "Prompts",
        "A local file (.csv, .tsv, .jsonl, .parquet, or .txt with one prompt a line; .gz too), a folder of such files, a Hugging Face "
        "dataset id such as stanfordnlp/imdb, or bundled/world-prompts.",
        level="basic", min_length=1, names="data", max_length=4096,
    )  # fmt: skip
    subset: str = setting("", "Subset", "The configuration of a hub dataset that has several; empty: its only one.", max_length=200)
    split: str = setting("train", "Split", "The split of a hub dataset; files have none.", min_length=1, max_length=200)
    revision: str = setting(
        "main", "Dataset revision", "Branch, tag or commit of a hub dataset; a commit never changes.", min_length=1, max_length=200
    )
    column: str = setting(
        "prompt", "Prompt column", "Column or key that holds the prompt text, or chat messages when the chat template is on.",
        level="basic", min_length=1, max_length=200,
    )  # fmt: skip
    input_column: str = setting("", "Input column", INPUT_COLUMN, max_length=200)
    reference_column: str = setting(
        "", "Reference column",
        "Column or key with a reference text for each prompt, for rewards that compare with one, or a path to it such as "
        "reward_model.ground_truth; empty: none.",
        max_length=200,
    )  # fmt: skip
    chat_template: bool = setting(
        False, "Chat template", "Write each prompt as a chat in the form that the policy's tokenizer defines, ready for its answer.",
        level="basic",
    )  # fmt: skip
    prompt_format: str = setting(
        "", "Prompt format",
        "The form that prompts are written in for a model without a chat template, such as 'Human: {prompt}\\n\\nAssistant:', where \\n is "
        "a line break. Use the same in every stage. Dialogues and prompts in this form stay as they are. Empty: prompts as they stand.",
        max_length=2000,
    )  # fmt: skip
    dialogue: Literal["auto", "cut", "whole"] = setting(
        "auto", "Dialogues in one text",
        "Texts such as 'Human: ... Assistant: ...' whose last answer is part of them: auto recognises them and leaves that answer out, "
        "cut demands it of every row, whole takes texts as they are. With the chat template their turns become messages.",
    )  # fmt: skip
    system_text: str = setting(
        "", "System text", "Put in front of every chat that has no system message of its own; empty: none.", max_length=10_000
    )
    max_prompts: int = setting(
        100_000, "Most prompts", "Only the first rows up to this number are read; blank rows do not count.", unit="prompts",
        ge=1, le=10_000_000,
    )  # fmt: skip
    drop_duplicates: bool = setting(False, "Drop repeats", "Leave out a prompt that has come before, word for word.")
    min_characters: int = setting(
        0, "Fewest characters", "Leave out prompts with fewer characters; 0: no limit.", unit="characters", ge=0, le=100_000
    )
    max_characters: int = setting(
        0, "Most characters", "Leave out prompts with more characters; 0: no limit.", unit="characters", ge=0, le=100_000
    )
    min_prompt_tokens: int = setting(
        0, "Shortest prompt", "Leave out prompts with fewer tokens, counted before anything is cut; 0: no limit.", unit="tokens",
        ge=0, le=32768,
    )  # fmt: skip
    max_prompt_tokens: int = setting(
        128, "Longest prompt", "The most tokens that the policy reads; longer prompts are cut or left out.", unit="tokens", ge=1, le=32768
    )
    overlong: Literal["cut_left", "cut_right", "drop"] = setting(
        "cut_left", "Longer prompts", "cut_left keeps the end of a prompt, cut_right its beginning, drop leaves the prompt out."
    )
    query_tokens_min: int = setting(
        0, "Query: fewest tokens",
        "Keep only the beginning of each text as the prompt: so many tokens, drawn per row by the seed between the two numbers, both "
        "included; 0: whole texts.",
        unit="tokens", ge=0, le=32768,
    )  # fmt: skip
    query_tokens_max: int = setting(
        0, "Query: most tokens", "The other end of that range, at most the longest prompt; 0: whole texts.", unit="tokens", ge=0, le=32768
    )
    eval: str = setting(
        "", "Held-out prompts",
        "File, folder or dataset of held-out prompts, with the same columns as the prompts: training never draws them, and the watched "
        "prompts are taken from them. Empty: a share of the prompts is set aside.",
        names="data", max_length=4096,
    )  # fmt: skip
    eval_split: str = setting(
        "test", "Held-out split", "The split of the held-out prompts, when they are a hub dataset or a folder; files have none.",
        min_length=1, max_length=200,
    )  # fmt: skip
    eval_share: float = setting(
        0.05, "Share held out",
        "Share of the prompts that training never draws, chosen by the seed, at most 256 and none of fewer than 100; 0: none. Not used "
        "when held-out prompts are named.",
        ge=0, le=0.5,
    )  # fmt: skip
    shuffle: bool = setting(True, "Shuffle", "Draw the prompts in a new random order each pass, fixed by the seed.")

    @model_validator(mode="after")
    def _limits_fit_together(self) -> Self:
        if 0 < self.max_characters < self.min_characters:
            raise ValueError(
                f"max_characters: {self.max_characters} is below min_characters {self.min_characters}; use at least that, or 0"
            )
        if self.min_prompt_tokens > self.max_prompt_tokens and self.overlong == "drop":
            raise ValueError(f"min_prompt_tokens: {self.min_prompt_tokens} is above max_prompt_tokens {self.max_prompt_tokens}; use less")
        if bool(self.query_tokens_min) != bool(self.query_tokens_max):
            raise ValueError("query_tokens_max: set both query lengths, or neither")
        if self.query_tokens_max < self.query_tokens_min:
            raise ValueError(
                f"query_tokens_max: {self.query_tokens_max} is below query_tokens_min {self.query_tokens_min}; use at least that"
            )
        if self.query_tokens_max > self.max_prompt_tokens:
            raise ValueError(
                f"query_tokens_max: {self.query_tokens_max} is above max_prompt_tokens {self.max_prompt_tokens}; use at most that"
            )
        return self

    @model_validator(mode="after")
    def _prompts_can_be_written(self) -> Self:
        check_prompt_writing(self.prompt_format, self.chat_template, self.system_text)
        if self.prompt_format and self.query_tokens_max:
            raise ValueError("query_tokens_max: a prompt in its form cannot be cut to its first tokens; use 0, or empty prompt_format")
        if self.prompt_format and self.overlong == "cut_right":
            raise ValueError("overlong: cut_right would cut off the place where the answer begins; use cut_left or drop")
        return self

    @model_validator(mode="after")
    def _a_chat_stays_whole(self) -> Self:
        if self.chat_template and self.query_tokens_max:
            raise ValueError("query_tokens_max: a chat cannot be cut to its first tokens; use 0, or switch chat_template off")
        if self.chat_template and self.overlong == "cut_right":
            raise ValueError("overlong: cut_right would cut off the place where a chat's answer begins; use cut_left or drop")
        return self
