"""The app on a machine that somebody else runs, such as a Hugging Face Space or a container."""
