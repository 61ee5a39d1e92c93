"""What is kept and told of a step.

- :mod:`.records`: the metrics of a step, and the recorded episodes with every token. Start here.
- :mod:`.last_logprobs`: the new log-probabilities of an update, kept while it goes on.
- :mod:`.costs`: seconds, memory and speed.
- :mod:`.health`: sentences for people, such as a ratio that does not start at 1.
- :mod:`.skips`: what is left out because of a bad number, and how often that may happen.

Nothing here changes what is learned.
"""
