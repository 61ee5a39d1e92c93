"""What a model card says of a run's stage: what trained it, what its model is for, and what it cites."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rlhf_studio.config import RunConfig, Stage, StageConfig
from rlhf_studio.language import N_


@dataclass(frozen=True)
class Telling:
    """What a model card says of a stage.

    Attributes:
        trained: how the model was trained, as the end of a sentence.
        tags: for the hub.
        summary: the metrics whose first and last values are shown.
        drawn: the metrics whose curves the card shows.
        limit: what such a model must not be taken for.
        citation: the method, as BibTeX.
    """

    trained: str
    tags: tuple[str, ...]
    summary: tuple[str, ...]
    drawn: tuple[str, ...]
    limit: str
    citation: str


_PPO = """@misc{schulman2017ppo,
  title  = {Proximal Policy Optimization Algorithms},
  author = {Schulman, John and Wolski, Filip and Dhariwal, Prafulla and Radford, Alec and Klimov, Oleg},
  year   = {2017}, eprint = {1707.06347}, archivePrefix = {arXiv}
}"""
_RLOO = """@misc{ahmadian2024rloo,
  title  = {Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs},
  author = {Ahmadian, Arash and Cremer, Chris and Gallé, Matthias and Fadaee, Marzieh and Kreutzer, Julia and Pietquin, Olivier and
            Üstün, Ahmet and Hooker, Sara},
  year   = {2024}, eprint = {2402.14740}, archivePrefix = {arXiv}
}"""
_GRPO = """@misc{shao2024grpo,
  title  = {DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models},
  author = {Shao, Zhihong and Wang, Peiyi and Zhu, Qihao and others},
  year   = {2024}, eprint = {2402.03300}, archivePrefix = {arXiv}
}"""
_DR_GRPO = """@misc{liu2025drgrpo,
  title  = {Understanding R1-Zero-Like Training: A Critical Perspective},
  author = {Liu, Zichen and Chen, Changyu and Li, Wenjun and others},
  year   = {2025}, eprint = {2503.20783}, archivePrefix = {arXiv}
}"""
_REINFORCE = """@article{williams1992reinforce,
  title   = {Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning},
  author  = {Williams, Ronald J.},
  journal = {Machine Learning}, volume = {8}, pages = {229--256}, year = {1992}
}"""
_DPO = """@misc{rafailov2023dpo,
  title  = {Direct Preference Optimization: Your Language Model is Secretly a Reward Model},
  author = {Rafailov, Rafael and Sharma, Archit and Mitchell, Eric and Ermon, Stefano and Manning, Christopher D. and Finn, Chelsea},
  year   = {2023}, eprint = {2305.18290}, archivePrefix = {arXiv}
}"""
_RLHF = """@misc{ziegler2019rlhf,
  title  = {Fine-Tuning Language Models from Human Preferences},
  author = {Ziegler, Daniel M. and Stiennon, Nisan and Wu, Jeffrey and Brown, Tom B. and Radford, Alec and Amodei, Dario and
            Christiano, Paul and Irving, Geoffrey},
  year   = {2019}, eprint = {1909.08593}, archivePrefix = {arXiv}
}"""
_INSTRUCT = """@misc{ouyang2022instruct,
  title  = {Training language models to follow instructions with human feedback},
  author = {Ouyang, Long and Wu, Jeff and Jiang, Xu and others},
  year   = {2022}, eprint = {2203.02155}, archivePrefix = {arXiv}
}"""

_PPO_SUMMARY = (
    *("objective/scores", "gold/score", "objective/kl", "tokens/response_length", "tokens/cut_off"),
    *("policy/entropy_avg", "val/explained_variance", "policy/clipfrac_avg"),
)

TELLINGS: dict[Stage, Telling] = {
    "ppo": Telling(
        N_("with PPO (proximal policy optimization)"),
        ("rlhf", "ppo", "reinforcement-learning"),
        _PPO_SUMMARY,
        ("objective/scores", "gold/score", "objective/kl", "tokens/response_length"),
        N_(
            "The policy was trained to earn this reward, not to be right or harmless: it may have found ways to earn it that nobody wanted."
        ),
        _PPO,
    ),
    "sft": Telling(
        N_("by supervised fine-tuning"),
        ("rlhf", "sft"),
        ("sft/loss", "sft/eval_loss", "sft/eval_perplexity"),
        ("sft/loss", "sft/eval_loss"),
        N_("The policy was trained to write as its examples do, with what is wrong in them: not to be right or harmless."),
        _INSTRUCT,
    ),
    "reward_model": Telling(
        N_("on preferences (Bradley-Terry)"),
        ("rlhf", "reward-model"),
        ("reward_model/loss", "reward_model/eval_loss", "reward_model/eval_accuracy", "reward_model/eval_margin"),
        ("reward_model/loss", "reward_model/eval_loss", "reward_model/eval_accuracy"),
        N_("Its score says what those people preferred whose pairs it learned from, and what could fool them: it is no measure of truth."),
        _RLHF,
    ),
    "dpo": Telling(
        N_("with DPO (direct preference optimization)"),
        ("rlhf", "dpo"),
        ("dpo/loss", "dpo/eval_loss", "dpo/eval_accuracy", "dpo/margin"),
        ("dpo/loss", "dpo/eval_loss", "dpo/eval_accuracy"),
        N_("The policy was trained to prefer what people preferred, not to be right or harmless."),
        _DPO,
    ),
    "evaluation": Telling("", ("rlhf",), (), (), "", _PPO),
}
"""By stage."""

# What such a run is called, its tag and what it cites; its updates are PPO's.
_WITHOUT_CRITIC = {
    "rloo": (N_("with RLOO (REINFORCE leave-one-out, with PPO's clipped updates)"), "rloo", _RLOO),
    "grpo": (N_("with GRPO (group relative policy optimization)"), "grpo", _GRPO),
    "dr_grpo": (N_("with Dr. GRPO (group relative policy optimization without the division by the deviation)"), "grpo", _DR_GRPO),
    "reinforce": (N_("with REINFORCE (the batch's mean reward as its baseline, with PPO's clipped updates)"), "reinforce", _REINFORCE),
}


def telling_of(config: StageConfig) -> Telling:
    """The texts for a run with these settings: those of its stage, or of its kind of advantages where these are not PPO's own."""
    telling = TELLINGS[config.stage]
    if not isinstance(config, RunConfig) or config.ppo.has_critic:
        return telling
    trained, tag, citation = _WITHOUT_CRITIC[config.ppo.advantage]
    summary = tuple(name for name in telling.summary if name != "val/explained_variance")
    return replace(telling, trained=trained, tags=("rlhf", tag, "reinforcement-learning"), summary=summary, citation=f"{citation}\n{_PPO}")
