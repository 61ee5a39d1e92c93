"""An evaluation run: several policies answer the same held-out prompts, and other models score the answers.

Read in this order:

- :mod:`.stage`: the run: one batch of prompts is one step.
- :mod:`.answering`: the answers of one policy to a batch of prompts, and their log-probabilities under the reference.
- :mod:`.loading`: the policies in memory; what they share is loaded once.
- :mod:`.prompts`: the prompts as each tokenizer reads them, and the held-out text.
- :mod:`.completions`: a file of answers as a policy.
- :mod:`.saved`: its checkpoints, which hold no weights.
- :mod:`.completing` and :mod:`.labelling`: what the commands ``generate --out`` and ``label`` do.
"""
