"""One recorded batch, learned from by all algorithms: what PPO, REINFORCE, RLOO, GRPO, Dr. GRPO, DAPO and GSPO make of it.

Read in this order:

- :mod:`.algorithms`: which settings make which algorithm, and what a batch must have for it.
- :mod:`.batch`: the batch of a step from the run's record, and the weights that it was sampled with.
- :mod:`.compare`: an update by each algorithm from the same weights and optimizer state, and what it moved.
- :mod:`.figures`: the result as plain data, and as tables for a terminal.
- :mod:`.command`: the command ``compare-updates``.

Every update is the engine's own (:class:`~rlhf_studio.engine.loop.update.Updater`); nothing here computes a loss.
"""
