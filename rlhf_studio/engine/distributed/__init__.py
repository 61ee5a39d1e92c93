"""Several processes (ranks) that train one policy together; accelerate starts and connects them.

Start with ``ranks``.

- ``ranks``: which rank this process is, and the collective operations: gather, all_reduce, broadcast.
- ``gathering``: one batch from the parts that ranks or lanes have computed.
- ``sharding``: weights sharded over the ranks (FSDP2), and their full tensors for a checkpoint.
"""
