"""The models of the review world: trained from seeds (build.py) and measured (check.py); and recorded runs.

The command is ``python -m rlhf_studio world`` (command.py).
"""
