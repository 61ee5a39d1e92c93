"""What teachers need: a ready hour, sheets of questions by a seed, and codes that say how a student answered. Only sheets load torch."""
