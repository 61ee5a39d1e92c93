"""The page that lies beside the script: how to start, how to follow, what became of each setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlhf_studio.handover.reward_file import RewardFile
from rlhf_studio.handover.translation import Remark, Translation
from rlhf_studio.language import N_, _, pgettext, together, told

INSTALL = {"verl": 'pip install "verl[vllm,fsdp]==0.9.1"', "openrlhf": 'pip install "openrlhf[vllm]==0.11.2"'}
NAMES = {"verl": "verl", "openrlhf": "OpenRLHF"}
FOLLOW = {
    "verl": N_("verl writes the responses of each step into `rollouts/`, one file a step. RLHF Studio follows them:"),
    "openrlhf": N_("OpenRLHF keeps no responses; `reward.py` writes them into `rollouts/`. RLHF Studio follows them:"),
}


def page(engine: str, to: Translation, notes: Iterable[str], rewards: RewardFile) -> str:
    """The page, in Markdown."""
    return (
        "\n".join([*_start(engine, to, rewards), *_follow(engine, rewards), *_differences(engine, to, notes), *_table(engine, to)]) + "\n"
    )


def _start(engine: str, to: Translation, rewards: RewardFile) -> Iterator[str]:
    yield "# " + _("{run}, for {engine}").format(run=_name(to), engine=NAMES[engine]) + "\n"
    yield _("Copy this folder to the machine with the GPUs, and start it there:") + "\n"
    packages = f"\npip install {' '.join(name.replace('_', '-') for name in rewards.needs)}" if rewards.needs else ""
    yield f"```bash\n{INSTALL[engine]}{packages}\nbash run.sh\n```\n"
    written = _("What you write behind `run.sh` is added to its settings and wins.")
    named = _("Models are named by a full path or a hub id: a path must be the same there.")
    yield together(written, named, _("The settings were checked with the versions named above.")) + "\n"
    yield "- " + _("`settings.yaml`: the run's own settings")
    if not rewards.files:
        yield "- " + _("`train.*`, `held_out.*`: prompts, as the run would read them")
        return
    yield "- " + _("`train.*`, `held_out.*`: prompts, as the run would read them and have them scored")
    yield "- " + _("`reward.py`: the rewards, as functions of one response")


def _follow(engine: str, rewards: RewardFile) -> Iterator[str]:
    yield "\n## " + _("Follow it") + "\n"
    if engine == "openrlhf" and not rewards.files:
        yield _("OpenRLHF keeps no responses, and a reward model writes none: there is nothing to follow.")
        return
    yield f"{_(FOLLOW[engine])}\n\n```bash\npython -m rlhf_studio open-log rollouts --follow --patience 120\n```\n"
    yield _("Following ends when nothing came for that many minutes, or with Ctrl-C: it cannot know when the training is over.")


def _differences(engine: str, to: Translation, notes: Iterable[str]) -> Iterator[str]:
    yield "\n## " + _("What has no counterpart") + "\n"
    yield from _remarks(to.missing, _("Every setting of this run has a counterpart in {engine}.").format(engine=NAMES[engine]))
    yield "\n## " + _("What is different") + "\n"
    yield from _remarks(to.changed, _("Nothing."))
    if listed := list(notes):
        yield "\n## " + _("The prompts and the rewards") + "\n"
        yield from (f"- {_cell(told(note))}" for note in listed)


def _remarks(remarks: Iterable[Remark], none: str) -> Iterator[str]:
    line = _("{name}: {sentence}")
    lines = ["- " + line.format(name=f"`{remark.setting}`", sentence=_cell(remark.sentence)) for remark in remarks]
    yield from lines or [none]


def _table(engine: str, to: Translation) -> Iterator[str]:
    here, value = pgettext("setting", "here"), pgettext("setting", "value")
    yield "\n## " + _("Setting by setting") + f"\n\n| {here} | {value} | {NAMES[engine]} | {value} |\n|---|---|---|---|"
    for row in to.handed:
        yield f"| `{row.setting}` | {_cell(row.value)} | `{row.option}` | {_cell(row.theirs)} |"


def _name(to: Translation) -> str:
    return _cell(to.config.name or to.config.recipe or _("A run"))


def _cell(text: str) -> str:
    """A text in one line, in which no mark of Markdown is read."""
    short = text if len(text) <= 200 else f"{text[:200]} ..."
    return "".join(f"\\{mark}" if mark in "|\\`*_[]<>#{}" else mark for mark in " ".join(short.split()))
