"""Programs of breaks.py that need a feature of torch: scripts, hooks, lazy modules, unknown sizes.

In:   nothing.   Out: programs in the table of `break_table.py`.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.fx
import torch.nn.functional as F
import torch._higher_order_ops
import torch.utils.checkpoint
from torch import nn
from torch.overrides import TorchFunctionMode

import minidynamo
from benchmarks.programs.break_table import Program, X, linear, program


# ---- torch.jit.script
@torch.jit.script
def scripted_gelu(x: torch.Tensor, scale: float = 0.5) -> torch.Tensor:
    return x * scale * (1.0 + torch.erf(x / 1.41421))


@torch.jit.script
def scripted_span(x: torch.Tensor, y: torch.Tensor, span: int) -> torch.Tensor:
    return scripted_gelu(x) + torch.sqrt(torch.tensor(y.size(-1) * span).float())


@program
def scripted_function() -> Program:
    return lambda x: scripted_gelu(x) + 1, (X(),)


@program
def scripted_function_that_calls_another() -> Program:
    return lambda x: scripted_span(x, x, 3), (X(),)


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.weight)


@program(graphs=2, breaks=1)
def scripted_module() -> Program:
    module = torch.jit.script(Scale())
    return lambda x: module(x + 1) * 2, (X(),)


# ---- legacy constructors
@program(breaks=1)
def tensor_class_of_a_list() -> Program:
    return lambda x: x * torch.Tensor([1.0, 2.0, 3.0, -4.0]), (X(),)


@program(breaks=1)
def tensor_class_of_sizes() -> Program:
    return lambda x: x + torch.Tensor(3, 4).fill_(2.0), (X(),)


@program(breaks=1)
def tensor_class_of_a_shape() -> Program:
    return lambda x: x + torch.Tensor(x.shape).zero_(), (X(),)


@program(graphs=3, breaks=3)
def typed_tensor_classes() -> Program:
    def f(x):
        index = torch.LongTensor([0, 2])
        return (
            x[index] * torch.FloatTensor([[1.0, 2.0, 3.0, 4.0]]) + torch.DoubleTensor([2]).float()
        )

    return f, (X(),)


# ---- questions about torch and its tensors, modules as arguments
@program
def distributed_queries() -> Program:
    def f(x):
        if dist.is_available() and dist.is_initialized():
            return x
        return x + 1

    return f, (X(),)


class Traced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = linear()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.layer(x)) + x


@program
def graph_module() -> Program:
    module = torch.fx.symbolic_trace(Traced())
    return lambda x: module(x) * 2, (X(),)


@program
def tensor_split() -> Program:
    def f(x):
        a, b, c = torch.tensor_split(x, 3, dim=1)
        first, second = x.tensor_split((1,), dim=0)
        return a.sum() + b.prod() - c.mean() + first.sum() * second

    return f, (X(),)


@program(breaks=1)
def shape_as_tensor() -> Program:
    return lambda x: x * torch._shape_as_tensor(x).sum(), (X(),)


@program
def queries_of_state() -> Program:
    def f(x):
        if torch.fx._symbolic_trace.is_fx_tracing() or torch.jit.is_tracing():
            return x
        if torch._C._get_tracing_state() or torch.is_anomaly_enabled():
            return x * 3
        return x + torch.get_num_threads() * 0 + int(torch.backends.mkldnn.is_available())

    return f, (X(),)


@program(graphs=2, breaks=1)
def new_tensors() -> Program:
    def f(x):
        a = x.new_zeros(x.size(0), 4) + x.new_ones((3, 4)) + x.new_full((4,), 2.5)
        b = x.new_tensor([1.0, 2.0, 3.0, 4.0]) + x.new_empty(3, 4).fill_(1.0)
        return x + a * b + x.new(3, 4).zero_()

    return f, (X(),)


# ---- attributes of tensors
@program(graphs=2, breaks=1)
def data_of_an_input() -> Program:
    def f(x, y):
        x.data = y * 2
        return x + 1

    return f, (X(grad=False), X(grad=False))


@program(graphs=2, breaks=1)
def data_of_a_parameter() -> Program:
    layer = linear()

    def f(x):
        layer.weight.data = layer.weight.data * 0.5
        return layer(x)

    return f, (X(grad=False),)


@program(graphs=2, breaks=1)
def set_underscore() -> Program:
    def f(x, y):
        z = torch.empty(0)
        z.set_(y)
        return x + z

    return f, (X(grad=False), X(grad=False))


@program(graphs=0, breaks=0)
def hook_on_an_intermediate() -> Program:
    def f(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        return y.sin()

    return f, (X(),)


@program
def checkpoint() -> Program:
    layer = linear()

    def body(x):
        return torch.tanh(layer(x)) * 2

    def f(x):
        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False) + 1

    return f, (X(),)


@program
def checkpoint_with_dropout() -> Program:
    layer = linear()

    def body(x):
        return F.dropout(layer(F.dropout(x, 0.1)), 0.5).sin()

    def f(x):
        for _ in range(2):
            x = torch.utils.checkpoint.checkpoint(body, F.dropout(x, 0.2), use_reentrant=False)
        return x

    return f, (X(),)


@program
def checkpoint_reentrant() -> Program:
    layer = linear()

    def f(x):
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True).sin()

    return f, (X(),)


@program(graphs=1, breaks=1)
def tolist_of_an_input() -> Program:
    def f(x, sizes):
        a, b = sizes.tolist()
        return (x[:a] + 1).sum() + (x[a : a + b] * 2).sum()

    return f, (X(), torch.tensor([1, 2]))


@program(graphs=2, breaks=1)
def tolist_of_a_constant() -> Program:
    def f(x):
        sizes = torch.tensor([1, 2]).tolist()
        return x.split(sizes)[1] * 2

    return f, (X(),)


@program(breaks=1)
def gradient_is_set() -> Program:
    def f(x, p):
        p.grad = None
        y = x * p.detach()
        p.grad = y * 2
        return y

    p = X()
    p.grad = torch.ones_like(p)
    return f, (X(), p)


@program
def attribute_of_a_tensor() -> Program:
    def f(x, y):
        x.scale = 2.0
        z = y * x.scale
        z.tag = "made"
        return z if hasattr(z, "tag") else x

    return f, (X(), X())


@program(graphs=2, breaks=1)
def parameter_made_in_a_frame() -> Program:
    def f(x):
        p = nn.Parameter(torch.ones(4) * 2)
        return x * p, p

    return f, (X(),)


@program(graphs=2, breaks=1)
def lazy_module() -> Program:
    torch.manual_seed(1)
    module = nn.LazyLinear(5)
    return lambda x: torch.relu(module(x)), (X(),)


@program(graphs=4, breaks=3)
def lazy_modules() -> Program:
    torch.manual_seed(1)
    model = nn.Sequential(nn.LazyConv1d(3, 1), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(2))
    return model, (X(2, 3, 4),)


@program(graphs=4, breaks=3)
def lazy_module_behind_random_numbers() -> Program:
    torch.manual_seed(1)
    model = nn.Sequential(nn.LazyLinear(3), nn.Dropout(), nn.LazyLinear(2), nn.Dropout())
    return lambda x: model(x), (X(),)


class Doubling(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.sin else result


@program(graphs=1, breaks=1)
def torch_function_mode() -> Program:
    def f(x):
        with Doubling():
            y = torch.sin(x)
        return y + torch.sin(x)

    return f, (X(),)


@program(graphs=2, breaks=1)
def facts_decide_unbacked_numbers() -> Program:
    def f(x):
        n = x.sum().long().abs().item()
        torch._check(n >= 2)
        return x * 2 if n > 1 else x

    return f, (X(grad=False) + 3,)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x * 0.5


@program
def autograd_function() -> Program:
    return lambda x: Cube.apply(x.sin()) + 1, (X(),)


@program(graphs=1, breaks=1)
def autograd_function_made_in_a_frame() -> Program:
    def f(x):
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 3

        return Twice.apply(x)

    return f, (X(),)


# ---- operations whose result only the run knows
@program(graphs=2, breaks=1)
def nonzero() -> Program:
    return lambda x: (x > 0).nonzero().float() * 2, (X(grad=False),)


@program(graphs=2, breaks=1)
def masked_select() -> Program:
    return lambda x: torch.masked_select(x, x > 0) * 2, (X(),)


@program(graphs=2, breaks=1)
def boolean_index() -> Program:
    return lambda x: (x[x > 0] + 1).sum(), (X(),)


@program(graphs=2, breaks=1)
def unique() -> Program:
    return lambda x: torch.unique(x.round()) + 1, (X(grad=False),)


@program(graphs=2, breaks=1)
def bincount() -> Program:
    return lambda x: torch.bincount(x.abs().long().flatten()) + 1, (X(grad=False) * 5,)


@program(graphs=2, breaks=1)
def item() -> Program:
    return lambda x: x * x.max().item(), (X(grad=False),)


@program(graphs=2, breaks=1)
def where_of_a_condition() -> Program:
    return lambda x: torch.where(x > 0)[0] + 1, (X(grad=False),)


@program(graphs=1, breaks=1)
def tolist_into_a_sum() -> Program:
    def f(x, sizes):
        a, b = sizes.tolist()
        return x.sum() + a * 2 + b

    return f, (X(), torch.tensor([1, 2]))


# ---- modules
class WithDisabled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = linear()
        self.plain = minidynamo.disable(linear())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.plain(self.first(x)).sin()


@program(graphs=2, breaks=1)
def disabled_submodule() -> Program:
    return WithDisabled(), (X(),)


@program
def functional_call() -> Program:
    torch.manual_seed(7)
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def f(x, weight):
        changed = {name: value * 2 for name, value in module[1].named_parameters(prefix="1")}
        values = {"0.weight": weight, **changed}
        return torch.func.functional_call(module, values, (x,)), type(module[0].weight).__name__

    return f, (X(), X(4, 4))


@program(graphs=0)
def clipped_gradients() -> Program:
    layer = linear()

    def f(x):
        for parameter in layer.parameters():
            parameter.grad = torch.full_like(parameter, 2.0)
        norm = nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        return norm, [parameter.grad for parameter in layer.parameters()], x + 1

    return f, (X(),)


@program(graphs=1, breaks=1)
def numbers_of_the_run_as_sizes() -> Program:
    def f(x, sizes):
        a, b = sizes.tolist()
        first, second = x.split([a, b])
        return first.sum() * second.mean(), torch.zeros(a, 2) + x.new_full((b, 2), 1.5).sum()

    return f, (X(), torch.tensor([1, 2]))


# ---- classes that say what torch's functions mean
class Image(torch.Tensor):
    """torch gives what is computed of it the same class."""


class Masked:
    """A tensor, and where it counts."""

    def __init__(self, values: torch.Tensor, mask: torch.Tensor) -> None:
        self.values, self.mask = values, mask

    @classmethod
    def __torch_function__(
        cls, func: Callable, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        plain = [value.values if isinstance(value, Masked) else value for value in args]
        mask = next(value.mask for value in args if isinstance(value, Masked))
        return cls(func(*plain, **(kwargs or {})), mask)


@program(graphs=0, breaks=3)
def tensor_subclass() -> Program:
    def f(x):
        image = x.as_subclass(Image)
        return (image * 2).clamp(-1, 1), torch.cat([image, image]).mean(0)

    return f, (X(),)


@program(graphs=4, breaks=2)
def object_with_torch_function() -> Program:
    def f(x):
        masked = torch.exp(torch.add(Masked(x, x > 0), x))
        return torch.where(masked.mask, masked.values, 0.0)

    return f, (X(),)


# ---- loops that the run counts
@program(graphs=1, breaks=1)
def while_loop() -> Program:
    def f(x):
        with torch.no_grad():
            return torch._higher_order_ops.while_loop(
                lambda i, y: i < 5, lambda i, y: (i + 1, y * 1.5), (torch.tensor(0), x.detach())
            )

    return f, (X(),)


@program(graphs=0, breaks=1)
def checkpoint_that_writes_to_a_copy() -> Program:
    def body(x):
        return x.clone().mul_(2).sin()

    return lambda x: torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False), (X(),)


# ---- numbers in tensors
@program(graphs=4, breaks=3)
def largest_of_a_tensor_and_a_number() -> Program:
    def f(x):
        largest = x.detach().abs().max()
        return x / max(largest, 2.0), x * max(0.5, largest), x - min(largest, 1)

    return f, (X(),)


@program(graphs=2, breaks=2)
def tensor_of_tensors() -> Program:
    def f(x):
        ends = torch.tensor([x.min(), x.max()])
        return ends * 2, torch.tensor([[x.sum()], [x.mean()]])

    return f, (X(grad=False),)


@program(breaks=2)
def tensor_class_of_a_tensor() -> Program:
    return lambda x: (torch.Tensor(x).mul(2), torch.FloatTensor(x)), (X(),)


@program(breaks=1)
def type_by_its_class() -> Program:
    return lambda x: x.type(torch.DoubleTensor) + x.type("torch.DoubleTensor"), (X(),)


@program(graphs=2, breaks=3)
def places_in_a_tensor() -> Program:
    def f(x):
        places, sections = torch.tensor([1, 2]), torch.tensor(2)
        whole = torch.tensor_split(x, places), torch.tensor_split(x, sections, dim=1)
        return whole, x.tensor_split(torch.tensor([1, 2]))

    return f, (X(),)


# ---- gradients
@program(graphs=0, breaks=0)
def hooks_on_arguments() -> Program:
    def triple(tensor):
        tensor.grad.mul_(3)

    def f(x, y):
        x.register_hook(lambda gradient: gradient * 2)
        x.register_hook(lambda gradient: gradient + 1)
        y.register_post_accumulate_grad_hook(triple)
        return (x * y).sin()

    return f, (X(), X())


class MixedPrecision(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x @ x.T

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return (gradient + gradient.T) @ x


@program
def autograd_function_of_mixed_precision() -> Program:
    return lambda x: MixedPrecision.apply(x * 2), (X(),)


# ---- sizes that the run knows
@program(graphs=2, breaks=1)
def range_of_an_item() -> Program:
    return lambda x, n: x.sum() * torch.arange(n.item()).sum(), (X(), torch.tensor(3))


@program(breaks=1)
def shape_of_numbers_of_the_run() -> Program:
    return lambda x, sizes: x.reshape(sizes.tolist()) * 2, (X(), torch.tensor([2, 6]))
