"""What a person can choose from for a run with a model of their own: nothing here is loaded, and nothing asks the network.

:mod:`choice`       one choice and a group of them: the shape of every answer
:mod:`used`         what the runs of this workspace have trained, and what they were started with
:mod:`hub_cache`    what the Hugging Face hub's cache on this disk holds
:mod:`recommended`  models by size, with licence, and what they need
:mod:`models`, :mod:`data`, :mod:`rewards`  the three lists
:mod:`browsing`     folders below the roots that the operator allows
:mod:`uploads`      files that came through the browser
:mod:`hub_search`   the one that asks the network: models and datasets by words
"""
