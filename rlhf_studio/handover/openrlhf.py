"""A run's settings by OpenRLHF's names (0.11): options of ``openrlhf.cli.train_ppo_ray``, for DeepSpeed ZeRO 3 and vLLM.

Checked by ``benchmarks.handover`` against OpenRLHF's own parser. Source of what a setting does there: openrlhf/trainer/ppo_utils and
openrlhf/models/loss.py.
"""

from __future__ import annotations

from math import gcd

from rlhf_studio.config import RunConfig
from rlhf_studio.config.io import ConfigError, Problem
from rlhf_studio.handover.translation import UNLIMITED, Cluster, InFolder, Remark, Translation, tensor_parallel
from rlhf_studio.language import _

ESTIMATORS = {"gae": "gae", "rloo": "rloo", "grpo": "group_norm", "dr_grpo": "dr_grpo", "reinforce": "flash_reinforce"}
MOST_ROWS = 1_000_000
"""So many prompts are written one by one; beyond that the file holds each prompt once and is passed over again and again."""
SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def translate(config: RunConfig, cluster: Cluster, parameters: int | None, policy: str, rows: int) -> Translation:
    """All settings; the arguments and errors are those of :func:`rlhf_studio.handover.verl.translate`."""
    mini = config.ppo.mini_batch_size
    if mini % cluster.total:
        message = f"{mini} responses cannot be shared equally by {cluster.total} GPUs; take a multiple, or other GPUs (--gpus, --nodes)"
        raise ConfigError([Problem("ppo.mini_batch_size", message)])
    to = Translation(config, "OpenRLHF")
    _cluster(to, cluster, parameters)
    _data(to)
    _model(to, policy)
    _batches(to, cluster, rows)
    _loss(to)
    _kl(to)
    _optimizer(to, "actor", "ppo.learning_rate")
    if config.ppo.has_critic:
        _critic(to, policy)
    _sampling(to)
    _records(to)
    to.close()
    return to


