"""What holds in the scenes of ``pages/before_the_loop.py``, whatever the controls say; by scene."""

from __future__ import annotations

import math

from rlhf_studio.lessons.small_models import WIDTH
from tests.lessons.claims import Claims

CLAIMS: Claims = {
    "set_up": {
        "a full run keeps a copy, LoRA does not": lambda n: n["copy"] == (not n["lora"]),
        "the optimizer holds what learns": lambda n: n["in_optimizer"] == n["policy_learns"] + n["critic_learns"],
        "a shared critic is one row and a bias": lambda n: n["critic"] == "separate" or n["critic_learns"] == WIDTH + 1,
    },
    "endless": {
        "every batch is full": lambda n: all(len(names) == n["batch"] for names in n["drawn"]),
        "no prompt is drawn much more than another": lambda n: n["most"] - n["fewest"] <= 1,
        "a batch repeats a prompt only if it must": lambda n: n["again"] == ("again" if n["batch"] > n["prompts"] else "once"),
        "a loader that drops what is left over has none of a small set": lambda n: n["there"] == n["prompts"] // n["batch"],
    },
    "one_batch": {
        "one optimizer step per minibatch": lambda n: n["optimizer_steps"] == int(n["parts"]) * n["epochs"],
        "micro-batches add passes, no steps": lambda n: n["passes"] == n["optimizer_steps"] * int(n["micro"]),
        "each response is used once per pass": lambda n: n["seen"] == n["epochs"],
    },
    "whole_run": {
        "a started batch is a whole batch": lambda n: 0 <= n["more"] < int(n["batch"]),
        "a share becomes whole steps, at least one": lambda n: n["every"] == max(1, math.ceil(n["share"] * n["steps"])),
        "without warm-up the first rate is full": lambda n: n["warmup"] > 0 or n["first"] == n["full"],
        "the last step still learns": lambda n: n["last"] > 0,
    },
    "doubled": {
        "every setting does something": lambda n: n["changed"] > 0,
        "only a larger batch or longer responses sample more tokens in a step": lambda n: (
            n["step_tokens"] == (2 if n["setting"] in ("batch_size", "response_length") else 1) * 64 * 32
        ),
        "a nat costs beta": lambda n: abs(n["before"]["pull"] - 0.1) < 1e-12,
        "a token with a good advantage gains the clip range at most": lambda n: (
            abs(n["after"]["reach"] - (0.4 if n["setting"] == "cliprange" else 0.2)) < 1e-9
        ),
        "the critic's part is half the squared error, weighed": lambda n: abs(n["before"]["critic"] - 0.1 * 0.5) < 1e-12,
        "beta rises by a fifth of batch over horizon": lambda n: abs(n["before"]["turn"] - 100 * 0.2 * 64 / 10_000) < 1e-9,
        "a longer response or a larger batch makes larger steps, or more": lambda n: (
            n["setting"] not in ("response_length", "mini_batch_size") or n["after"]["tokens"] == 2 * n["before"]["tokens"]
        ),
    },
    "check_yourself": {"steps times passes times minibatches": lambda n: n[n["answer"]] == n["steps"] * n["epochs"] * int(n["parts"])},
}
