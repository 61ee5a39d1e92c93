"""The stages around PPO: fine-tuning on examples, a reward model from preferences, and DPO. Start with ``supervised``.

- ``supervised``: the trainer: order, optimizer, learning rate, state.
- ``batch_passes``: the loss of a batch and its gradient, in micro-batches, lanes and ranks.
- ``objective``: what is minimised; ``sft``, ``reward_training`` and ``dpo`` have one each.
- ``training_loop``: a whole training in memory, without a run folder.
- ``stage_run``: a run of any stage, as the engine process drives it.
"""
