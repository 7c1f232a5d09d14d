"""What a tensor tells of itself without its numbers: dtype, device, `size()`, `dim()`, len...

In:   a TensorVar and a name.   Out: constants of the fake tensor, no node; views of the tensor.

    >>> tensor.getattr(tx, "dtype")         # constant torch.float32

`shape` is in the core.  What is not among the guards of every input is guarded when it is read.
"""

from collections.abc import Callable
from typing import Any


from ...extras.extending import extends
from ...exceptions import Break
from ...foreign import ours
from ..base import Frame, Variable
from ..constant import ConstantVar
from ..tensor import TensorVar

METADATA = frozenset(
    """
    dtype device layout ndim requires_grad is_leaf is_cuda is_cpu is_sparse is_quantized is_meta
    is_mps is_xpu is_mkldnn is_nested itemsize nbytes names output_nr is_sparse_csr is_mtia
    is_ipu is_xla is_vulkan is_maia retains_grad
    """.split()
)

METADATA_METHODS = {"dim", "ndimension", "numel", "nelement", "stride"}

# Not among the guards of every input: guarded when they are read.
UNGUARDED = {"is_leaf", "retains_grad", "output_nr", "names"}

HISTORY = {"requires_grad", "is_leaf", "grad_fn"}

plain_shape = TensorVar.get_shape
VIEWS = {"T", "mT", "H", "mH", "real", "imag", "data"}


@extends(TensorVar)
class Metadata(TensorVar):
    def _metadata(self, tx: Frame, name: str) -> Variable:
        """An attribute that the fake tensor has, too: no node."""
        if name in UNGUARDED and self.value is not None:
            found = getattr(self.value, name)
            tx.output.guard(self.source, ("FLAG", name), f"{{0}}.{name} == {{pin}}", found)
            if name == "retains_grad":  # fake tensors do not carry it
                return ConstantVar(found)
        return tx.output.wrap_result(self.of_fake(tx, name))

    def of_fake(self, tx: Frame, name: str) -> Any:
        """The fake tensor's attribute; of a view that was written in another mode, autograd may
        refuse to tell it."""
        if id(self.fake) in tx.output.untold and name in HISTORY:
            raise Break("tensor attribute", f"Tensor.{name} of a view made in inference mode")
        try:
            return getattr(self.fake, name)
        except ours(RuntimeError) as error:
            raise Break("tensor attribute", f"Tensor.{name}: {str(error)[:80]}") from None

    def get___class__(self, tx: Frame) -> Variable:
        return tx.output.wrap_pinned(self.cls)

    def get_shape(self, tx: Frame) -> Variable:
        self.guard_shape(tx)
        return plain_shape(self, tx)

    def guard_shape(self, tx: Frame) -> None:
        """A parameter's shape was asked for: from now on it matters whatever the backend is."""
        if self.source is not None and self.value is not None:
            check = f"{{0}}.shape == {tuple(self.value.shape)}"
            tx.output.guard(self.source, "SHAPE", check)

    def length(self, tx: Frame) -> Any:
        if not self.fake.dim():
            tx.raise_(TypeError, "len() of a 0-d tensor")
        return self.fake.shape[0]

    def method___len__(self, tx: Frame) -> Any:
        return tx.output.wrap_result(self.length(tx))

    def method_size(self, tx: Frame, dim: Variable | None = None) -> Any:
        self.guard_shape(tx)
        if dim is not None and dim.identity() is not None:
            return tx.fold(lambda: self.fake.size(dim.as_constant()))
        return self.get_shape(tx)


def attribute(name: str) -> Callable:
    return lambda self, tx: self._metadata(tx, name)


def view(name: str) -> Callable:
    return lambda self, tx: tx.node(getattr, [self, ConstantVar(name)])


def metadata_method(name: str) -> Callable:
    def method(self: TensorVar, tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
        values = [value.as_constant() for value in (*args, *kwargs.values())]
        return tx.fold(getattr(self.fake, name), *values)

    return method


for _name in METADATA:
    extends(TensorVar, f"get_{_name}")(attribute(_name))
for _name in VIEWS:
    extends(TensorVar, f"get_{_name}")(view(_name))
for _name in METADATA_METHODS:
    extends(TensorVar, f"method_{_name}")(metadata_method(_name))
