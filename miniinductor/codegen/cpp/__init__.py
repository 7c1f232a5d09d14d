"""Fused groups in, C++ functions out: the writer, its expressions, accumulators and strategies."""
