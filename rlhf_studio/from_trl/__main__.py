"""``python -m rlhf_studio.from_trl > docs/from-trl.md``."""

from rlhf_studio.from_trl.page import document

if __name__ == "__main__":
    print(document(), end="")
