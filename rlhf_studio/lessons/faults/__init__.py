"""Break it on purpose: ready experiments, each a pair of runs of the review world from one seed, one of them with a fault."""
