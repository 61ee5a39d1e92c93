"""A class: its link, where the teacher is, prediction rounds, and what is forgotten at its end."""
