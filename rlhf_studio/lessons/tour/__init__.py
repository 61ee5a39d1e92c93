"""The tour: our engine's own source along the way of the data through a step. Each station is a lesson of one scene."""
