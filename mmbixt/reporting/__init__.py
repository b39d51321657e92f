"""One HTML file of a run, for people: its curves, scores, pictures and configuration."""
