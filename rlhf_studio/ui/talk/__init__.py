"""The Talk page: two policies answer one prompt side by side.

:mod:`.page` has the functions that the page can call, :mod:`.sent` checks what the page sends.
"""
