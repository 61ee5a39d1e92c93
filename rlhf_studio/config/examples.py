"""Where a supervised stage's examples come from: demonstrations to imitate, or pairs of responses of which one is preferred."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from rlhf_studio.config.base import Section, setting
from rlhf_studio.config.data import INPUT_COLUMN, check_prompt_writing

_COLUMN = " Empty: the usual name is looked for."


class ExamplesConfig(Section):
    """What demonstrations and pairs have in common."""

    source: str = setting(
        "", "Data",
        "A local file (.jsonl, .json, .csv, .tsv, .parquet; .gz too), a folder of such files, a Hugging Face dataset id.",
        level="basic", names="data", max_length=4096,
    )  # fmt: skip
    subset: str = setting("", "Subset", "The configuration of a hub dataset that has several; empty: its only one.", max_length=200)
    split: str = setting("train", "Split", "The split of a hub dataset; files have none.", min_length=1, max_length=200)
    revision: str = setting(
        "main", "Dataset revision", "Branch, tag or commit of a hub dataset; a commit never changes.", min_length=1, max_length=200
    )
    prompt_column: str = setting(
        "", "Prompt column", f"Column or key that holds the prompt, as text or as chat messages.{_COLUMN}", level="basic", max_length=200
    )
    input_column: str = setting("", "Input column", INPUT_COLUMN, max_length=200)
    chat_template: bool = setting(
        False, "Chat template", "Write each prompt as a chat in the form that the model's tokenizer defines, ready for its answer.",
        level="basic",
    )  # fmt: skip
    prompt_format: str = setting(
        "", "Prompt format",
        "The form that prompts are written in for a model without a chat template, such as 'Human: {prompt}\\n\\nAssistant:', where \\n is "
        "a line break. Use the same in every stage. Dialogues and prompts in this form stay as they are. Empty: prompts as they stand.",
        max_length=2000,
    )  # fmt: skip
    system_text: str = setting(
        "", "System text", "Put in front of every chat that has no system message of its own; empty: none.", max_length=10_000
    )
    max_rows: int = setting(1_000_000, "Most rows", "Only the first rows up to this number are read.", unit="rows", ge=1, le=10_000_000)
    drop_duplicates: bool = setting(
        True, "Drop repeats", "Leave out a row that is an exact copy of an earlier one in all that is read of it, the annotator too."
    )
    max_tokens: int = setting(
        512, "Longest example", "The most tokens of prompt and response together.", level="basic", unit="tokens", ge=4, le=32768
    )
    overlong: Literal["cut_prompt", "drop"] = setting(
        "cut_prompt", "Longer examples",
        "cut_prompt cuts the beginning of the prompt away until the response fits, leaves an example out whose response alone is too long, "
        "and divides whole texts into several examples; drop leaves all of them out. Both are counted and shown.",
    )  # fmt: skip
    eval: str = setting(
        "", "Held-out data",
        "File, folder or dataset of examples that training never sees, with the same columns; its first 1,000 rows are read. Empty: a "
        "share of the data is set aside.",
        names="data", max_length=4096,
    )  # fmt: skip
    eval_split: str = setting(
        "test", "Held-out split", "The split of the held-out data, when it is a hub dataset or a folder; files have none.",
        min_length=1, max_length=200,
    )  # fmt: skip
    eval_share: float = setting(
        0.05, "Share held out",
        "Share of the examples that training never sees, chosen by the seed, at most 1,000; all examples with the same prompt go together. "
        "0: none. Not used when held-out data is named.",
        ge=0, le=0.5,
    )  # fmt: skip

    @model_validator(mode="after")
    def _prompts_can_be_written(self) -> Self:
        check_prompt_writing(self.prompt_format, self.chat_template, self.system_text)
        return self


class DemonstrationsConfig(ExamplesConfig):
    """Examples to imitate: prompts with their completions, whole texts, or chats."""

    source: str = setting(
        "bundled/world-reviews", "Demonstrations",
        "Examples to imitate: a local file (.jsonl, .json, .csv, .tsv, .parquet, .txt; .gz too), a folder of such files, a Hugging Face "
        "dataset id, or bundled/world-reviews.",
        level="basic", min_length=1, names="data", max_length=4096,
    )  # fmt: skip
    completion_column: str = setting(
        "", "Completion column", f"Column or key that holds the response to learn.{_COLUMN}", level="basic", max_length=200
    )
    text_column: str = setting(
        "", "Text column", f"Column or key that holds whole texts, when there are no prompts.{_COLUMN}", max_length=200
    )
    messages_column: str = setting(
        "", "Messages column", f"Column or key that holds whole chats as lists of messages.{_COLUMN}", max_length=200
    )


class PairsConfig(ExamplesConfig):
    """Responses to the same prompt, with what people said of them: which is better, in what order they come, or how good each is."""

    source: str = setting(
        "bundled/world-pairs", "Preferences",
        "Pairs, rankings or ratings of responses: a local file (.jsonl, .json, .csv, .tsv, .parquet; .gz too), a folder of such files, a "
        "Hugging Face dataset id, or bundled/world-pairs.",
        level="basic", min_length=1, names="data", max_length=4096,
    )  # fmt: skip
    chosen_column: str = setting(
        "", "Chosen column", f"Column or key of the preferred response, or of the whole dialogue that ends with it.{_COLUMN}",
        level="basic", max_length=200,
    )  # fmt: skip
    rejected_column: str = setting(
        "", "Rejected column", f"Column or key of the other response, or of its whole dialogue.{_COLUMN}", level="basic", max_length=200
    )
    responses_column: str = setting(
        "", "Responses column", f"Column or key of a list of two or more responses; the ranks column says how they are ordered.{_COLUMN}",
        max_length=200,
    )  # fmt: skip
    ranks_column: str = setting(
        "",
        "Ranks column",
        f"Column or key of a list of ranks, one for each response; 1 is best, equal ranks tie.{_COLUMN}",
        max_length=200,
    )
    response_column: str = setting(
        "", "Response column", f"Column or key of a single response, in data with one rated response a row.{_COLUMN}", max_length=200
    )
    rating_column: str = setting(
        "", "Rating column",
        "Column or key of a rating or label of each response: responses to one prompt with unlike ratings become pairs. Empty: the usual "
        "name is looked for.",
        max_length=200,
    )  # fmt: skip
    tie_column: str = setting(
        "", "Tie column",
        "Column or key that is true where people found both responses equally good; such a pair's margin is not used. "
        "Empty: a column 'tie' that holds true and false, as "
        "exported feedback has it; else no ties.",
        max_length=200,
    )  # fmt: skip
    margin_column: str = setting(
        "", "Margin column", "Column or key with how much better the chosen response is, in points of the score; a tie has none. "
        "Empty: no margins.",
        max_length=200,
    )  # fmt: skip
    confidence_column: str = setting(
        "", "Confidence column",
        "Column or key with how sure people were, from 0 to 1: so much a pair counts beside the others of its batch. Empty: a "
        "column 'confidence' that holds such numbers, as exported feedback has it; else all alike.",
        max_length=200,
    )  # fmt: skip
    min_confidence: float = setting(0.0, "Least confidence", "Leave out pairs of which people were less sure than this.", ge=0, le=1)
    group_column: str = setting(
        "", "Group column", "Column or key with a group of each prompt, such as its topic: accuracy is shown for each. Empty: none.",
        max_length=200,
    )  # fmt: skip
    margin_from_ratings: bool = setting(
        False, "Margins from ratings", "Where pairs come from ratings, the difference of the two ratings is their margin."
    )
