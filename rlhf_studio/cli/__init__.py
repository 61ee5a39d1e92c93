"""The command line: ``python -m rlhf_studio``.

Start reading in :mod:`.main`, which knows all commands and imports neither torch nor the app.

- :mod:`.train`: ``train``, ``resume`` and ``stop``; the first two make or check the run folder and hand it to :mod:`.engine`.
- :mod:`.engine`: what happens around an engine: other settings, the environment of torch, one process or several, ``stop``.
- :mod:`.score`, :mod:`.show` (``runs``, ``recipes``), :mod:`.doctor`, :mod:`.prepare` (``convert``, ``from-trl``).
- :mod:`.options`: what several commands read from their options.

``app`` and ``world`` read their own arguments, in :mod:`rlhf_studio.ui.app` and :mod:`rlhf_studio.lessons.world_build.command`.
Every command ends with a code of :mod:`rlhf_studio.exit_codes`.
"""
