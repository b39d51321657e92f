"""Reading checkpoint files safely, and the authors' layouts as ours."""
