"""Reading and checking what a person points at: models, prompts, reward components, this machine. Without torch and transformers.

:mod:`models`         the small files of a model, on this machine or on the hub
:mod:`prompts`        prompts from files and from the hub
:mod:`checks`         what is wrong with a run's settings, found before it starts
:mod:`families`       which kinds of language models can be trained, and which ways of computing faster were tested with them
:mod:`chat`           chat templates
:mod:`tokens`         counting tokens with a tokenizer.json
:mod:`helper`         work on data that nobody has checked, in a process of its own with limits
:mod:`relative_paths` relative paths in settings, and where they start
:mod:`trained`        models that runs have trained, named by the run
:mod:`choices`        what can be chosen for a run with a model of one's own
:mod:`estimate`       what a run will cost
:mod:`preflight`      all checks of a run before it starts

Nothing heavy is loaded and no weights are fetched. What is wrong becomes a :class:`rlhf_studio.config.io.Problem` or an error with one
sentence for people, before a run folder exists.
"""
