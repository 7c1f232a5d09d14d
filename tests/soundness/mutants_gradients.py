"""Mutants of autograd and random numbers: histories of outputs, changes of requires_grad, the order
of draws."""

import torch

from miniinductor.autograd import joint, outputs
from miniinductor.lowering import random

from .mutants import mutant

GRADIENTS = "gradients --count 200 --modes aot_eager,aot_eager-training"
RANDOMNESS = "randomness --modes aot_eager,inductor"


@mutant("custom functions are forgotten behind views", GRADIENTS)
def _() -> None:
    outputs.passes_custom_function = lambda leaf, source: False


@mutant(
    "views are made of inputs without checking their history",
    "gradients --first 120 --count 20 --modes aot_eager",
)
def _() -> None:
    # (without `with_history` nothing would be wrong: `check_histories` then refuses each program)
    outputs.ViewPlanner.checked = lambda self, leaf, source, output: output


@mutant("requires_grad_() of an input is lost", GRADIENTS)
def _() -> None:
    joint.check_histories = lambda tensors, objects: None


@mutant("views are always recorded", GRADIENTS)
def _() -> None:
    outputs.MODES.update(dict.fromkeys(outputs.MODES, torch.enable_grad))


@mutant("a view is not replayed", GRADIENTS)
def _() -> None:
    outputs.replay = lambda tensor, steps: tensor


@mutant("several outputs of a custom function are taken for linear", GRADIENTS)
def _() -> None:
    joint.has_several_outputs = lambda function: False


@mutant("numbers are drawn by other rules", RANDOMNESS)
def _() -> None:
    from miniinductor.lowering import decompositions

    decompositions.OURS.update(random.FUSED_RANDOM)
