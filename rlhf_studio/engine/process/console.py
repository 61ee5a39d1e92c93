"""What the engine says to people: a progress bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from tqdm.auto import tqdm

from rlhf_studio.engine.process.screen import Screen
from rlhf_studio.language import S_
from rlhf_studio.runs.records import StepRecord
from rlhf_studio.visible import say, visible


class Console:
    """Progress for one run of ``total`` steps.

    ``screen`` is where a person watches while standard output is the log; without one, standard output is for both.
    """

    def __init__(self, total: int, screen: Screen | None = None):
        self._total, self._phase = total, ""
        self._screen = screen or Screen(sys.stdout, sys.stderr)
        self._has_log = screen is not None
        terminal = self._screen.err
        self._bar = tqdm(total=total, unit="step", dynamic_ncols=True, file=terminal) if terminal.isatty() else None

    def plan(self, total: int) -> None:
        """How many steps the run has, where that was not known before its data was read."""
        self._total = total
        if self._bar is not None:
            self._bar.total = total

    def close(self) -> None:
        """Remove the bar: it must not write any more once standard output is the terminal's again."""
        if self._bar is not None:
            with self._screen.ignoring_a_lost_terminal():
                self._bar.close()

    def say(self, text: str) -> None:
        """One line of its own."""
        if self._has_log:
            say(text)
        self._show(text)

    def _show(self, text: str) -> None:
        if self._screen.gone:
            return
        if self._bar is None:
            self._screen.show(text) if self._has_log else say(text)
            return
        with self._screen.ignoring_a_lost_terminal():
            self._bar.write(visible(self._screen.told(text)), file=self._screen.out)

    def phase(self, text: str) -> None:
        """What is being loaded. A text that is the same as the one before is not printed again."""
        if self._bar is not None and not self._screen.gone:
            with self._screen.ignoring_a_lost_terminal():
                self._bar.set_description(visible(self._screen.told(text), lines=False))
        if text != self._phase:
            self._line(text)
        self._phase = text

    def inside_step(self, doing: str) -> None:
        """What a long step is doing: on a terminal only, in the bar's own line."""
        if self._bar is not None and not self._screen.gone:
            with self._screen.ignoring_a_lost_terminal():
                self._bar.set_description(visible(self._screen.told(doing), lines=False))

    def _line(self, text: str) -> None:
        """What a bar shows in its own way; plain text for the log, and where there is no bar."""
        if self._bar is None:
            self.say(text)
        elif self._has_log:
            say(text)

    def step(self, record: StepRecord) -> None:
        """The step's headline numbers."""
        numbers = headline(record.metrics)
        if self._bar is not None and not self._screen.gone:
            with self._screen.ignoring_a_lost_terminal():
                self._bar.set_description("training")
                self._bar.set_postfix_str(numbers)
                self._bar.update(record.step - self._bar.n)
        seconds = record.metrics["time/total"]
        self._line(S_(f"step {record.step}/{self._total}  {numbers}  {seconds:.2f} s"))
        for event in record.events:
            if event.kind == "skip":
                self.say(event.text)


HEADLINES = (
    ("score", "objective/scores", 3),
    ("kl", "objective/kl", 2),
    ("gold", "gold/score", 3),
    ("loss", "sft/loss", 3),
    ("loss", "reward_model/loss", 3),
    ("loss", "dpo/loss", 3),
    ("accuracy", "reward_model/accuracy", 2),
    ("accuracy", "dpo/accuracy", 2),
    ("held-out loss", "sft/eval_loss", 3),
    ("held-out accuracy", "reward_model/eval_accuracy", 3),
    ("held-out accuracy", "dpo/eval_accuracy", 3),
)
"""What a step's line says of it, of any stage: (word, metric, digits)."""


def headline(metrics: Mapping[str, float]) -> str:
    """A step's headline numbers; of an update that was left out there are none, and its event says why."""
    numbers = "  ".join(f"{word} {metrics[name]:.{digits}f}" for word, name, digits in HEADLINES if name in metrics)
    return numbers or (S_("answered") if any(name.startswith("evaluation/") for name in metrics) else S_("not scored"))
