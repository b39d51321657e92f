"""Find the mistakes of a config before training: see ``config.py``."""
