"""From trl.experimental.ppo of TRL 1.12 (PPOConfig, ScriptArguments, ModelConfig) to our settings."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, gcd

from rlhf_studio.language import S_, _
from rlhf_studio.trl.draft import Draft
from rlhf_studio.trl.shared import batches, is_file, put_adapters, put_core, put_seed, put_trackers

SCHEDULES = {"constant": "constant", "constant_with_warmup": "constant", "linear": "linear", "cosine": "cosine"}
ATTENTION = ("sdpa", "eager", "flash_attention_2")


def convert_experimental(draft: Draft) -> None:
    """Put into the draft what the three classes say, TRL's defaults included."""
    if name := draft.text("run_name"):
        draft.put("name", name)
    _put_models(draft)
    put_adapters(draft)
    _put_data(draft)
    steps = _put_batches(draft)
    _put_optimizer(draft, steps)
    draft.put("ppo.kl_coef", draft.number("kl_coef"))
    draft.put("ppo.kl_controller", "fixed")
    draft.put("ppo.kl_estimator", draft.text("kl_estimator"))
    put_core(draft)
    _put_generation(draft)
    put_seed(draft)
    put_trackers(draft, "report_to")
    _put_records(draft, steps)


def _put_models(draft: Draft) -> None:
    """Policy, reward model, and a critic that starts as the reward model, as TRL's scripts load them."""
    component = {"kind": "reward_model", "model": draft.text("reward_model_path"), "append_eos": True}
    revision = draft.text("model_revision")
    if revision and revision != "main":
        draft.put("model.revision", revision)
        component["revision"] = revision
    if policy := _named(draft, "sft_model_path"):
        draft.put("model.policy", policy)
    else:
        draft.ask("model.policy", "", _("which model was given to PPOTrainer; {why}").format(why=_unsaid(draft, "sft_model_path")))
    if _named(draft, "reward_model_path"):
        draft.components.append(component)
    else:
        question = _("name the reward model that was given to PPOTrainer, or put other rewards; {why}").format(
            why=_unsaid(draft, "reward_model_path")
        )
        draft.ask("reward.components", [{**component, "model": ""}], question)
    draft.put("critic.kind", "separate")
    draft.put("critic.start", "reward_model")
    draft.put("model.dtype", _dtype(draft))
    draft.put("model.gradient_checkpointing", draft.switch("gradient_checkpointing"))
    attention = draft.text("attn_implementation")
    if attention in ATTENTION:
        draft.put("model.attention", attention)
    elif attention:
        draft.decide.append(_("attn_implementation: {attention} is not offered; model.attention stays auto").format(attention=attention))


def _named(draft: Draft, name: str) -> str:
    """The model that the file names; empty where only the default of TRL's own scripts would name one."""
    model = draft.text(name)
    return model if draft.given(name) else ""


def _unsaid(draft: Draft, name: str) -> str:
    return _("{name} is not given, and only TRL's own script would take {model} then").format(name=name, model=draft.text(name))


def _dtype(draft: Draft) -> str:
    """The number format of the computation: bfloat16, which TRL uses unless bf16 or fp16 says otherwise."""
    half, stored = draft.switch("fp16"), draft.text("dtype") if draft.given("dtype") else draft.text("torch_dtype")
    draft.value("dtype")
    if half or stored == "float16":
        draft.decide.append(_("model.dtype: float16 is not offered; auto takes bfloat16 where the GPU has it, else float32"))
        return "auto"
    bfloat16 = draft.value("bf16") is None or draft.switch("bf16") or stored == "bfloat16"
    return "bfloat16" if bfloat16 else "float32"


def _put_data(draft: Draft) -> None:
    if prompts := draft.text("dataset_name"):
        draft.put("data.prompts", prompts)
        draft.put("data.column", "prompt")
    else:
        draft.ask("data.prompts", "", _("which prompts were given as train_dataset"))
    if subset := draft.text("dataset_config"):
        draft.put("data.subset", subset)
    draft.put("data.split", draft.text("dataset_train_split"))
    if prompts and draft.given("dataset_test_split") and is_file(prompts):
        draft.put("data.eval_share", 0.0)
        draft.value("dataset_test_split")
        draft.left_out.append(
            _(
                "dataset_test_split: {prompts} is a file, which has no splits; name the file of the held-out prompts in data.eval, or set "
                "data.eval_share to hold some of these prompts out"
            ).format(prompts=prompts)
        )
    elif prompts and draft.given("dataset_test_split"):
        draft.put("data.eval", prompts)
        draft.put("data.eval_split", draft.text("dataset_test_split"))
    else:
        draft.put("data.eval_share", 0.0)  # TRL sets nothing aside by itself
    draft.decide.append(
        _(
            "data.max_prompt_tokens and reward.components.0.max_tokens: TRL cuts nothing (ppo_tldr.py left out prompts above 512 tokens); "
            "here longer texts are cut"
        )
    )


