"""What the engine says to people: a progress bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys

from tqdm.auto import tqdm

from rlhf_studio.engine.process.screen import Screen
from rlhf_studio.runs.records import StepRecord


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

    def close(self) -> None:
        """Remove the bar: it must not write any more once standard output is the terminal's again."""
        if self._bar is not None:
            with self._screen.ignoring_a_lost_terminal():
                self._bar.close()

    def say(self, text: str) -> None:
        """One line of its own."""
        if self._has_log:
            print(text, flush=True)
        self._show(text)

    def _show(self, text: str) -> None:
        if self._screen.gone:
            return
        if self._bar is None:
            self._screen.show(text) if self._has_log else print(text, flush=True)
            return
        with self._screen.ignoring_a_lost_terminal():
            self._bar.write(text, file=self._screen.out)

    def phase(self, text: str) -> None:
        """What is being loaded. A text that is the same as the one before is not printed again."""
        if self._bar is not None and not self._screen.gone:
            with self._screen.ignoring_a_lost_terminal():
                self._bar.set_description(text)
        if text != self._phase:
            self._line(text)
        self._phase = text

    def _line(self, text: str) -> None:
        """What a bar shows in its own way; plain text for the log, and where there is no bar."""
        if self._bar is None:
            self.say(text)
        elif self._has_log:
            print(text, flush=True)

    def step(self, record: StepRecord) -> None:
        """The step's headline numbers."""
        metrics = record.metrics
        numbers = "not scored"  # an update that was left out, see the events
        if "objective/scores" in metrics:
            numbers = f"score {metrics['objective/scores']:.3f}  kl {metrics['objective/kl']:.2f}"
        if "gold/score" in metrics:
            numbers += f"  gold {metrics['gold/score']:.3f}"
        if self._bar is not None and not self._screen.gone:
            with self._screen.ignoring_a_lost_terminal():
                self._bar.set_description("training")
                self._bar.set_postfix_str(numbers)
                self._bar.update(record.step - self._bar.n)
        self._line(f"step {record.step}/{self._total}  {numbers}  {metrics['time/total']:.2f} s")
        for event in record.events:
            if event.kind == "skip":
                self.say(event.text)