def _cluster(to: Translation, cluster: Cluster, parameters: int | None) -> None:
    for part in ("actor", "ref", "critic", "reward"):
        to.put(f"{part}.num_nodes", cluster.nodes)
        to.put(f"{part}.num_gpus_per_node", cluster.gpus)
    share = tensor_parallel(parameters, cluster.gpus)
    to.put("vllm.num_engines", cluster.total // share)
    to.put("vllm.tensor_parallel_size", share)
    to.put("vllm.gpu_memory_utilization", 0.5)
    for flag in ("train.colocate_all", "vllm.enable_sleep", "ds.enable_sleep"):
        to.put(flag, True)
    to.put("ds.zero_stage", 3)


def _data(to: Translation) -> None:
    to.put("data.prompt_dataset", InFolder("train.jsonl"), "data.prompts")
    to.put("data.input_key", "prompt")
    to.put("data.label_key", "reference", "data.reference_column")
    to.put("data.apply_chat_template", to.read("data.chat_template"), "data.chat_template")
    prompt, response = to.read("data.max_prompt_tokens"), to.read("generation.response_length")
    to.put("data.max_len", prompt + response, "data.max_prompt_tokens")
    to.put("rollout.max_new_tokens", response, "generation.response_length")
    if not to.read("data.shuffle"):
        to.missing.append(Remark("data.shuffle", _("OpenRLHF always shuffles the prompts.")))


def _model(to: Translation, policy: str) -> None:
    to.put("actor.model_name_or_path", policy, "model.policy")
    to.put_revision()
    to.put("actor.gradient_checkpointing_enable", to.read("model.gradient_checkpointing"), "model.gradient_checkpointing")
    if (attention := to.read("model.attention")) != "auto":
        to.put("ds.attn_implementation", attention, "model.attention")
    if to.read("model.dtype") == "float32":
        to.change("model.dtype", _("OpenRLHF computes in bfloat16, with the optimizer in float32; it knows no float32."))
    if to.config.model.quantization == "4bit":
        to.put("ds.load_in_4bit", True, "model.quantization")
    if to.read("lora.enabled"):
        to.put("ds.lora.rank", to.read("lora.r"), "lora.enabled", "lora.r")
        to.put("ds.lora.alpha", round(to.read("lora.alpha")), "lora.alpha")
        to.put("ds.lora.dropout", to.read("lora.dropout"), "lora.dropout")
        to.put_target_modules("ds.lora.target_modules", ["all-linear"])


def _batches(to: Translation, cluster: Cluster, rows: int) -> None:
    """OpenRLHF counts prompts in a rollout and responses in an optimizer step. It ends with its prompts: they are written for all steps."""
    group, batch, mini = (to.read(f"ppo.{name}") for name in ("responses_per_prompt", "batch_size", "mini_batch_size"))
    prompts, steps = batch // group, to.read("ppo.steps")
    used = steps * prompts if steps * prompts <= MOST_ROWS else max(1, rows // prompts) * prompts
    passes = -(-steps * prompts // used)
    to.put("rollout.batch_size", prompts, "ppo.batch_size")
    to.put("rollout.n_samples_per_prompt", group, "ppo.responses_per_prompt")
    to.put("train.batch_size", mini, "ppo.mini_batch_size")
    micro = gcd(to.read("ppo.micro_batch_size") or mini, mini // cluster.total)
    to.put("train.micro_batch_size", micro, "ppo.micro_batch_size")
    to.put("rollout.micro_batch_size", gcd(micro, batch // cluster.total))
    to.put("train.max_epochs", to.read("ppo.ppo_epochs"), "ppo.ppo_epochs")
    to.put("data.max_samples", used)
    to.put("train.num_episodes", passes, "ppo.steps")
    if (there := used // prompts * passes) != steps:
        to.change(
            "ppo.steps",
            _("OpenRLHF makes whole passes over the prompts: {there} steps instead of {steps}.").format(there=there, steps=steps),
        )
    to.put("train.seed", to.read("engine.seed"), "engine.seed")


def _loss(to: Translation) -> None:
    low, high = to.read("ppo.cliprange"), to.read("ppo.cliprange_high")
    to.put("actor.eps_clip", low, "ppo.cliprange")
    to.put("actor.eps_clip_low_high", [low, high or low], "ppo.cliprange_high")
    if dual := to.read("ppo.dual_clip"):
        to.put("actor.dual_clip", dual, "ppo.dual_clip")
    if entropy := to.read("ppo.entropy_coef"):
        to.put("actor.entropy_coef", entropy, "ppo.entropy_coef")
    _average(to)
    to.put("algo.advantage.estimator", ESTIMATORS[to.read("ppo.advantage")], "ppo.advantage")
    if to.read("ppo.advantage") in ("rloo", "reinforce") and to.read("ppo.kl_coef"):
        sentence = _(
            "OpenRLHF compares scores alone and charges the KL token by token; here the whole KL is charged before the comparison."
        )
        to.change("ppo.advantage", sentence)
    if to.config.ppo.has_critic:
        to.put("algo.advantage.gamma", to.read("ppo.gamma"), "ppo.gamma")
        to.put("algo.advantage.lambd", to.read("ppo.lam"), "ppo.lam")


def _average(to: Translation) -> None:
    average, whole = to.read("ppo.loss_average"), to.read("ppo.ratio_level") == "sequence"
    to.put("actor.policy_loss_type", "gspo" if whole else "ppo", "ppo.ratio_level")
    to.put("actor.loss_agg_mode", "seq-mean-token-mean" if average == "responses" or whole else "token-mean", "ppo.loss_average")
    if average == "constant" or (whole and average == "tokens"):
        instead = _("the mean over the responses") if whole else _("the mean over the tokens of a mini-batch")
        to.change(
            "ppo.loss_average",
            _("OpenRLHF takes {instead} there; it has no such average as {average} for this loss.").format(
                instead=instead, average=average
            ),
        )


def _kl(to: Translation) -> None:
    estimator = to.read("ppo.kl_estimator")
    if estimator in ("abs", "full"):
        to.change("ppo.kl_estimator", _("OpenRLHF knows k1, k2 and k3; k1 stands for {estimator}.").format(estimator=estimator))
        estimator = "k1"
    to.put("algo.kl.estimator", estimator, "ppo.kl_estimator")
    to.put("algo.kl.init_coef", to.read("ppo.kl_coef"), "ppo.kl_coef")
    to.put("algo.kl.use_loss", to.read("ppo.kl_placement") == "loss", "ppo.kl_placement")
    if to.read("ppo.kl_controller") == "adaptive":
        target, length = to.read("ppo.kl_target"), to.read("generation.response_length")
        to.put("algo.kl.target", target / length, "ppo.kl_controller", "ppo.kl_target")
        to.put("algo.kl.horizon", to.read("ppo.kl_horizon"), "ppo.kl_horizon")
        to.change(
            "ppo.kl_target",
            _("OpenRLHF's target is a mean per token: {target:g} nats per response over {length} tokens.").format(
                target=target, length=length
            ),
        )


def _optimizer(to: Translation, part: str, rate: str) -> None:
    to.put(f"{part}.adam.lr", to.read(rate) or to.read("ppo.learning_rate"), rate)
    to.put(f"{part}.adam.betas", [0.9, 0.999])
    to.put(f"{part}.adam.eps", to.read("ppo.adam_epsilon"), "ppo.adam_epsilon")
    to.put(f"{part}.adam.weight_decay", to.read("ppo.weight_decay"), "ppo.weight_decay")
    to.put(f"{part}.lr_scheduler", SCHEDULES[to.read("ppo.lr_schedule")], "ppo.lr_schedule")
    to.put(f"{part}.lr_warmup_ratio", to.read("ppo.warmup_steps") / to.read("ppo.steps"), "ppo.warmup_steps")
    to.put(f"{part}.max_norm", to.read("ppo.max_grad_norm"), "ppo.max_grad_norm")


def _critic(to: Translation, policy: str) -> None:
    to.put_critic("critic.model_name_or_path", policy)
    _optimizer(to, "critic", "ppo.critic_learning_rate")
    to.put("critic.value_clip", to.read("ppo.cliprange_value") or UNLIMITED, "ppo.cliprange_value")
    to.put("critic.freezing_steps", to.read("ppo.critic_warmup_steps") - 1, "ppo.critic_warmup_steps")  # the last frozen step, from 0


def _sampling(to: Translation) -> None:
    to.put("rollout.temperature", to.read("generation.temperature"), "generation.temperature")
    to.put("rollout.top_p", to.read("generation.top_p"), "generation.top_p")
    if to.read("generation.stop_token") != "eos":
        to.change_stop_token()


def _records(to: Translation) -> None:
    to.put("ckpt.path", InFolder("checkpoints"))
    to.put("ckpt.output_dir", InFolder("policy"))
    to.put("ckpt.save_steps", to.read("engine.checkpoint_every") or -1, "engine.checkpoint_every")
    to.put("ckpt.max_num", to.read("engine.keep_checkpoints"), "engine.keep_checkpoints")
    to.put("logger.logging_steps", 1)
    trackers = to.config.engine.trackers
    if "tensorboard" in trackers:
        to.put("logger.tensorboard_dir", InFolder("tensorboard"), "engine.report_to")
    if others := [name for name in trackers if name != "tensorboard"]:
        to.change(
            "engine.report_to",
            _("{others}: add it to the script with its key; OpenRLHF knows --logger.wandb.key.").format(others=", ".join(others)),
        )
