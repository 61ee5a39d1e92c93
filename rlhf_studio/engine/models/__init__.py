"""The models of a run: how each is loaded, and its forward pass.

Start with ``policy``.

- ``policy``: a causal LM that computes logits for response tokens only, and the policy that learns with its value head.
- ``reference``: the frozen model of the KL penalty, where LoRA is switched off for it, and how it is loaded.
- ``critic``: the value head, a separate critic's trunk, and what it starts from.
- ``forward``: log-probabilities, entropy and values of given responses, in micro-batches.
- ``adapters``: LoRA: adding, loading and saving adapters.
- ``merging``: LoRA added into the base weights, while sampling or for good.
- ``load_model``: policies and reward models with their tokenizers, from folders or the hub.
- ``classifiers``: reward models: padding, and the score head.
- ``position_ids``: the position ids that a model expects.
- ``kv_cache``: the key-value cache of sampling, allocated once.
"""
