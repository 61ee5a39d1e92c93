"""What scores: a file per kind of reward component, or per family of kinds. Each builder registers itself with ``@scorer``.

``rules.py`` and ``lexicon.py`` (the text alone), ``overlap.py`` (BLEU, ROUGE) and ``answer.py`` (against a reference),
``reward_model.py``, ``ensemble.py`` and ``chats.py`` (sequence-classification models), ``python_function.py``, ``scoring_server.py`` and
``judge.py`` (outside this program). ``registry.py`` one folder up imports every file of this one.
"""
