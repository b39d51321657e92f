"""Published weights by name, downloads, and safe reading of checkpoint files."""
