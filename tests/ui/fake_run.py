"""A synthetic run that looks like a real one: for developing and testing the Live page without the engine.

Written through the store's own writer, so that the page reads it like any other run. The token numbers obey the same equations
as the engine's (rewards, TD errors, advantages, returns), computed here in plain Python and independently of it.

Run it by hand:  python tests/ui/fake_run.py WORKSPACE --steps 60 --seconds 1 [--hostile]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path

import numpy as np

from rlhf_studio.config import EngineConfig, PPOConfig, RewardConfig, RunConfig
from rlhf_studio.runs import paths
from rlhf_studio.runs.create import create_run
from rlhf_studio.runs.liveness import EngineLock
from rlhf_studio.runs.records import EventRecord, Origin, RolloutRecord, StepRecord, TokenRecord, WatchRecord
from rlhf_studio.runs.writer import RunWriter

HOSTILE = [
    '<img src=x onerror="window.__pwned=1">',
    "${window.__pwned=2}",
    "{{constructor.constructor('window.__pwned=3')()}}",
    "<script>window.__pwned=4</script>",
    "\ud800",
    "\x00",
    "\u202eabc",
    "<b>bold</b>",
    "`${alert(1)}`\\u{zz}",
    "a" + "\u0301" * 300,
    "w" * 10_000,
    "\n",
    "\t",
    "&lt;i&gt;",
    "\ufffd",
]
PROMPTS = [
    "The movie was",
    "I watched this film and",
    "Honestly, the plot",
    "The acting felt",
    "My friends said it",
    "This director always",
    "The ending",
]
GOOD = ["moving", "warm", "honest", "lovely", "funny", "quietly", "brilliant", "rich", "gentle", "sharp", "careful", "tender"]
BAD = ["dull", "slow", "empty", "loud", "confused", "lazy", "flat", "cold", "tired", "messy"]
FILLER = ["and", "the", "story", "with", "a", "cast", "that", "it", "scenes", "film", "of", "in", "but", "music", ",", "still"]
GAMMA, LAM, BETA = 0.99, 0.95, 0.1037251


def config(steps: int = 60, **ppo: object) -> RunConfig:
    """Settings of the fake run: adaptive KL with target 6, gold scorer on."""
    settings = {"steps": steps, "kl_controller": "adaptive", "kl_target": 6.0, **ppo}
    return RunConfig(
        name="world, seed 0",
        recipe="world",
        ppo=PPOConfig(**settings),
        reward=RewardConfig(gold="world"),
        engine=EngineConfig(record_samples=12),
    )


class FakeRun:
    """One run under ``workspace``. Each method does what the engine would do at that moment."""

    def __init__(
        self, workspace: Path, *, steps: int = 60, hostile: bool = False, seed: int = 0, name: str = "", read_from: str = "", **ppo: object
    ):
        self.random = random.Random(seed)
        self.hostile = hostile
        self.total = steps
        self.step_number = 0
        self.config = config(steps, **ppo)
        self.run_id = paths.new_run_id()
        self.folder = paths.run_dir(Path(workspace), self.run_id)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        create_run(
            self.folder,
            self.config,
            origin=Origin(imported=read_from, settings_known=not read_from),
            name=name or ('<b>run</b> <a href="javascript:window.__pwned=5">x</a>' if hostile else "world, seed 0"),
        )
        self.lock = EngineLock(self.folder)
        self.lock.acquire()
        self.writer = RunWriter(self.folder)
        (self.folder / "engine.log").write_text("engine started\nloading models\nhf_" + "A" * 30 + "\n", encoding="utf-8")

    # --- what the engine does -------------------------------------------------------------------------------------------

    def load(self, fraction: float | None = None, phase: str = "Loading the reward model (3 of 4)") -> None:
        """Be at loading models."""
        self.writer.set_state("loading", phase, fraction, device="cpu")

    def run(self) -> None:
        """Begin: the starting policy's answers, then the first step under way."""
        self.writer.set_state("running", "Sampling 64 responses")
        self.writer.event(EventRecord("info", "phase", "All models are loaded: policy, reference, value head, reward model."))
        self.writer.watched(0, self._watched(0))

    def step(self, count: int = 1) -> None:
        """Commit the next steps."""
        for _ in range(count):
            self.step_number += 1
            step = self.step_number
            events = []
            if step % 20 == 0:
                self.checkpoint(step)
                events.append(EventRecord("info", "checkpoint", f"Checkpoint {step} is complete."))
            if step == 7:
                events.append(
                    EventRecord("warning", "health", "Explained variance has been below 0 for 5 steps: the value head lags behind.")
                )
            if step == 12:
                events.append(EventRecord("info", "setting", "KL coefficient changed from 0.1 to 0.08."))
            watched = self._watched(step) if step % self.config.engine.watch_every == 0 else []
            rollouts = [self._rollout(step, sample) for sample in range(self.config.engine.record_samples)]
            self.writer.commit_step(StepRecord(step, self._metrics(step), rollouts, watched, events))

    @staticmethod
    def _bare(step: int) -> StepRecord:
        """A step with two numbers and no samples, for long histories."""
        return StepRecord(step, {"objective/scores": math.sin(step / 20), "episode": 64.0 * step}, [])

    def checkpoint(self, step: int) -> None:
        """Leave a complete checkpoint folder, as far as readers look."""
        folder = paths.checkpoint_dir(self.folder, step)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(b"\0" * 1_300_000)
        (folder / paths.MANIFEST).write_text(json.dumps({"step": step}), encoding="utf-8")

    def finish(self) -> None:
        """End well."""
        self.writer.set_state("finished", "")
        self.close()

    def fail(
        self, cause: str = "The reward model gave NaN for episode 17 of step 24. Lower the learning rate, or set score clip, then resume."
    ) -> None:
        """End with a cause."""
        with (self.folder / "engine.log").open("a", encoding="utf-8") as log:
            log.write("Traceback (most recent call last):\n  ...\nNonFinite: scores[17] is nan\n")
        self.writer.event(EventRecord("error", "failure", cause))
        self.writer.set_state("failed", "", cause=cause)
        self.close()

    def die(self) -> None:
        """Be killed: nothing more is written, and the lock becomes free."""
        self.close()

    def close(self) -> None:
        """Let go of the folder."""
        self.writer.close()
        self.lock.release()

    # --- what it writes -------------------------------------------------------------------------------------------------

    def _progress(self, step: int) -> float:
        return 1 - math.exp(-3 * step / self.total)

    def _metrics(self, step: int) -> dict[str, float]:
        done, noise = self._progress(step), self.random.gauss
        gold = 0.42 + 0.5 * done - 0.25 * max(0.0, done - 0.75)
        kl = 6.4 * done + noise(0, 0.25)
        spent = {"rollout": 0.62, "score": 0.11, "reference": 0.09, "update": 0.41, "record": 0.02}
        times = {f"time/{key}": value * (1 + abs(noise(0, 0.1))) for key, value in spent.items()}
        return {
            "objective/scores": -0.4 + 2.3 * done + noise(0, 0.12),
            "objective/scores_std": 0.9,
            "objective/scores_min": -2.0,
            "objective/scores_max": 2.5,
            "objective/kl": max(0.0, kl),
            "objective/kl_k3": max(0.0, kl * 0.97 + noise(0, 0.1)),
            "objective/entropy": 40 - 9 * done,
            "objective/non_score_reward": -0.1 * kl,
            "objective/rlhf_reward": -0.4 + 2.3 * done - 0.1 * kl,
            "objective/kl_coef": 0.1 * (1 - 0.3 * done),
            "policy/approxkl_avg": 0.008 + abs(noise(0, 0.002)),
            "policy/clipfrac_avg": min(1.0, abs(0.09 + noise(0, 0.03)) + (0.2 if step == 9 else 0)),
            "policy/entropy_avg": 2.1 - 0.7 * done + noise(0, 0.03),
            "loss/policy_avg": -0.012 + noise(0, 0.006),
            "loss/value_avg": 0.9 * math.exp(-step / 8) + 0.12 + abs(noise(0, 0.02)),
            "val/ratio": 1 + noise(0, 0.01),
            "val/ratio_var": 0.01,
            "val/clipfrac_avg": 0.05,
            "val/explained_variance": 0.75 - 1.6 * math.exp(-step / 5) + noise(0, 0.04),
            "val/num_eos_tokens": 60.0,
            "val/returns_mean": done,
            "val/values_mean": done,
            "tokens/response_length": 24 + 4 * done + noise(0, 0.6),
            "tokens/cut_off": abs(noise(0.06, 0.02)),
            "optim/grad_norm": 0.8 + abs(noise(0, 0.2)),
            "lr": 1e-4 * (1 - step / (self.total + 1)),
            "episode": 64.0 * step,
            **times,
            "time/total": sum(times.values()),
            "time/elapsed": 1.25 * step,
            "speed/episodes_per_second": 51.0,
            "speed/tokens_per_second": 1180 + noise(0, 40),
            "memory/peak": 6.1e8,
            "gold/score": gold + noise(0, 0.02) if step != 4 else math.nan,
            "gold/score_se": 0.03,
        }

    def _words(self, step: int) -> list[str]:
        good = 0.5 + 0.45 * self._progress(step)
        words = []
        for _ in range(self.random.randint(14, 26)):
            kind = self.random.random()
            pool = FILLER if kind < 0.55 else GOOD if self.random.random() < good else BAD
            words.append(" " + self.random.choice(pool))
        return words + ["."]

    def _rollout(self, step: int, sample: int) -> RolloutRecord:
        draw = self.random
        words = list(HOSTILE) if self.hostile and sample == 0 else self._words(step)
        stopped = sample % 5 != 4
        pieces = words + (["<|endoftext|>"] if stopped else [])
        prompt = PROMPTS[(step + sample) % len(PROMPTS)]
        score = (
            6.0
            if self.hostile and sample == 0
            else round(sum(0.35 for word in words if word.strip() in GOOD) - sum(0.4 for word in words if word.strip() in BAD), 3)
        )
        tokens = self._tokens(prompt, pieces, score, step)
        return RolloutRecord(
            sample=sample,
            prompt=prompt,
            response="".join(words),
            score=score,
            parts={"reward_model": score},
            gold=round(0.5 + 0.2 * score + draw.gauss(0, 0.1), 3),
            kl=float(np.sum(tokens.arrays["logprobs"] - tokens.arrays["ref_logprobs"])),
            length=len(pieces),
            stopped=stopped,
            tokens=tokens,
        )

    def _tokens(self, prompt: str, pieces: list[str], score: float, step: int) -> TokenRecord:
        draw, count = self.random, len(pieces)
        logprobs = [-abs(draw.gauss(1.4, 0.9)) - 0.02 for _ in pieces]
        reference = [value - draw.gauss(0.3 * self._progress(step), 0.35) for value in logprobs]
        reference = [min(-0.01, value) for value in reference]
        kl = [first - second for first, second in zip(logprobs, reference, strict=True)]
        rewards = [-BETA * value for value in kl]
        rewards[-1] += score
        values = [score * (0.4 + 0.6 * index / count) + draw.gauss(0, 0.15) for index in range(count)]
        advantages, deltas = [0.0] * count, [0.0] * count
        following_value = following_advantage = 0.0
        for index in reversed(range(count)):
            deltas[index] = rewards[index] + GAMMA * following_value - values[index]
            advantages[index] = deltas[index] + GAMMA * LAM * following_advantage
            following_value, following_advantage = values[index], advantages[index]
        mean, spread = float(np.mean(advantages)), float(np.std(advantages) + 1e-8)
        new = [value + 0.06 * advantage + draw.gauss(0, 0.05) for value, advantage in zip(logprobs, advantages, strict=True)]
        ratio = [math.exp(second - first) for first, second in zip(logprobs, new, strict=True)]
        arrays = {
            "logprobs": logprobs,
            "new_logprobs": new,
            "ref_logprobs": reference,
            "kl": kl,
            "rewards": rewards,
            "values": values,
            "advantages": advantages,
            "whitened_advantages": [(value - mean) / spread for value in advantages],
            "returns": [first + second for first, second in zip(advantages, values, strict=True)],
            "deltas": deltas,
            "entropy": [abs(draw.gauss(1.6, 0.8)) for _ in pieces],
            "ratio": ratio,
            "clipped": [float(abs(value - 1) > 0.2) for value in ratio],
        }
        ids = np.arange(100, 100 + count, dtype=np.int32)
        top, top_logprobs, names = self._alternatives(ids, pieces, logprobs)
        ref_top, ref_top_logprobs, more = self._alternatives(ids, pieces, reference)
        prompt_pieces = [" " + word if index else word for index, word in enumerate(prompt.split(" "))]
        return TokenRecord(
            prompt_ids=np.arange(len(prompt_pieces), dtype=np.int32),
            response_ids=ids,
            prompt_pieces=prompt_pieces,
            response_pieces=pieces,
            arrays={key: np.asarray(value, np.float32) for key, value in arrays.items()},
            top_ids=top,
            top_logprobs=top_logprobs,
            ref_top_ids=ref_top,
            ref_top_logprobs=ref_top_logprobs,
            top_pieces={**names, **more},
            gamma=GAMMA,
            lam=LAM,
            kl_coef=BETA,
        )

    def _alternatives(self, ids: np.ndarray, pieces: list[str], logprobs: list[float]) -> tuple[np.ndarray, np.ndarray, dict[int, str]]:
        vocabulary = FILLER + GOOD + BAD
        top = np.zeros((len(ids), 5), np.int32)
        values = np.zeros((len(ids), 5), np.float32)
        names: dict[int, str] = {}
        for row, own in enumerate(ids):
            others = self.random.sample(range(len(vocabulary)), 5)
            left = math.log(max(1e-6, 1 - math.exp(logprobs[row])))
            candidates = [(500 + other, left + math.log(share)) for other, share in zip(others, (0.4, 0.22, 0.12, 0.06, 0.03), strict=True)]
            names.update({500 + other: " " + vocabulary[other] for other in others})
            names[int(own)] = pieces[row]
            ranked = sorted([(int(own), logprobs[row]), *candidates], key=lambda pair: -pair[1])[:5]
            top[row], values[row] = [pair[0] for pair in ranked], [pair[1] for pair in ranked]
        return top, values, names

    def _watched(self, step: int) -> list[WatchRecord]:
        records = []
        for sample, prompt in enumerate(PROMPTS[:6]):
            words = self._words(step)
            good = sum(word.strip() in GOOD for word in words) - sum(word.strip() in BAD for word in words)
            if self.hostile and sample == 0:
                words = [*HOSTILE, *words]
            pieces = [*words, "<|endoftext|>"]
            tokens = self._tokens(prompt, pieces, 0.35 * good, step).arrays
            arrays = {name: tokens[name] for name in ("logprobs", "ref_logprobs", "kl", "values", "entropy")}
            if step == 0:
                arrays |= {"ref_logprobs": arrays["logprobs"], "kl": 0 * arrays["kl"], "values": 0 * arrays["values"]}  # as a run begins
            gold = round(0.5 + 0.07 * good, 3)
            records.append(WatchRecord(sample, prompt, "".join(words), 0.35 * good, gold, float(arrays["kl"].sum()), True, pieces, arrays))
        return records


def main() -> None:
    """Write a growing run until it is finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--hostile", action="store_true")
    options = parser.parse_args()
    run = FakeRun(options.workspace, steps=options.steps, hostile=options.hostile)
    print(run.run_id, flush=True)
    run.load(0.4)
    time.sleep(options.seconds)
    run.run()
    for _ in range(options.steps):
        time.sleep(options.seconds)
        run.step()
    run.finish()


if __name__ == "__main__":
    main()
