"""Sampling responses from the policy.

Start with ``decode``.

- ``decode``: the loop that samples one token after the other, with a key-value cache.
- ``draw``: one token per row from the logits: temperature, top-k, top-p.
- ``traced_step``: on a CPU, one step of the loop as TorchScript (``torch.jit.trace``), so that it runs without Python.
- ``static_step``: on a GPU, one step of the loop as a captured CUDA graph.
- ``same_numbers``: whether such a step gives the model's own numbers.
- ``prepacked``: on a CPU, large weight matrices in the memory layout that oneDNN multiplies by.
"""
