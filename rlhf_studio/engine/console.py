"""What the engine prints: a progress bar on a terminal, plain lines in a log."""

from __future__ import annotations

import sys

from tqdm.auto import tqdm

from rlhf_studio.runs.records import StepRecord


class Console:
    """Progress for one run of ``total`` steps."""

    def __init__(self, total: int):
        self._total = total
        self._phase = ""
        self._bar = tqdm(total=total, unit="step", dynamic_ncols=True) if sys.stderr.isatty() else None

    def say(self, text: str) -> None:
        """One line of its own."""
        if self._bar is not None:
            self._bar.write(text)
        else:
            print(text, flush=True)

    def phase(self, text: str) -> None:
        """What is being loaded; the same again is not said twice in a row."""
        if self._bar is not None:
            self._bar.set_description(text)
        elif text != self._phase:
            print(text, flush=True)
        self._phase = text

    def step(self, record: StepRecord) -> None:
        """The step's headline numbers."""
        metrics = record.metrics
        numbers = "not scored"  # an update that was left out, see the events
        if "objective/scores" in metrics:
            numbers = f"score {metrics['objective/scores']:.3f}  kl {metrics['objective/kl']:.2f}"
        if "gold/score" in metrics:
            numbers += f"  gold {metrics['gold/score']:.3f}"
        if self._bar is not None:
            self._bar.set_description("training")
            self._bar.set_postfix_str(numbers)
            self._bar.update(record.step - self._bar.n)
        else:
            print(f"step {record.step}/{self._total}  {numbers}  {metrics['time/total']:.2f} s", flush=True)
        for event in record.events:
            if event.kind == "skip":
                self.say(event.text)
