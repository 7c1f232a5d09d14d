"""Sources in, functions of machine code out; what was built is kept on disk."""
