"""From the id of a run to its folder: in the workspace, or among the recordings that came with the program.

- :mod:`.folders`: the runs of a workspace and the recordings, by id. Start here.
- :mod:`.recordings`: the recordings, as runs that are only read.
- :mod:`.unpack`: an archive with the hashes of its files, unpacked once into a cache folder.
"""
