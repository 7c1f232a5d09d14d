"""What only makes C++ kernels faster: strategies that register themselves (codegen/strategy.py)."""
