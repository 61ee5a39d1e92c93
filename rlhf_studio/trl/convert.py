"""From what a person wrote for TRL to our YAML, with lines that say what needs a decision, what differs and what was left out."""

from __future__ import annotations

from dataclasses import dataclass

from rlhf_studio.config.io import ConfigError, Problem, mapping_to_yaml, parse_config
from rlhf_studio.language import S_, _, told
from rlhf_studio.trl.arguments import Arguments
from rlhf_studio.trl.draft import Draft
from rlhf_studio.trl.from_classic import convert_classic
from rlhf_studio.trl.from_later import convert_experimental
from rlhf_studio.trl.read import read_arguments
from rlhf_studio.trl.table import SECTIONS, groups, options


@dataclass(frozen=True)
class Conversion:
    """A conversion: the YAML with its comments, and the same comments as lines."""

    yaml: str
    lines: list[str]


def convert(text: str, name: str, release: str = "", processes: int = 0) -> Conversion:
    """The settings in ``text``, which stands in a file called ``name``, as ours.

    ``release`` ("0.11" or "1.12"; empty: found out) and ``processes`` (0: found out) are for what the text does not say.
    Raises :class:`ConfigError` when there is nothing to convert, nothing shows the release, or a value makes no sense.
    """
    arguments = read_arguments(text, name)
    draft = Draft(arguments, release or release_of(arguments), processes or arguments.processes or 1)
    (convert_classic if draft.release == "0.11" else convert_experimental)(draft)
    draft.finish()
    parse_config(draft.nested(with_empty=False))
    lines = [_("decide: {line}").format(line=line) for line in draft.decide]
    lines += [_("differs: {line}").format(line=told(line)) for line in draft.differs]
    lines += [_("left out: {line}").format(line=line) for line in draft.left_out]
    lines = [_one_line(line) for line in lines]
    begin = _("From TRL {release}, its defaults written out. docs/from-trl.md has what is computed otherwise.")
    head = [begin.format(release=draft.release), *lines]
    return Conversion("".join(f"# {line}\n" for line in head) + mapping_to_yaml(draft.nested(with_empty=True)), lines)


def _one_line(text: str) -> str:
    """Fit for a comment: names and values come from the file."""
    return "".join(sign if sign.isprintable() else "?" for sign in " ".join(text.split()))


def release_of(arguments: Arguments) -> str:
    """The release that the arguments are for, "0.11" or "1.12": the one that alone has some of them.

    Raises :class:`ConfigError` when they do not tell.
    """
    old = {part for section in SECTIONS if section.only_in("0.11") for option in options(section.name) for part in option.names}
    new = {option.name for section in SECTIONS if section.release == "1.12" for option in options(section.name)}
    new |= {name for group in groups() for name in group.names}
    sizes = {"batch_size", "mini_batch_size"}  # TRL 1.12 fills these in itself
    adapters = {name for name in new if name.startswith("lora_")} | {"use_peft", "dataset_name"}  # in scripts for either
    only_old, only_new = (sorted(names & set(arguments.values)) for names in ((old - new) | sizes, new - old - adapters))
    if bool(only_old) == bool(only_new):
        same = S_("these options are the same in 0.11 and 1.12")
        why = S_(f"{only_old[0]} is of TRL 0.11 and {only_new[0]} of 1.12") if only_old else same
        raise ConfigError([Problem("", f"cannot tell which TRL this is for: {why}; say --trl 0.11 or --trl 1.12")])
    return "0.11" if only_old else "1.12"
