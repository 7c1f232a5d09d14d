"""From real values and their sources to variables, guarding what is assumed."""
