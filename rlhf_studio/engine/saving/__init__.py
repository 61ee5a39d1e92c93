"""Checkpoints and snapshots of a run: safetensors and JSON, complete or absent."""
