"""Where prompts come from and how they are cut."""

from __future__ import annotations

from rlhf_studio.config.base import Section, setting


class DataConfig(Section):
    """Where the prompts come from."""

    prompts: str = setting(
        "bundled/world-prompts", "Prompts",
        "A local file with one prompt per row (.csv, .jsonl, .json lines, or .txt with one prompt a line), or bundled/world-prompts.",
        level="basic", min_length=1, max_length=4096,
    )  # fmt: skip
    column: str = setting(
        "prompt", "Prompt column", "Column (CSV) or key (JSON Lines) that holds the prompt text.", level="basic", min_length=1,
        max_length=200,
    )  # fmt: skip
    reference_column: str = setting(
        "", "Reference column", "Column or key with a reference text for each prompt, for rewards that compare with one; empty: none.",
        max_length=200,
    )  # fmt: skip
    max_prompt_tokens: int = setting(
        128, "Longest prompt", "Prompts with more tokens are cut on the left, so that their end stays.", unit="tokens", ge=1, le=32768
    )
    max_prompts: int = setting(
        100_000, "Most prompts", "Only the first rows up to this number are read.", unit="prompts", ge=1, le=10_000_000
    )
    shuffle: bool = setting(True, "Shuffle", "Draw the prompts in a new random order each pass, fixed by the seed.")
