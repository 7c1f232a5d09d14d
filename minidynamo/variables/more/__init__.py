"""Values beside the core: each file registers with the builder what it wraps, and how."""
