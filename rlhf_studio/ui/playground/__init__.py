"""The reward playground: one reward model and one text. :mod:`.page` is what the component can ask, :mod:`.sent` what it sends.

It can be put on any page: give :meth:`.page.RewardPlayground.functions` to the page's panel, its style to the page's styles, and mount
``assets/playground/playground.js`` where it is to stand. The process that answers is :class:`rlhf_studio.child_process.service.Service`'s.
"""