def _put_batches(draft: Draft) -> int | None:
    """Returns the number of steps; None when it is not known."""
    share, accumulated = draft.count("per_device_train_batch_size"), draft.count("gradient_accumulation_steps")
    parts, batch = _minibatches(draft, share * accumulated), share * accumulated * draft.processes
    draft.put("ppo.batch_size", batch)
    steps_in_trl = Fraction(parts * ceil(accumulated / parts), accumulated)  # per pass: its micro-batches by those that fill one step
    steps_here = next(number for number in range(int(steps_in_trl), 0, -1) if batch % number == 0)
    draft.put("ppo.mini_batch_size", batch // steps_here)
    micro_batch = gcd(min(share, share * accumulated // parts), batch // steps_here)
    draft.put("ppo.micro_batch_size", micro_batch if accumulated > 1 else 0)
    _say_steps(draft, steps_in_trl, steps_here, parts, batch)
    together = draft.count("local_rollout_forward_batch_size")
    draft.put("generation.batch_size", together if together < share * accumulated else 0)
    draft.put("ppo.ppo_epochs", draft.count("num_ppo_epochs"))
    if draft.value("total_episodes") is None:
        epochs = draft.number("num_train_epochs") or 0
        draft.decide.append(
            _("ppo.steps: {epochs:g} × the number of prompts / {batch}, since total_episodes is not given").format(
                epochs=epochs, batch=batch
            )
        )
        return None
    draft.value("num_train_epochs")
    steps = batches(draft.count("total_episodes"), batch)
    draft.put("ppo.steps", steps)
    return steps


def _minibatches(draft: Draft, local_batch: int) -> int:
    """num_mini_batches, or 1 where TRL refuses it: it must divide what one process samples."""
    parts = draft.count("num_mini_batches")
    if local_batch % parts == 0:
        return parts
    draft.decide.append(
        _("num_mini_batches: {parts} does not divide the {local_batch} responses of one process, which TRL refuses").format(
            parts=parts, local_batch=local_batch
        )
    )
    return 1


def _say_steps(draft: Draft, steps_in_trl: Fraction, steps_here: int, parts: int, batch: int) -> None:
    """A line where TRL makes another number of optimizer steps than num_mini_batches says, or than the converted run makes."""
    passes = draft.count("num_ppo_epochs")
    per_batch = steps_in_trl * passes
    if steps_in_trl != steps_here:
        batches_together = per_batch.denominator  # so many batches until the count of accumulated micro-batches is at 0 again
        where = S_("every batch") if batches_together == 1 else S_(f"every {batches_together} batches")
        draft.differ(
            f"num_mini_batches: with gradient accumulation TRL makes {per_batch.numerator} optimizer steps in {where}; the converted run "
            f"makes {steps_here * passes * batches_together}, since each pass has a whole number of equal minibatches here"
        )
    elif steps_here != parts:
        draft.differ(
            f"num_mini_batches: with gradient accumulation TRL makes {steps_here} optimizer step{'s' * (steps_here > 1)} per pass, not "
            f"{parts}, and so does the converted run; for {parts} set ppo.mini_batch_size to {batch // parts}"
        )


def _put_optimizer(draft: Draft, steps: int | None) -> None:
    draft.same(("learning_rate", "ppo.learning_rate"), ("weight_decay", "ppo.weight_decay"), ("adam_epsilon", "ppo.adam_epsilon"))
    schedule = draft.text("lr_scheduler_type")
    if schedule in SCHEDULES:
        draft.put("ppo.lr_schedule", SCHEDULES[schedule])
    else:
        draft.decide.append(
            _("lr_scheduler_type: {schedule} is not offered; choose ppo.lr_schedule: constant, linear or cosine").format(schedule=schedule)
        )
    warmup = draft.steps_of("warmup_ratio" if draft.given("warmup_ratio") and not draft.given("warmup_steps") else "warmup_steps", steps)
    if warmup is not None:
        draft.put("ppo.warmup_steps", warmup)
    if draft.given("max_grad_norm"):
        draft.differ("max_grad_norm: TRL's PPO never clips, whatever it says; ppo.max_grad_norm 1.0 would")
    draft.value("max_grad_norm")
    draft.put("ppo.max_grad_norm", 0.0)
    draft.put("ppo.ratio_threshold", 0.0)
    if draft.given("optim") and not draft.text("optim").startswith("adamw_torch"):
        draft.left_out.append(_("optim: {text}; the optimizer is AdamW").format(text=draft.text("optim")))
    draft.value("optim")


def _put_generation(draft: Draft) -> None:
    draft.put("generation.response_length", draft.count("response_length"))
    draft.put("generation.temperature", draft.number("temperature"))
    number, word = draft.value("stop_token_id"), draft.text("stop_token")
    draft.put("generation.stop_token", str(draft.count("stop_token_id", 0)) if number is not None else word or "none")
    penalty = draft.number("missing_eos_penalty")
    draft.put("reward.missing_eos_penalty", penalty or 0.0)
    if penalty and (number is not None or not word):
        draft.differ(
            "missing_eos_penalty: TRL looks for the end token anywhere in the response; here a response must end with "
            "generation.stop_token, and with none nothing counts as cut off"
        )


def _put_records(draft: Draft, steps: int | None) -> None:
    """Watched prompts and checkpoints."""
    samples = draft.count("num_sample_generations", 0)
    if samples == 0:
        draft.put("engine.watch_prompts", 0)
    elif steps is not None:
        draft.put("engine.watch_every", max(1, steps // samples))
    when = draft.text("save_strategy")
    every = 0 if when == "no" else draft.steps_of("save_steps", steps)
    draft.value("save_steps")
    if when in ("no", "steps") and every is not None:
        draft.put("engine.checkpoint_every", every)
    elif when not in ("no", "steps"):
        draft.decide.append(_("save_strategy: {when} is not offered; choose engine.checkpoint_every, in steps").format(when=when))
    if draft.value("save_total_limit") is not None:
        draft.put("engine.keep_checkpoints", draft.count("save_total_limit"))
    if draft.switch("use_cpu"):
        draft.put("engine.device", "cpu")
