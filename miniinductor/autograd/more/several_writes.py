"""Calls that write several tensors, or that have results beside what they write.

In:   a call that writes, and its functional form (functionalize.py).  Out: new values of what it
      has written: the last results of that form.

    torch.max(x, 0, out=(a, b))                     # writes two tensors
    torch.nn.functional.batch_norm(x, mean, var, training=True)     # its statistics, and a result

Without this file such a graph runs eagerly.
"""

import operator

import torch

from ...hooks import extends
from ..functionalize import Functionalizer, Node


@extends(Functionalizer)
class SeveralWrites(Functionalizer):
    def keep_written(self, node: Node, victims: list[Node], result: Node) -> None:
        value = result.meta["val"]
        if len(victims) == 1 and isinstance(value, torch.Tensor):
            return super().keep_written(node, victims, result)
        results = [self.emit(node, operator.getitem, (result, i)) for i in range(len(value))]
        for victim, new in zip(victims, results[-len(victims) :]):
            self.write(victim, self.as_victim(node, victim, new))
        if isinstance(node.meta["val"], tuple) and node.meta["val"]:
            self.own(node, result)  # its own results are read by getitem
        elif isinstance(node.meta["val"], torch.Tensor) and len(value) > len(victims):
            self.own(node, results[0])  # rrelu_with_noise
        elif len(victims) == 1:  # what the call returns is the tensor that it has written
            node.replace_all_uses_with(victims[0])
