"""The model card, README.md: what a stranger on the hub must know, filled from the run. Texts of models and people are made harmless.

The YAML header follows https://huggingface.co/docs/hub/model-cards.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlhf_studio import __version__
from rlhf_studio.analysis.doctor.wording import level_word
from rlhf_studio.analysis.logs.shareable import shareable
from rlhf_studio.config import Component, GenerationConfig
from rlhf_studio.config.bundled import BUNDLED
from rlhf_studio.inputs.models.files import HUB_ID
from rlhf_studio.inputs.models.reward_models import RewardFile
from rlhf_studio.inputs.trained import resolve
from rlhf_studio.inputs.trained_text import TrainedText
from rlhf_studio.jobs.export.curves import Curve, curves_of
from rlhf_studio.jobs.export.picture_fonts import picture_language
from rlhf_studio.jobs.export.png import write_curves
from rlhf_studio.jobs.export.stages import telling_of
from rlhf_studio.jobs.export.story import Story, answers_of, sentence_of
from rlhf_studio.jobs.export.text import markdown, number, readable
from rlhf_studio.jobs.export.weights import BASE, Base, Chosen
from rlhf_studio.language import _, bracketed, labelled, listing, pgettext, speaking, told
from rlhf_studio.runs.lab.fault import EVENT as FAULT
from rlhf_studio.runs.records import WatchRecord

CARD, PICTURE = "README.md", "curves.png"
MOST_README_BYTES = 1_000_000
_LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,60}")


@dataclass(frozen=True)
class Exported:
    """What a card describes.

    Attributes:
        adapter: whether the folder holds an adapter and not a whole model.
        base: the adapter's base, also when the adapter was merged into it; None for a policy whose weights were all trained.
        dtype: the number format of a merged model; empty otherwise.
        title: the name on the card, also of the folder.
        generation: how the run sampled at this step; None for a model that judges.
        judge: of a model that judges, what ``reward_model.json`` says of its head and texts.
    """

    chosen: Chosen
    adapter: bool
    base: Base | None
    dtype: str
    title: str
    generation: GenerationConfig | None
    judge: RewardFile = RewardFile()


def write_card(story: Story, exported: Exported, watched: Sequence[tuple[int, WatchRecord]], folder: Path) -> None:
    """Write the card and its picture into the folder. Raises OSError."""
    curves = _drawn(story)
    if curves:
        with speaking(picture_language()):
            write_curves(_drawn(story), folder / PICTURE)
    (folder / CARD).write_text(card(story, exported, watched, curves), encoding="utf-8")


def _drawn(story: Story) -> list[Curve]:
    return [curve for curve in curves_of(story.series, story.origin.unit) if curve.name in telling_of(story.config).drawn]


def card(story: Story, exported: Exported, watched: Sequence[tuple[int, WatchRecord]], curves: list[Curve]) -> str:
    """The whole file as text."""
    parts = [
        f"---\n{yaml.safe_dump(metadata(story, exported), sort_keys=False, allow_unicode=True)}---",
        f"# {markdown(exported.title, 200)}",
        _what(story, exported),
        _("## How to load it\n\n```python\n{exported}\n```").format(exported=snippet(exported, getattr(story.config, "data", None))),
        _results(story, curves),
        _answers(watched, exported.chosen.step),
        _doctor(story),
        _training(story),
        _limits(story, exported),
        _("## Citation\n\nThe method:\n\n```bibtex\n{citation}\n```").format(citation=telling_of(story.config).citation),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def metadata(story: Story, exported: Exported) -> dict[str, Any]:
    """The YAML header. Only what is known to be true on the hub: no path, no name that only this machine knows."""
    model, data = story.config.learns, _source(story)
    task = "text-generation" if exported.generation else "text-classification"
    header: dict[str, Any] = {"library_name": "peft" if exported.adapter else "transformers", "pipeline_tag": task}
    base = exported.base.name if exported.base and exported.base.on_hub else model if _is_hub_id(model) else ""
    if base:
        header |= {"base_model": base, "base_model_relation": "adapter" if exported.adapter else "finetune"}
    if licence := licence_of(story, exported):
        header["license"] = licence
    if _is_hub_id(data) and "." not in data.rsplit("/", 1)[-1]:
        header["datasets"] = [data]
    return header | {"tags": [*telling_of(story.config).tags, "rlhf-studio"]}


def _is_hub_id(name: str) -> bool:
    return name not in BUNDLED and "/" in name and HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def licence_of(story: Story, exported: Exported) -> str:
    """The base's licence as its own card says, where that card lies on this machine; empty where it is not known."""
    name = exported.base.location if exported.base else resolve(story.config.learns)
    path = Path(name) / CARD if Path(name).is_dir() else _cached_card(name)
    if path is None or not path.is_file() or path.stat().st_size > MOST_README_BYTES:
        return ""
    head = re.match(r"---\n(.*?)\n---", path.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
    line = re.search(r"^license:[ \t]*([^\s#]+)", head[1], re.MULTILINE) if head else None
    licence = line[1].strip("\"'") if line else ""
    return licence if _LICENCE.fullmatch(licence) else ""


def _cached_card(name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    if not HUB_ID.fullmatch(name):
        return None
    path = try_to_load_from_cache(name, CARD)
    return Path(path) if isinstance(path, str) else None


def _what(story: Story, exported: Exported) -> str:
    config, chosen = story.config, exported.chosen
    start = told(exported.base.name) if exported.base else shareable(config.learns)
    name = _("A policy") if exported.generation else _("A reward model")
    kind = (
        _("A LoRA adapter")
        if exported.adapter
        else _("A LoRA adapter merged into its base ({dtype})").format(dtype=exported.dtype)
        if exported.base
        else name
    )
    carried = exported.adapter and exported.base is not None and exported.base.included
    source = _source(story)
    noun = _("Prompts") if config.stage == "ppo" else _("Demonstrations") if config.stage == "sft" else _("Preferences")
    rewards = getattr(config, "reward", None)
    lines = [
        _("{kind} trained {trained} by RLHF Studio {program}.").format(
            kind=kind, trained=_(telling_of(config).trained), program=markdown(story.program)
        ),
        "",
        _("- **Starting policy:** {start}").format(start=markdown(start, 200))
        + (_(", in the folder `{base}/`").format(base=BASE) if carried else ""),
        _("- **{noun}:** {text}").format(noun=noun, text=markdown(shareable(source), 200))
        + (_(", split {story}").format(story=markdown(_split(story), 100)) if _is_hub_id(source) else ""),
        *([_("- **Reward:** {join}").format(join=listing(_reward(item) for item in rewards.components))] if rewards else []),
        _("- **Checkpoint:** step {step} of {total_steps}, {why}").format(
            step=chosen.step, total_steps=story.status.total_steps, why=markdown(told(chosen.why), 200)
        ),
        _("- **Run:** {name}").format(name=markdown(story.name, 200))
        + (_(", recipe {recipe}").format(recipe=markdown(story.status.recipe, 100)) if story.status.recipe else ""),
    ]
    licence = licence_of(story, exported)
    terms = (
        _("its card says {licence}").format(licence=markdown(licence))
        if licence
        else _("not known to the program that wrote this card: look at the base's own page")
    )
    lines.append(
        _("- **Licence of the base:** {terms}. It holds for this model too; so may terms of the data and of the reward models.").format(
            terms=terms
        )
    )
    return "\n".join(lines)


def _source(story: Story) -> str:
    """What the run learned from, as its settings name it."""
    data: Any = getattr(story.config, "data", None)
    return str(getattr(data, "prompts", "") or getattr(data, "source", ""))


def _split(story: Story) -> str:
    return str(getattr(getattr(story.config, "data", None), "split", ""))


def _reward(component: Component) -> str:
    """A reward component in a few words: its kind, and the model or the name that it has."""
    own = shareable(str(getattr(component, "model", "") or component.name))
    return markdown(_(component.title) + bracketed(own) if own else _(component.title), 200)


def snippet(exported: Exported, data: Any) -> str:
    """Python code that loads the folder and answers a prompt, in the form that the run's settings ``data`` give to prompts."""
    name = repr(exported.title)
    if exported.generation is None:
        return _scoring(name, exported.judge)
    if not exported.adapter:
        lines = ["from transformers import AutoModelForCausalLM, AutoTokenizer", "", f"folder = {name}  # or its name on the hub"]
        lines += ["model = AutoModelForCausalLM.from_pretrained(folder)"]
    else:
        assert exported.base is not None
        lines = ["from peft import PeftModel", "from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig", ""]
        line = f"folder = {name}  # or its name on the hub"
        if exported.base.included:  # transformers would take the adapter's settings for the base's when given the name and a subfolder
            on_hub = "/" in exported.title
            lines = ["from huggingface_hub import snapshot_download", *lines] if on_hub else lines
            lines += [f"folder = snapshot_download({name})" if on_hub else f"folder = {name}  # the folder that holds this card"]
            lines += [f'base = AutoModelForCausalLM.from_pretrained(f"{{folder}}/{BASE}")']
        else:
            revision = f", revision={exported.base.revision!r}" if exported.base.revision else ""
            lines += [line, f"base = AutoModelForCausalLM.from_pretrained({readable(exported.base.name)!r}{revision})"]
        lines += ["model = PeftModel.from_pretrained(base, folder)", "model.generation_config = GenerationConfig.from_pretrained(folder)"]
    lines += ["tokenizer = AutoTokenizer.from_pretrained(folder)"]
    if getattr(data, "chat_template", False):
        lines += ['chat = [{"role": "user", "content": "Your prompt"}]']
        lines += ['inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")']
    else:
        lines += ['inputs = tokenizer("Your prompt", return_tensors="pt")']
    return "\n".join([*lines, "print(tokenizer.decode(model.generate(**inputs)[0]))"])


def _scoring(name: str, judge: RewardFile) -> str:
    """Python code that loads a reward model and scores one text, in the form of the texts that it was trained on."""
    trained = judge.trained_on or TrainedText()
    written = "tokenizer.eos_token" if trained.end_id is None else f"tokenizer.decode([{trained.end_id}])"
    end = f" + {written}" if judge.append_eos else ""
    folder = f"folder = {name}  # or its name on the hub"
    if judge.head == "linear":
        lines = ["from transformers import AutoModelForSequenceClassification, AutoTokenizer", "", folder]
        lines += ["model = AutoModelForSequenceClassification.from_pretrained(folder).eval()"]
        lines += ["tokenizer = AutoTokenizer.from_pretrained(folder)"]
    else:  # which transformers' own classifiers do not have
        lines = ["import torch", "from rlhf_studio.engine.models.load_model import load_reward_model", "", folder]
        lines += ['loaded = load_reward_model(folder, "main", "", torch.float32, lambda text, done: None, "reward")']
        lines += ["model, tokenizer = loaded.model, loaded.tokenizer"]
    if trained.chat_template:
        lines += ['chat = [{"role": "user", "content": "Your prompt"}, {"role": "assistant", "content": "The response"}]']
        lines += ["text = tokenizer.apply_chat_template(chat, tokenize=False)"]
        lines += [f'inputs = tokenizer(text{end}, add_special_tokens=False, return_tensors="pt")']
    else:
        lines += [f'inputs = tokenizer("Your prompt, and the response behind it"{end}, return_tensors="pt")']
    return "\n".join([*lines, "print(model(**inputs).logits[0, 0].item())"])


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _results(story: Story, curves: list[Curve]) -> str:
    parts = [_("## Results")]
    if story.summary:
        rows = [[title, number(first), number(last), unit] for title, unit, _, first, last in story.summary]
        parts += [story.compared, _table(["", _("First"), _("Last"), _("Unit")], rows)]
    if curves:
        titles = _(", ").join(curve.title.lower() if curve.title != "KL" else "KL" for curve in curves)
        parts.append(_("![Curves over the steps of the run: {titles}]({picture})").format(titles=titles, picture=PICTURE))
    return "\n\n".join(parts) if len(parts) > 1 else ""


def _answers(watched: Sequence[tuple[int, WatchRecord]], step: int) -> str:
    answers = answers_of(list(watched), step)
    if not answers:
        return ""
    rows = [
        [markdown(pair.prompt, 300), markdown(pair.before[1].response), number(pair.before[1].score), markdown(pair.after[1].response),
         number(pair.after[1].score)] for pair in answers[:12]
    ]  # fmt: skip
    first, last = answers[0].before[0], max(pair.after[0] for pair in answers)
    before = _("the starting policy") if first == 0 else _("step {first}").format(first=first)
    head = [_("Prompt"), _("Before"), _("Score"), _("After"), _("Score")]
    return _("## Answers before and after\n\nThe same prompts, answered by {before} and at step {last}.\n\n{head}").format(
        before=before, last=last, head=_table(head, rows)
    )


def _doctor(story: Story) -> str:
    verdict, findings = story.diagnosis.verdict, story.diagnosis.findings
    lines = [
        _("## Verdict"),
        _("**{kind}** (the whole run, up to step {step}): {verdict}").format(
            kind=markdown(_(verdict.kind)), step=story.diagnosis.step, verdict=markdown(sentence_of(verdict), 1000)
        ),
    ]
    lines += [markdown(verdict.reason, 1000)] if verdict.reason else []
    points = [
        markdown(note, 500)
        for note in [*verdict.notes, *(_("Not checked. {sentence}").format(sentence=group.sentence) for group in verdict.not_checked)]
    ]
    points += [labelled(level_word(finding.level), markdown(finding.title, 500) + bracketed(finding.when)) for finding in findings]
    return "\n\n".join([*lines, *(["\n".join(f"- {point}" for point in points)] if points else [])])


def _training(story: Story) -> str:
    rows = [
        [f"`{setting.name}`", markdown(_(setting.title)), markdown(setting.value, 400)]
        for group in story.settings.values()
        for setting in group
    ]
    if not rows:
        return ""
    fold = _("<details>\n<summary>All settings of the run</summary>\n\n{}\n\n</details>")
    return _("## Training\n\n") + fold.format(_table([_("Setting"), "", pgettext("of a setting", "Value")], rows))


def _limits(story: Story, exported: Exported) -> str:
    points = [
        *dict.fromkeys(markdown(told(event.text), 500) for event in story.events if event.kind == FAULT),
        _(telling_of(story.config).limit),
        _("It was not tested beyond what stands above: neither for safety nor on other kinds of prompts."),
        _("It keeps the limits and the biases of the model that it started from."),
    ]
    if exported.base and story.config.model.quantization != "none":
        bits = story.config.model.quantization.removesuffix("bit")
        points.append(
            _("It was trained on a base held in {bits} bits; on the base in full precision its answers differ a little.").format(bits=bits)
        )
    if exported.base and not exported.adapter:
        points.append(
            _("Adding the adapter into the base was computed in float32; the result was rounded to {dtype}.").format(dtype=exported.dtype)
        )
    generation = exported.generation
    if generation is not None:
        points.append(
            _(
                "`generation_config.json` samples as the run did at this step: temperature {temperature:g}, top-k {top_k}, "
                "top-p {top_p:g}, at most {most} tokens."
            ).format(
                temperature=generation.temperature,
                top_k=generation.top_k or _("off"),
                top_p=generation.top_p,
                most=generation.response_length,
            )
        )
    written = _("This card was written by RLHF Studio {version} from the record of the run.").format(version=__version__)
    return _("## Limits\n\n") + "\n".join(f"- {point}" for point in points) + f"\n\n{written}"
