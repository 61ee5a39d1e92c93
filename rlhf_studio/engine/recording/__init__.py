"""What is kept of a step: its numbers, its recorded episodes, and sentences about it for people.

- :mod:`.records`: the metrics of a step, and the recorded episodes with every token. Start here.
- :mod:`.last_logprobs`: the new log-probabilities of an update, kept while it goes on.
- :mod:`.costs`: seconds, memory and speed.
- :mod:`.health`: sentences for people, such as a ratio that does not start at 1.
- :mod:`.skips`: what is left out because a number is not finite or a reward failed, and how often that may happen.

Nothing here changes what is learned.
"""
