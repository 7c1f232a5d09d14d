"""AOTAutograd in miniature: ATen trace, functionalization, the joint graph and its two halves."""
