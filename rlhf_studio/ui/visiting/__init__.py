"""The app with people who are no operators: its modes, who a visitor is, and what visitors and students may start."""
