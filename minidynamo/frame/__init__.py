"""The frame hook (PEP 523, in C), its Python face, and the originals of Python and torch."""
