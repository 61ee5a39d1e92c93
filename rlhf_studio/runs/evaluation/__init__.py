"""What an evaluation run keeps of each answer beside its text and scores.

- :mod:`.answers`: the record, its rows, and reading the answers of a run.
"""
