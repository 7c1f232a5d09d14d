"""Marks on tensors, where sizes become symbols."""

from collections.abc import Iterable

import torch

from .extending import extends
from .. import hooks
from ..dynamic import SizePolicy
from ..exceptions import SpecializationError
from ..graph_capture import OutputGraph
from ..sources import Source

plain_pin = SizePolicy.pin


@extends(SizePolicy)
class Marks(SizePolicy):
    def marks(self, tensor: torch.Tensor, name: str) -> tuple[set[int], set[int]]:
        """The dimensions that `mark_dynamic` and `mark_static` have named."""
        marked = set(tensor.__dict__.get("_minidynamo_dynamic", ()))
        known = vars(self).setdefault("marked_sizes", set())  # as their sources are written
        known.update(f"{name}.shape[{dim}]" for dim in marked)
        return marked, set(tensor.__dict__.get("_minidynamo_static", ())) - marked

    def pin(self, found: Iterable[tuple[Source, float, str]]) -> bool:
        rows = list(found)
        check_marks(self, rows)
        return plain_pin(self, rows)


def check_marks(policy: SizePolicy, found: Iterable[tuple[Source, float, str]]) -> None:
    """SpecializationError if a size that is marked dynamic was needed as a number."""
    for source, value, line in found:
        name = source.name()
        if name in vars(policy).get("marked_sizes", ()):
            raise SpecializationError(
                f"{name} was marked dynamic, but {line or 'the backend'} needs it as the "
                f"number {value}\n  hint: change that line, or leave the size unmarked: it is "
                "a symbol, too, when calls come with another number"
            )


@hooks.GUARDS.append
def check_for_backend(output: OutputGraph) -> None:
    """The backend may have needed a number, too."""
    check_marks(output.policy, output.shape_env.pinned())
