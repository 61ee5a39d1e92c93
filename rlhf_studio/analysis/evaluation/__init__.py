"""What the answers of several policies to the same prompts say of these policies.

Read in this order:

- :mod:`.answers`: the answers of an evaluation run, by policy and prompt.
- :mod:`.intervals`: means, shares and perplexities with confidence intervals; the prompt is the unit.
- :mod:`.texts`: distinct-n, repetition, and what differs between two answers, word by word.
- :mod:`.compare`: differences and win rates between two policies, and how often a reward orders answers as gold does.
- :mod:`.frontier`: reward and gold against the distance from the reference: where a reward is over-optimised.
- :mod:`.report`: all of it for one run.
- :mod:`.in_words`: what that comes to, in one sentence.

Pages, tables and the command line show what :func:`~rlhf_studio.analysis.evaluation.report.report_of` gives.
"""
