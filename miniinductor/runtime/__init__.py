"""What runs when a compiled graph is called: the wrapper, its memory, CUDA graphs."""
