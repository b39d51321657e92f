"""Pictures of attention and of errors near boundaries."""
