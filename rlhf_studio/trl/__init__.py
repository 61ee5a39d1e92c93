"""From TRL's PPO to this program: the table of TRL's options (table.yaml), and a converter for what people wrote for TRL (convert.py).

The page docs/from-trl.md is made from the same table by tools/from_trl_page.py.
"""
