"""Taking a run home: weights with a model card, a report, tables, the hub."""
