"""Which sizes become symbols, the ShapeEnv that hands them out, numbers that are expressions."""
