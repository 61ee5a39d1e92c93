"""What an evaluation run compares, what it keeps of each answer beside its text and scores, and what people say of two of them."""
