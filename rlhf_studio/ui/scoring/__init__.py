"""Scoring a text without a run: :mod:`.playground`, with one reward model, and :mod:`.try_it`, with the Train page's reward settings.

Both are answered by one :class:`rlhf_studio.child_process.service.Service` of the kind "score"; :mod:`.sent` checks what they send. The
playground can be put on any page: give :meth:`.playground.RewardPlayground.functions` to the page's panel, its style to the page's styles,
and mount ``assets/playground/playground.js`` where it is to stand.
"""
