"""What a checkout of this program does, seen from outside, written down as text: to compare before and after a change of its inside.

``python -m tools.frozen collect CHECKOUT OUT`` uses the command line, ``app.py``, HTTP and the file formats of a checkout, never its
modules, so it works on any checkout whose inside has moved. ``python -m tools.frozen compare OLD NEW`` names each difference.
"""
