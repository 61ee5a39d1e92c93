"""The review world: a small made-up language of film reviews, in which the true quality of a text can be computed.

``vocabulary.py`` has the words and ``grammar.py`` the rules; ``writer.py`` writes reviews by them and ``parser.py`` parses any text by
them. ``gold.py`` computes the true reward, and ``corpus.py`` draws what the models learn from. ``world_build`` trains the models.
"""
