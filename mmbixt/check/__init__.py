"""What is wrong with a config, found before anything is trained: see ``config.py``."""
