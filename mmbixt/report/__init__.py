"""A report of a run: one HTML file with its curves, scores, pictures and config."""
