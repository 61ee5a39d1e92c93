"""What single choices of RLHF are worth on the review world: one setting changed at a time."""
