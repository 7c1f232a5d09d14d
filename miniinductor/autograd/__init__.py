"""AOTAutograd in miniature: the ATen trace, its functionalization, the joint graph and its two halves."""
