"""Values and mutations as bytecode again, and the rest of a function behind a graph break."""
