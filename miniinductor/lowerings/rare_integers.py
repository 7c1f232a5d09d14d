"""Integers that few programs compute with, in C++."""

import torch

from ..codegen.cpp_expressions import SUFFIXES, TYPES

for _name in ("int8", "int16", "uint16", "uint32", "uint64"):
    TYPES[getattr(torch, _name)] = (f"{_name}_t", f"{_name}_t")
SUFFIXES |= {torch.uint32: "LL", torch.uint64: "LL"}
