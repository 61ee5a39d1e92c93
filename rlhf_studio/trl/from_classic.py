"""From the step API of TRL 0.11 to our settings."""

from __future__ import annotations

from typing import Any

from rlhf_studio.config.wording import shortened
from rlhf_studio.language import _
from rlhf_studio.trl.draft import Draft
from rlhf_studio.trl.from_classic_generation import keywords, put_generation
from rlhf_studio.trl.shared import batches, put_adapters, put_core, put_seed, put_trackers

ESTIMATORS = {"kl": "k1", "mse": "k2", "abs": "abs", "full": "full"}


def convert_classic(draft: Draft) -> None:
    """Put into the draft what PPOConfig of TRL 0.11 says, and what the script says around it."""
    names = [draft.text(name) for name in ("exp_name", "task_name", "tracker_project_name") if draft.given(name)]
    if names:
        draft.put("name", names[0])
    _put_models(draft)
    put_adapters(draft)
    _put_data(draft)
    _put_scores(draft)
    _put_batches(draft)
    _put_kl(draft)
    put_core(draft)
    put_generation(draft)
    put_seed(draft)
    put_trackers(draft, "log_with")


def _put_models(draft: Draft) -> None:
    draft.put("model.dtype", "float32")
    draft.put("model.gradient_checkpointing", draft.switch("gradient_checkpointing"))
    if draft.given("model_name"):
        draft.put("model.policy", draft.text("model_name"))
        draft.differ("model_name: only a label in TRL; check that it is the model that was given to PPOTrainer")
    else:
        draft.ask("model.policy", "", _("which model was given to PPOTrainer; its configuration does not say"))
    draft.put("critic.kind", "shared")
    if draft.given("v_head_init_strategy") and draft.text("v_head_init_strategy") == "normal":
        draft.put("model.value_head_init", "normal")


def _put_data(draft: Draft) -> None:
    prompts = draft.text("dataset_name") or (draft.text("query_dataset") if draft.given("query_dataset") else "")
    if prompts:
        draft.put("data.prompts", prompts)
        draft.put("data.eval_share", 0.0)  # the step API trained on all that the loop drew
        draft.decide.append(_("data.column: which column of the data holds the prompts (text, for IMDB)"))
    else:
        draft.ask("data.prompts", "", _("which prompts your loop drew, and their column (data.column)"))


def _put_scores(draft: Draft) -> None:
    """The classifier, the shape of its scores, and how they are scaled."""
    task, _colon, model = draft.text("reward_model").rpartition(":")
    if draft.given("reward_model"):
        kwargs = keywords(draft, "sent_kwargs")
        raw = str(kwargs.get("function_to_apply", "default")).lower() == "none"
        component: dict[str, Any] = {"kind": "reward_model", "model": model, "output": "logit" if raw else "probability"}
        size = kwargs.get("batch_size")
        draft.components.append(component | ({"batch_size": size} if isinstance(size, int) else {}))
        if not raw:
            draft.differ("reward.components.0.output: without function_to_apply none the pipeline gives probabilities")
        _name_the_rest(draft, kwargs)
        if task:
            draft.decide.append(
                _("reward.components.0.label: which of the classifier's labels your loop took as the score (POSITIVE, say)")
            )
    else:
        draft.ask("reward.components", [], _("what gave the scores of your loop"))
    scaling = draft.switch("use_score_scaling")
    normalise = draft.switch("use_score_norm")
    draft.put("reward.scaling", ("normalise" if normalise else "scale") if scaling else "none")
    draft.put("reward.score_clip", draft.number("score_clip") or 0.0)


def _name_the_rest(draft: Draft, kwargs: dict[str, Any]) -> None:
    """A line for each keyword of the pipeline that is not used. Another line asks which of its labels was the score."""
    for name, value in kwargs.items():
        if name not in ("function_to_apply", "batch_size", "top_k", "return_all_scores"):
            draft.left_out.append(
                _("sent_kwargs.{name}: {value}; a reward model here has no such option").format(name=name, value=shortened(value))
            )


def _put_batches(draft: Draft) -> None:
    """Batches are per process in TRL and of all processes here; a micro-batch is per process in both."""
    mini = draft.count("forward_batch_size") if draft.value("forward_batch_size") is not None else draft.count("mini_batch_size")
    draft.value("mini_batch_size")
    accumulated, batch = draft.count("gradient_accumulation_steps"), draft.count("batch_size") * draft.processes
    draft.put("ppo.batch_size", batch)
    draft.put("ppo.mini_batch_size", mini * accumulated * draft.processes)
    draft.put("ppo.micro_batch_size", mini if accumulated > 1 else 0)
    draft.put("ppo.ppo_epochs", draft.count("ppo_epochs"))
    if draft.given("steps"):
        draft.put("ppo.steps", batches(draft.count("steps"), batch))
        draft.decide.append(
            _("ppo.steps: steps / batch size; TRL reads steps nowhere, so it is how often your loop called step that counts")
        )
    else:
        draft.decide.append(_("ppo.steps: how often your loop called step, one pass over the data as a rule: rows / batch size"))
    draft.put("ppo.learning_rate", draft.number("learning_rate"))
    draft.put("ppo.lr_schedule", "constant")
    draft.put("ppo.weight_decay", 0.0)
    draft.put("ppo.adam_epsilon", 1e-8)
    draft.put("ppo.max_grad_norm", draft.number("max_grad_norm") or 0.0)
    draft.same(("ratio_threshold", "ppo.ratio_threshold"))
    if draft.switch("whiten_rewards"):
        draft.differ("whiten_rewards: in TRL the padding earned reward too; here it earns nothing")


def _put_kl(draft: Draft) -> None:
    penalty, adaptive = draft.text("kl_penalty"), draft.switch("adap_kl_ctrl")
    draft.put("ppo.kl_coef", draft.number("init_kl_coef"))
    draft.put("ppo.kl_controller", "adaptive" if adaptive else "fixed")
    draft.put("ppo.kl_target", draft.number("target"))
    horizon = draft.number("horizon")
    draft.put("ppo.kl_horizon", horizon if horizon is None else round(horizon))
    draft.put("ppo.kl_estimator", ESTIMATORS.get(penalty, penalty))
    if adaptive and penalty != "kl":
        draft.differ(f"adap_kl_ctrl: TRL's controller follows the KL as kl_penalty {penalty} measures it; ours follows k1")
    stop, limit = draft.switch("early_stopping"), draft.number("target_kl")
    draft.put("ppo.target_kl", limit if stop else 0.0)
    if stop:
        draft.differ("early_stopping: TRL measures mean(old − new log-probability); here it is half the mean squared change")
