"""The PPO algorithm.

- :mod:`.trainer`: ``Trainer.step``, the algorithm on one page. Start here.
- :mod:`.phases`: sample, score, reference pass. :mod:`.generate` samples in lanes; :mod:`.models` holds what all phases use.
- :mod:`.update`: epochs and minibatches over one rollout. :mod:`.minibatch` computes one minibatch's gradient, however it is cut.
- :mod:`.prompts`: the stream of prompts. :mod:`.watching`: prompts that are answered, and sentences that are read, again and again.
- :mod:`.build`: from settings, or from models in memory, to a trainer.
- :mod:`.state`: what a resumed run needs beside the weights. :mod:`.changed_settings`: what the run says when its settings have changed.

The formulas are in :mod:`rlhf_studio.ppo`.
"""
