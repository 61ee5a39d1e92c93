"""Where and how a run computes, and what makes it fast. Each part gives the numbers of the plain computation, up to rounding.

Start with ``device``.

- ``device``: the device, number format, ranks and lanes of a run, chosen from its settings.
- ``lanes``: threads of a CPU that each take whole episodes.
- ``packing``: episodes one after the other in a single row, so that nothing is computed for padding.
- ``shared_starts``: the prompt of two responses goes through the model once.
- ``gradients``: the gradient of a batch from its parts, in lanes.
- ``fused``: GELU with its derivative; softmax with log-probability and entropy in the logits' own memory.
- ``gradient_checkpointing``: less memory for activations, at the cost of a second forward pass.
- ``allocator``: freed memory is kept for the next tensors.
- ``measure``: a process of its own that measures this machine's speed.
"""
