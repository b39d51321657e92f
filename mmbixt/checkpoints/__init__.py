"""Safe reading of checkpoint files, and conversion of the authors' layouts to ours."""
