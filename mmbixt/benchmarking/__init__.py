"""How long networks take, how much memory, and how both grow."""
