"""The gallery: small experiments as cards, each with its question, a picture, an answer, and how to run it again. No torch is needed."""
