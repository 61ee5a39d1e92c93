"""A run's settings by verl's names (0.9): overrides of its Hydra tree ``ppo_trainer``, for FSDP and vLLM.

Checked by ``benchmarks.handover`` against verl's own loader. Source of what a setting does there: verl/trainer/config, core_algos.py.
"""

from __future__ import annotations

from math import gcd

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.handover.translation import UNLIMITED, Cluster, InFolder, Translation, tensor_parallel
from rlhf_studio.language import S_, _, together

ACTOR, ROLLOUT, CRITIC, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "critic", "actor_rollout_ref.model"
AS_WRITTEN = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
"""A chat template that writes a prompt as it stands: verl always writes prompts with one."""
ESTIMATORS = {"gae": "gae", "rloo": "rloo", "grpo": "grpo", "dr_grpo": "grpo", "reinforce": "reinforce_plus_plus"}
AVERAGES = {"tokens": "token-mean", "responses": "seq-mean-token-mean", "constant": "seq-mean-token-sum-norm"}
KL_NAMES = {"k1": "kl", "k2": "mse", "k3": "low_var_kl", "abs": "abs"}


def translate(config: RunConfig, cluster: Cluster, parameters: int | None, policy: str, rows: int) -> Translation:
    """All settings.

    Args:
        parameters: weights of the policy; None where its files do not tell.
        policy: its folder or hub id.
        rows: how many prompts there are to train on.

    Raises:
        ConfigError: the batch cannot be shared by the GPUs.
    """
    if config.ppo.batch_size % cluster.total:
        message = S_(f"{config.ppo.batch_size} responses cannot be shared equally by {cluster.total} GPUs")
        raise ConfigError([Problem("ppo.batch_size", f"{message}; take a multiple, or other GPUs (--gpus, --nodes)")])
    to = Translation(config, "verl")
    _data(to)
    _model(to, policy)
    _batches(to, cluster)
    _loss(to)
    _kl(to)
    _optimizer(to)
    if config.ppo.has_critic:
        _critic(to, policy)
    _sampling(to, cluster, parameters)
    _trainer(to, cluster, rows)
    to.close()
    return to


def _data(to: Translation) -> None:
    to.put("data.train_files", InFolder("train.parquet"), "data.prompts")
    to.put("data.val_files", InFolder("held_out.parquet"))
    to.put("data.prompt_key", "prompt")
    to.put("data.max_prompt_length", to.read("data.max_prompt_tokens"), "data.max_prompt_tokens")
    to.put("data.max_response_length", to.read("generation.response_length"), "generation.response_length")
    to.put("data.shuffle", to.read("data.shuffle"), "data.shuffle")
    to.put("data.seed", to.read("engine.seed"), "engine.seed")
    to.put("data.filter_overlong_prompts", True)


def _model(to: Translation, policy: str) -> None:
    to.put(f"{MODEL}.path", policy, "model.policy")
    to.put_revision()
    if not to.config.data.chat_template:
        to.put(f"{MODEL}.custom_chat_template", AS_WRITTEN, "data.chat_template")
    to.put(f"{MODEL}.enable_gradient_checkpointing", to.read("model.gradient_checkpointing"), "model.gradient_checkpointing")
    if (attention := to.read("model.attention")) != "auto":
        to.put(f"+{MODEL}.override_config.attn_implementation", attention, "model.attention")
    if to.read("lora.enabled"):
        to.put(f"{MODEL}.lora_rank", to.read("lora.r"), "lora.enabled", "lora.r")
        to.put(f"{MODEL}.lora_alpha", round(to.read("lora.alpha")), "lora.alpha")
        to.put_target_modules(f"{MODEL}.target_modules", "all-linear")
        to.put(f"{ROLLOUT}.load_format", "safetensors")
    if to.read("model.dtype") == "float32":
        to.change("model.dtype", _("verl computes in bfloat16, with weights and optimizer in float32; FSDP there knows no float32."))


