"""Values that fewer programs have: each file registers with the builder what it wraps, and how."""
