"""What several commands read from their options: the folder, the configuration, the permissions, the workspace."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rlhf_studio.config import Permissions, StageConfig, permissions_from_environment, permissions_from_flags
from rlhf_studio.config.io import ConfigError, Problem, config_from_file, mapping_from_file, names_given, parse_config, text_of, walk_fields
from rlhf_studio.inputs.relative_paths import with_runs_in_full
from rlhf_studio.language import _, labelled, together, told
from rlhf_studio.runs import paths
from rlhf_studio.visible import say

if TYPE_CHECKING:
    from rlhf_studio.config.recipes import Recipe
    from rlhf_studio.inputs.preflight import Preflight

Subcommands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What argparse gives for adding commands to a parser; it has no public name for it."""

Command = Callable[[argparse.Namespace], int]
"""A command: takes its options, returns the exit code."""


def add_folder_command(commands: Subcommands, name: str, help: str, run: Command) -> argparse.ArgumentParser:
    """Add a command whose one argument is a run folder."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=help, allow_abbrev=False)
    add_folder(command)
    command.set_defaults(run=run)
    return command


def add_folder(command: argparse.ArgumentParser) -> None:
    """Add the argument ``folder``."""
    command.add_argument("folder", type=Path, metavar="RUN", help=_("the run folder, or the id of a run in the workspace"))


def behind_config(words: Sequence[str]) -> list[Problem]:
    """A problem for each word that names a file of settings where a run folder may stand, or nothing."""
    files = [word for word in words if word.lower().endswith((".yaml", ".yml")) and not Path(word).is_dir()]
    where = _("is a settings file, which train, plan, try and sweep take behind --config")
    return [Problem("", f"{file} {where}: --config {shlex.quote(file)}") for file in files]


def folder_of_run(path: Path) -> Path:
    """The folder that a person names by its path or, where there is no such path, by the id of a run in the workspace.

    Raises :class:`ConfigError` for a plain name that is neither. Whether a path leads to a run is for the command to find out.
    """
    try:
        return paths.named_run(path, default_workspace())
    except LookupError as error:
        raise ConfigError([Problem("", f"{error}, where 'runs list' looks too; RLHF_STUDIO_WORKSPACE names another one")]) from error


def permissions_of(options: argparse.Namespace) -> Permissions:
    """What the flags allow, and what the process that started this one passed on. Raises :class:`ConfigError`."""
    try:
        given = permissions_from_flags(options.allow_custom_rewards, options.reward_url, options.reward_key, notify=options.notify_url)
        return permissions_from_environment(os.environ).joined(given)
    except ValueError as error:
        raise ConfigError([Problem("", str(error))]) from error


def configuration_of(options: argparse.Namespace) -> StageConfig:
    """The recipe or file that the options name, with the settings that they change; runs that are named by their id are named in full.

    The runs lie in the workspace that the command names, or in the usual one. Raises :class:`ConfigError`.
    """
    with recipe_named(options):
        return with_runs_in_full(_configuration_of(options), workspace_of(options) / paths.RUNS)


@contextmanager
def recipe_named(options: argparse.Namespace) -> Iterator[None]:
    """Says of problems of settings that nobody wrote that the recipe has them."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(_with_recipe(error.problems, options)) from error


def _with_recipe(problems: Sequence[Problem], options: argparse.Namespace) -> list[Problem]:
    from rlhf_studio.config.recipes import load_recipe
    from rlhf_studio.inputs.settings_file import recipe_under

    try:
        given = mapping_from_file(options.config) if options.config else {}
        recipe = load_recipe(options.recipe) if options.recipe else recipe_under(given)
    except ConfigError:
        return list(problems)
    if recipe is None:
        return list(problems)
    defaults = {name: info.get_default(call_default_factory=True) for name, info in walk_fields(type(recipe.config))}
    wrote = {*names_given(given), *options.overrides}
    of_recipe = {name for name in defaults.keys() - wrote if attrgetter(name)(recipe.config) != defaults[name]}
    note = _(" (this setting comes from the recipe {name})").format(name=recipe.name)
    return [Problem(each.field, each.message + note * (each.field in of_recipe)) for each in problems]


def _configuration_of(options: argparse.Namespace) -> StageConfig:
    from rlhf_studio.config.recipes import load_recipe

    if options.recipe and options.config:
        raise ConfigError([Problem("", "give --recipe or --config, not both")])
    if options.recipe:
        return _from_recipe(load_recipe(options.recipe), {}, options.overrides)
    if options.config:
        return _from_file(options.config, options.overrides)
    if options.overrides:
        given = " ".join(f"--{name} {shlex.quote(value)}" for name, value in list(options.overrides.items())[:3])
        message = _("settings change a recipe or a file, so name one too, for example: {command} --recipe world {given}").format(
            command=options.command, given=given
        )
        raise ConfigError([Problem("", message)])
    folder = _(", or a prepared run folder") if options.command == "train" else ""
    raise ConfigError([Problem("", f"give --recipe NAME or --config FILE{folder}")])


def _from_file(path: Path, overrides: Mapping[str, str]) -> StageConfig:
    """The settings of a file, or of the recipe that it names with what it gives."""
    from rlhf_studio.inputs.settings_file import recipe_under

    given = mapping_from_file(path)
    recipe = recipe_under(given)
    return config_from_file(path, overrides) if recipe is None else _from_recipe(recipe, given, overrides)


def _from_recipe(recipe: Recipe, given: Mapping[str, Any], overrides: Mapping[str, str]) -> StageConfig:
    """The recipe with what a file and the command line give. Of a recipe for a model of one's own, the other settings are fitted."""
    from rlhf_studio.inputs.settings_file import over_recipe

    settings, chosen = over_recipe(recipe, given, overrides)
    if not recipe.asks:
        return parse_config(settings)
    from rlhf_studio.inputs.fitted import own_config

    config, fitted = own_config(recipe, settings, chosen)
    for name, value in fitted.items():
        guess = _(", a guess") if value.guess else ""
        say(
            "rlhf-studio: " + labelled(f"{name} {text_of(value.value)}", f"{told(value.why)}{guess}"),
            sys.stderr,
        )
    return config


def print_notes(config: StageConfig, preflight: Preflight) -> None:
    """Say on stderr what is unusual about a run that is going to start, and what the doctor thinks of its settings."""
    from rlhf_studio.analysis.doctor import examine_settings
    from rlhf_studio.analysis.doctor.wording import level_word

    for note in preflight.notes:
        say(_("rlhf-studio: note: {note}").format(note=told(note)), sys.stderr)
    head = _("{level}: {title}.")
    for finding in examine_settings(config, preflight.known):
        say(
            "rlhf-studio: " + together(head.format(level=level_word(finding.level), title=finding.title), finding.cause, finding.advice),
            sys.stderr,
        )


def workspace_of(options: argparse.Namespace) -> Path:
    """The workspace that a command was given with ``--workspace``, else the usual one."""
    return Path(getattr(options, "workspace", None) or default_workspace())


def default_workspace() -> Path:
    """Where runs are kept unless told otherwise."""
    return Path(os.environ.get("RLHF_STUDIO_WORKSPACE", "workspace"))


def say_run(label: str, run_dir: Path) -> None:
    """Say where a run lies and, where the page would not show it, what to do about that."""
    say(labelled(label, run_dir))
    if hint := paths.where_shown(run_dir, default_workspace()):
        say(told(hint))