def _batches(to: Translation, cluster: Cluster) -> None:
    """verl counts prompts where we count responses: each prompt has ``rollout.n`` responses."""
    group, batch, mini = (to.read(f"ppo.{name}") for name in ("responses_per_prompt", "batch_size", "mini_batch_size"))
    to.put("data.train_batch_size", batch // group, "ppo.batch_size")
    to.put(f"{ROLLOUT}.n", group, "ppo.responses_per_prompt")
    prompts = _shared_by(max(1, mini // group), batch // group, cluster.total, group)
    to.put(f"{ACTOR}.ppo_mini_batch_size", prompts, "ppo.mini_batch_size")
    if prompts * group != mini:
        sentence = _("An optimizer step learns from {value} responses instead of {mini}: whole prompts, the same for each GPU.").format(
            value=prompts * group, mini=mini
        )
        to.change("ppo.mini_batch_size", sentence)
    micro = gcd(to.read("ppo.micro_batch_size") or mini, prompts * group // cluster.total)
    to.put(f"{ACTOR}.ppo_micro_batch_size_per_gpu", micro, "ppo.micro_batch_size")
    to.put(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", micro)
    to.put("actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", micro)
    to.put(f"{ACTOR}.ppo_epochs", to.read("ppo.ppo_epochs"), "ppo.ppo_epochs")


def _shared_by(prompts: int, batch: int, gpus: int, group: int) -> int:
    """The number of prompts nearest to ``prompts`` that divides the batch and gives every GPU as many responses."""
    fitting = [count for count in range(1, batch + 1) if batch % count == 0 and count * group % gpus == 0]
    return min(fitting, key=lambda count: (abs(count - prompts), count))


def _loss(to: Translation) -> None:
    low, high, dual = (to.read(f"ppo.{name}") for name in ("cliprange", "cliprange_high", "dual_clip"))
    to.put(f"{ACTOR}.clip_ratio", low)
    to.put(f"{ACTOR}.clip_ratio_low", low, "ppo.cliprange")
    to.put(f"{ACTOR}.clip_ratio_high", high or low, "ppo.cliprange_high")
    to.put(f"{ACTOR}.clip_ratio_c", dual or UNLIMITED, "ppo.dual_clip")
    to.put(f"{ACTOR}.entropy_coeff", to.read("ppo.entropy_coef"), "ppo.entropy_coef")
    to.put(f"{ACTOR}.policy_loss.loss_mode", "gspo" if to.read("ppo.ratio_level") == "sequence" else "vanilla", "ppo.ratio_level")
    to.put(f"{ACTOR}.loss_agg_mode", AVERAGES[to.read("ppo.loss_average")], "ppo.loss_average")
    if to.read("ppo.loss_average") == "constant":
        to.put(f"{ACTOR}.loss_scale_factor", to.read("generation.response_length"))
    to.put("algorithm.adv_estimator", ESTIMATORS[to.read("ppo.advantage")], "ppo.advantage")
    if to.read("ppo.advantage") == "dr_grpo":
        to.put("algorithm.norm_adv_by_std_in_grpo", False, "ppo.advantage")
    if to.read("ppo.advantage") == "reinforce":
        sentence = _("verl whitens these advantages over the batch; here the batch's mean reward is taken away, and nothing is divided.")
        to.change("ppo.advantage", sentence)
    if to.config.ppo.has_critic:
        to.put("algorithm.gamma", to.read("ppo.gamma"), "ppo.gamma")
        to.put("algorithm.lam", to.read("ppo.lam"), "ppo.lam")


def _kl(to: Translation) -> None:
    beta, estimator, placement = (to.read(f"ppo.{name}") for name in ("kl_coef", "kl_estimator", "kl_placement"))
    if estimator == "full":
        to.change("ppo.kl_estimator", _("verl has not built the exact sum over the vocabulary; k1 estimates it from the tokens drawn."))
        estimator = "k1"
    in_loss = placement == "loss"
    to.put(f"{ACTOR}.use_kl_loss", in_loss and beta > 0, "ppo.kl_placement")
    to.put("algorithm.use_kl_in_reward", not in_loss and beta > 0, "ppo.kl_placement")
    if in_loss:
        to.put(f"{ACTOR}.kl_loss_coef", beta, "ppo.kl_coef")
        to.put(f"{ACTOR}.kl_loss_type", KL_NAMES[estimator], "ppo.kl_estimator")
        return
    to.put("algorithm.kl_ctrl.kl_coef", beta, "ppo.kl_coef")
    to.put("algorithm.kl_penalty", KL_NAMES[estimator], "ppo.kl_estimator")
    to.put("algorithm.kl_ctrl.type", to.read("ppo.kl_controller"), "ppo.kl_controller")
    if to.config.ppo.kl_controller == "adaptive":
        target, length = to.read("ppo.kl_target"), to.read("generation.response_length")
        to.put("algorithm.kl_ctrl.target_kl", target / length, "ppo.kl_target")
        to.put("algorithm.kl_ctrl.horizon", to.read("ppo.kl_horizon"), "ppo.kl_horizon")
        measured = _("verl steers by the {estimator} estimate, where here it is always k1.").format(estimator=estimator)
        sentence = _("verl's target is a mean per token: {target:g} nats per response over {length} tokens.")
        sentence = sentence.format(target=target, length=length)
        to.change("ppo.kl_target", sentence if estimator == "k1" else together(sentence, measured))


def _optimizer(to: Translation) -> None:
    optim = f"{ACTOR}.optim"
    to.put(f"{optim}.lr", to.read("ppo.learning_rate"), "ppo.learning_rate")
    _same_for_both(to, optim)


def _same_for_both(to: Translation, optim: str) -> None:
    schedule = to.read("ppo.lr_schedule")
    to.put(f"{optim}.lr_scheduler_type", "cosine" if schedule == "linear" else schedule, "ppo.lr_schedule")
    if schedule == "linear" and optim.startswith(ACTOR):
        to.change(
            "ppo.lr_schedule", _("verl knows constant and cosine; both linear and cosine end at 0, cosine is higher in the first half.")
        )
    to.put(f"{optim}.lr_warmup_steps", to.read("ppo.warmup_steps"), "ppo.warmup_steps")
    to.put(f"{optim}.weight_decay", to.read("ppo.weight_decay"), "ppo.weight_decay")
    to.put(f"{optim}.clip_grad", to.read("ppo.max_grad_norm") or UNLIMITED, "ppo.max_grad_norm")
    to.put(f"{optim}.override_optimizer_config", {"eps": to.read("ppo.adam_epsilon")}, "ppo.adam_epsilon")


def _critic(to: Translation, policy: str) -> None:
    to.put_critic("critic.model.path", policy)
    to.put("critic.optim.lr", to.read("ppo.critic_learning_rate") or to.read("ppo.learning_rate"), "ppo.critic_learning_rate")
    _same_for_both(to, "critic.optim")
    to.put("critic.cliprange_value", to.read("ppo.cliprange_value") or UNLIMITED, "ppo.cliprange_value")
    to.put("critic.model.enable_gradient_checkpointing", to.read("model.gradient_checkpointing"))
    to.put("critic.ppo_micro_batch_size_per_gpu", to.options[f"{ACTOR}.ppo_micro_batch_size_per_gpu"])
    alone = to.read("ppo.critic_warmup_steps")
    to.put("trainer.critic_warmup", alone + 1 if alone else 0, "ppo.critic_warmup_steps")  # the first step that trains the policy, from 1


def _sampling(to: Translation, cluster: Cluster, parameters: int | None) -> None:
    to.put(f"{ROLLOUT}.name", "vllm")
    to.put(f"{ROLLOUT}.tensor_model_parallel_size", tensor_parallel(parameters, cluster.gpus))
    to.put(f"{ROLLOUT}.gpu_memory_utilization", 0.5)
    to.put(f"{ROLLOUT}.temperature", to.read("generation.temperature"), "generation.temperature")
    to.put(f"{ROLLOUT}.top_k", to.read("generation.top_k") or -1, "generation.top_k")
    to.put(f"{ROLLOUT}.top_p", to.read("generation.top_p"), "generation.top_p")
    to.put(f"{ROLLOUT}.seed", to.read("engine.seed"))
    stop = to.read("generation.stop_token")
    to.put(f"{ROLLOUT}.ignore_eos", stop == "none", "generation.stop_token")
    if stop not in ("none", "eos"):
        to.change_stop_token()


def _trainer(to: Translation, cluster: Cluster, rows: int) -> None:
    steps, prompts = to.read("ppo.steps"), to.options["data.train_batch_size"]
    to.put("trainer.total_training_steps", steps, "ppo.steps")
    to.put("trainer.total_epochs", -(-steps // max(1, rows // prompts)))
    to.put("trainer.nnodes", cluster.nodes)
    to.put("trainer.n_gpus_per_node", cluster.gpus)
    to.put("trainer.save_freq", to.read("engine.checkpoint_every") or -1, "engine.checkpoint_every")
    to.put("trainer.max_actor_ckpt_to_keep", to.read("engine.keep_checkpoints"), "engine.keep_checkpoints")
    to.put("trainer.max_critic_ckpt_to_keep", to.read("engine.keep_checkpoints"))
    to.put("trainer.val_before_train", False)
    to.put("trainer.test_freq", -1)
    to.put("trainer.logger", ["console", *to.config.engine.trackers], "engine.report_to")
    to.put("trainer.project_name", "rlhf-studio")
    to.put("trainer.experiment_name", to.config.name or to.config.recipe or "run")
    to.put("trainer.default_local_dir", InFolder("checkpoints"))
    to.put("trainer.rollout_data_dir", InFolder("rollouts"))
