"""AOTAutograd in miniature: the ATen trace and its functionalization (the joint graph comes with
training)."""
