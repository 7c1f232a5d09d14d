"""The frame hook (PEP 523, in C), and its Python face."""
