"""The app with people who are no operators: the modes, who a visitor is, what visitors and students may start, and whose a run is."""
