"""ATen tracer: run a function on fake tensors and record every ATen call as an FX node.

In:   a callable over tensors (a captured `fx.GraphModule`).  Out: an `fx.GraphModule` of ATen ops.

    >>> gm = trace(torch.nn.Linear(4, 2), [torch.randn(3, 4)])
    >>> print(gm.graph)         # t, addmm

A `TorchDispatchMode` sits *below* autograd: by the time an op reaches it, composite ops have been
split into ATen ops. Parameters stay `get_attr` nodes; other tensors from outside become constants.
Symbolic sizes (`torch.SymInt`) are computed while tracing: they stand in the recorded arguments,
`view(x, [s0, 64*s1])`, and print as Python over the graph's first placeholders, one per symbol.
Mirrors torch/fx/experimental/proxy_tensor.py (`make_fx`), paper section 3.10.  Left out:
sub-classes of Tensor.
"""

import contextlib
import functools
import math
import operator

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from .. import config
from ..eager_layouts import strides_in_eager
from ..eager_support import refusal
from ..exceptions import CannotFunctionalize, CannotTrace, DataDependent
from ..fake_mode import FakeMode
from ..foreign import ours, together
from ..hooks import CALLS
from ..sizes.symbols import hint, same, same_sizes, sizes
from .functionalize import functional_form, graph_module, is_view

aten = torch.ops.aten
RESIZING = {
    aten.resize_.default,
    aten.resize_as_.default,
    aten.set_.source_Tensor,
    aten.set_.default,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
}
OWN_DROPOUT = {
    F.dropout,
    torch.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
}
RESAMPLING = {F.interpolate, F.upsample, F.upsample_nearest, F.upsample_bilinear, F.grid_sample}
FEW = 4096  # elements
# Python's rules for these neither ask for the dtype nor look at the targets, as eager's kernels do
LOOKS_CLOSER = {"hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss"}
LIFT = {aten.lift_fresh.default, aten.lift_fresh_copy.default}


@contextlib.contextmanager
def _autocast(**options):
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(
                    torch.autocast(device, dtype=torch.get_autocast_dtype(device), **options)
                )
        yield


def ambient_autocast():
    """Autocast as it is, without its cache of cast weights: fake casts must not get into it."""
    return _autocast(cache_enabled=False)


def ambient(function):
    """`function` without arguments, to be called later with gradients, autocast and this package's
    switches as they are now."""
    recording, switches = torch.is_grad_enabled(), config.switches()
    autocast = [
        (d, torch.get_autocast_dtype(d), torch.is_autocast_enabled(d)) for d in ("cpu", "cuda")
    ]

    def called():
        with contextlib.ExitStack() as stack:
            for context in (
                torch.set_grad_enabled(recording),
                config.patch(**switches),
                *[torch.autocast(d, dtype, enabled) for d, dtype, enabled in autocast],
            ):
                stack.enter_context(context)
            return function()

    return called


def no_autocast():
    """The casts are in the graph; running it must not cast again."""
    return (
        _autocast(enabled=False)
        if torch._C._is_any_autocast_enabled()
        else contextlib.nullcontext()
    )


def recording_mode():
    """How autograd treats a view that is made now: "inference", "grad" or "no_grad"."""
    if torch.is_inference_mode_enabled():
        return "inference"
    return "grad" if torch.is_grad_enabled() else "no_grad"


def data_of(tensor):
    """The step of a view that `.data` is: no part of autograd's history, writes are not counted."""
    return tensor.data


def without_autocast(function, *arguments):
    """function(*arguments), the same.  It is put back by one call of C, so that no exception of a
    signal's handler leaves it off."""
    if not torch._C._is_any_autocast_enabled():
        return function(*arguments)
    before = {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")}
    put_back = together(list, *[(torch.set_autocast_enabled, *one) for one in before.items()])
    try:
        torch.set_autocast_enabled("cpu", False)
        torch.set_autocast_enabled("cuda", False)
        return function(*arguments)
    finally:
        put_back()


class Tracer(TorchDispatchMode):
    """Records into `self.graph`; `self.meta` is copied onto each new node (origins, user line)."""

    @classmethod
    def _should_skip_dynamo(
        cls,
    ):  # else torch wraps the handler in torch._dynamo.disable, at a cost per op
        return False

    def __init__(self, fake_mode, decompositions=None):
        super().__init__()
        self.fake_mode = fake_mode
        self.decompositions = decompositions or {}
        self.graph = fx.Graph()
        self.constants = {}  # attribute name -> real tensor
        self.meta = {}
        self.before_record = (
            None  # called before each op: the joint trace sets `meta` of backward ops there
        )
        self._node_of, self._fake_of, self._alive = {}, {}, []
        self._made_by = {}  # id of a tensor that shares memory -> (its source, a step of a view)
        # ids of tensors whose version a write has raised: of a base, not of what it is `.data` of
        self.versions_raised = set()
        # ids of tensors of which an as_strided() of a part has reached other parts
        self.reached_around = set()

    # --- tensors and their nodes ------------------------------------------------------------------
    def bind(self, tensor, node):
        self._node_of[id(tensor)] = node
        self._alive.append(tensor)  # ids stay unique
        node.meta.setdefault("val", tensor)

    def placeholder(self, name, fake):
        node = self.graph.placeholder(name)
        node.meta["val"] = fake
        if isinstance(fake, torch.Tensor):
            self.bind(fake, node)
        return node

    def share(self, tensor, source, op, args=(), kwargs=None):
        """`tensor` is op(source, ...) and shares its memory."""
        step = (op, tuple(args), dict(kwargs or {}), recording_mode())
        self._made_by[id(tensor)] = (source, step)

    def derivation(self, tensor, ends=()):
        """(root, steps): the tensor that `tensor` is a view of, and how it was made from that.

        ends: ids of tensors; the first of them on the way is the root.
        """
        steps, root = [], tensor
        while id(root) in self._made_by and (root is tensor or id(root) not in ends):
            source, step = self._made_by[id(root)]
            # autograd makes a view's tensor of the one that it was given, by a detach of its own
            if step[0] is not aten.detach.default or not root._is_view():
                steps.append(step)
            root = source
        return root, tuple(reversed(steps))

    def note_writes(self, func, args, kwargs):
        """Writes raise the version of what the tensor is a view of; `.data` has one of its own."""
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            for tensor in given if isinstance(given, (tuple, list)) else (given,):
                self.check_mode_of(tensor)
                while (
                    id(tensor) in self._made_by and self._made_by[id(tensor)][1][0] is not data_of
                ):
                    tensor = self._made_by[id(tensor)][0]
                self.versions_raised.add(id(tensor))

    def note_reach(self, source, out):
        """`out` is source.as_strided(...): does it read what `source`, a part, does not have?

        When the whole is written later, autograd makes the history of `out` anew: of an eager
        tensor by one as_strided() of the whole, of ours by the views in turn, and the gradient of
        what lies around the part is lost."""
        root = self.derivation(source)[0]
        first, last = span_of(source)
        start, end = span_of(out)
        if root is not source and (start < first or end > last):
            self.reached_around.add(id(root))

    def check_reach(self, args, kwargs):
        """Raise CannotTrace if this write makes autograd give a wrong history to an earlier
        as_strided()."""
        met = []
        of_tensors((args, kwargs), met.append)
        if not (torch.is_grad_enabled() and any(t.requires_grad for t in met)):
            return
        if any(id(self.derivation(t)[0]) in self.reached_around for t in met):
            raise CannotTrace("a write after as_strided() of a part that reaches around the part")

    def check_mode_of(self, tensor):
        """Raise CannotTrace if eager might refuse to write `tensor`: fake ones do not always know
        that they were made in inference mode."""
        if torch.is_inference_mode_enabled() or not isinstance(tensor, torch.Tensor):
            return
        modes = [mode for *_, mode in self.derivation(tensor)[1]]
        if tensor.is_inference() or "inference" in modes:
            raise CannotTrace("a write to what was made in inference mode, outside of it")

    def constant(self, tensor, path=None):
        """The get_attr node of a real tensor, which the captured graph has at `path`.

        `self.h.weight` is `self_h_weight` from here on: no name in generated code begins so."""
        node = self._node_of.get(id(tensor))
        if node is None:
            name = f"_constant{len(self.constants)}"
            if path is not None:
                name = "self_" + path.replace(".", "_")
            while name in self.constants:  # `a.b` and `a_b`
                name += "_"
            self.constants[name] = tensor
            node = self.graph.get_attr(name)
            self.bind(tensor, node)
            fake = self.to_fake(tensor)
            node.meta["val"] = fake
            self.bind(fake, node)
        return node

    def node_of(self, tensor):
        node = self._node_of.get(id(tensor))
        if node is None:
            if isinstance(tensor, FakeTensor):
                raise RuntimeError(f"a fake tensor that this trace did not make: {tensor}")
            node = self.constant(tensor)
        return node

    def nodes_of(self, tree):
        return of_tensors(tree, self.node_of)

    def to_fake(self, tensor):
        if isinstance(tensor, FakeTensor):
            return tensor
        if id(tensor) not in self._fake_of:
            with _disable_current_modes():
                self._fake_of[id(tensor)] = self.fake_mode.from_tensor(tensor, static_shapes=True)
        return self._fake_of[id(tensor)]

    def module(self, name):
        """The recorded graph, with the real tensors that it refers to."""
        root = torch.nn.Module()
        for key, tensor in self.constants.items():
            (
                root.register_parameter
                if isinstance(tensor, torch.nn.Parameter)
                else root.register_buffer
            )(key, tensor)
        gm = graph_module(root, self.graph, name)
        gm.meta["fake_mode"] = self.fake_mode
        return gm

    # --- the loop ---------------------------------------------------------------------------------
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self.before_record is not None:
            self.before_record()
        if func is torch.ops.prim.device.default and isinstance(args[0], FakeTensor):
            return args[0].fake_device  # most of all questions: autograd's
        refuse_what_eager_refuses(func, args, kwargs)
        if func._schema.is_mutable:
            refuse_overlap(func, args, kwargs)
        if func._schema.is_mutable and torch.Tag.nondeterministic_seeded in func.tags:
            # eager draws in the order of memory; the functional form in that of the indices
            written = written_argument(func, args, kwargs)
            order = sorted(
                range(written.dim()), key=lambda d: hint(written.stride(d), 0), reverse=True
            )
            if order != sorted(order):
                if written is not args[0]:
                    raise CannotTrace(f"{func} draws into memory of another order")
                with self:
                    func(written.permute(order), *args[1:], **kwargs)
                return written
        if func in (aten.detach.default, aten.alias.default):
            with self.fake_mode:  # another tensor object, the same value: no node
                out = func(self.to_fake(args[0]))
            self.bind(out, self.node_of(args[0]))
            self.share(out, self.to_fake(args[0]), func)
            return out
        rule = self.decompositions.get(func)
        if rule is not None and refusal(func, args, kwargs):
            rule = None  # the eager kernel raises
        if rule is not None:
            known = len(self._alive)
            with self:
                out = rule(*args, **kwargs)
            if out is not NotImplemented:
                out = self.in_eager_layout(func, args, kwargs, out)
                if not is_view(func):
                    self.forget_inner_views(out, known)
                return out
        elif is_composite(func):  # reached when autograd was off
            with self:
                return func.decompose(*args, **kwargs)
        functional = functional_of(func) if func._schema.is_mutable else None
        rule = self.decompositions.get(functional)
        if rule is not None and not refusal(functional, args, kwargs):
            with self:  # x.silu_() is x.copy_(silu(x)), and silu has a decomposition
                out = rule(*args, **kwargs)
                if out is not NotImplemented and torch.can_cast(out.dtype, args[0].dtype):
                    return args[0].copy_(out)
        if torch.Tag.inplace_view in func.tags:
            return self.record_inplace_view(func, args, kwargs)
        return self.record(func, args, kwargs)

    def forget_inner_views(self, out, known):
        """The results of a decomposition are no views of what it made on the way.

        `torch.stack` is written as a view of `cat(...)`; to autograd, eager's is a tensor of its
        own, and `stack(...).flatten()` is a view of that.  known: how many tensors were bound before.
        """
        inner = {id(tensor) for tensor in self._alive[known:]}
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and id(self.derivation(leaf)[0]) in inner:
                self._made_by.pop(id(leaf), None)

    def in_eager_layout(self, func, args, kwargs, out):
        """The result of a decomposition, in the strides that the op itself gives where an argument
        is not contiguous."""
        strided = []
        of_tensors((args, kwargs), lambda t: None if t.is_contiguous() else strided.append(t))
        if gives_what_it_is_given(func) or not strided:
            return out
        wanted = pytree.tree_leaves(self.fake_result(func, args, kwargs))
        leaves, spec = pytree.tree_flatten(out)
        for i, (have, want) in enumerate(zip(leaves, wanted)):
            if (
                isinstance(have, torch.Tensor)
                and same_sizes(have.shape, want.shape)
                and any(
                    n not in (0, 1) and not same(a, b)
                    for n, a, b in zip(sizes(have.shape), have.stride(), want.stride())
                )
            ):
                order = sorted(
                    range(want.dim()), key=lambda d: hint(want.stride(d), 0), reverse=True
                )
                with self:
                    leaves[i] = (
                        have.permute(order)
                        .contiguous()
                        .permute([order.index(d) for d in range(want.dim())])
                    )
        return pytree.tree_unflatten(leaves, spec)

    def fake_result(self, func, args, kwargs):
        """What the op gives for fake tensors, in the strides that eager's kernel gives it."""
        fake_args, fake_kwargs = of_tensors((args, kwargs), self.to_fake)
        with self.fake_mode:
            out = func(*fake_args, **fake_kwargs)
            if gives_what_it_is_given(func):
                return out
            if isinstance(out, torch.Tensor):
                return in_strides(out, *strides_in_eager(func, fake_args, fake_kwargs, [out]))
            leaves, spec = pytree.tree_flatten(out)
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
            made = [leaves[i] for i in places]
            for i, strides in zip(places, strides_in_eager(func, fake_args, fake_kwargs, made)):
                leaves[i] = in_strides(leaves[i], strides)
        return pytree.tree_unflatten(leaves, spec)

    def record_inplace_view(self, func, args, kwargs):
        """`x.unsqueeze_(0)` changes no data: from here on the tensor object x stands for a view of
        what it was."""
        tensor, node = args[0], self.node_of(args[0])
        if node.op != "call_function" or func in RESIZING:
            raise CannotTrace(f"{func} changes the shape of an input, or of memory itself")
        functional = functional_form(func)[0]
        with self.fake_mode:
            node.meta["val"] = old = aten.alias(tensor)  # the old node keeps the old shape
            func(*args, **kwargs)
        view = self.graph.call_function(functional, (node, *args[1:]), kwargs)
        view.meta.update(self.meta)
        self.bind(old, node)
        if id(tensor) in self._made_by:
            self._made_by[id(old)] = self._made_by[id(tensor)]
        self.share(tensor, old, functional, args[1:], kwargs)
        self.bind(tensor, view)
        return tensor

    def record(self, func, args, kwargs):
        try:
            with self.fake_mode:
                if (
                    func in LIFT
                ):  # given the real tensor, the fake remembers its value (torch.tensor(3.).item())
                    func = aten.lift_fresh_copy.default
                    out = aten.lift_fresh.default(*args)
                else:
                    written = [(t, tuple(t.shape)) for t in out_tensors(func, kwargs)]
                    out = self.fake_result(func, args, kwargs)
                    if any(tuple(t.shape) != shape for t, shape in written):
                        raise CannotTrace(f"{func} resizes its out= tensor")
        except (DataDependentOutputException, DynamicOutputShapeException) as e:
            raise DataDependent(f"{func} needs the data of a tensor") from e
        made = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        if out is not None and not made:
            return out  # a question about a size, a device, ...: answered, not recorded
        if any(t.layout != torch.strided for t in made):
            raise CannotTrace(f"{func} makes a tensor that is not strided")
        node = self.graph.call_function(func, *self.nodes_of((tuple(args), dict(kwargs))))
        node.meta.update(self.meta, recording=torch.is_grad_enabled())
        self.bind_output(out, node)
        if func._schema.is_mutable:
            self.note_writes(func, *of_tensors((args, kwargs), self.to_fake))
            if self.reached_around:
                self.check_reach(*of_tensors((args, kwargs), self.to_fake))
        if is_view(func):
            source = self.to_fake(args[0])
            if isinstance(out, (tuple, list)):
                for number, piece in enumerate(out):
                    self.share(piece, out, operator.getitem, (number,))
            if out is not source:
                self.share(out, source, func, args[1:], kwargs)
            if func is aten.as_strided.default:
                self.note_reach(source, out)
        return out

    def bind_output(self, out, node):
        if isinstance(out, torch.Tensor) and (
            id(out) not in self._node_of
            or node.target is operator.getitem
            or not node.target._schema.is_mutable
        ):
            return self.bind(out, node)
        node.meta["val"] = (
            out  # an in-place op returns its argument; later reads go to the argument's node
        )
        for i, item in enumerate(out if isinstance(out, (tuple, list)) else ()):
            if isinstance(item, (torch.Tensor, tuple, list)):
                child = self.graph.call_function(operator.getitem, (node, i))
                child.meta.update(self.meta)
                self.bind_output(item, child)


def gives_what_it_is_given(func) -> bool:
    """Does it return its arguments, or views of them?"""
    return any(result.alias_info for result in func._schema.returns)


def in_strides(fake, strides):
    """A fake tensor like this one, in these strides; itself where it has them."""
    if all(map(same, fake.stride(), strides)):
        return fake
    return fake.new_empty_strided(fake.shape, strides)


def refuse_what_eager_refuses(func, args, kwargs) -> None:
    """Raise CannotTrace if eager's kernel raises for tensors without elements (the maximum of
    nothing): fake tensors often do not know.

    With so few numbers one can ask the kernel itself, on zeros.  In place of a symbol stands the
    size of this call: what is refused for one size runs eagerly for all."""
    met = []
    of_tensors((args, kwargs), met.append)
    if all(0 not in shape_of(t) for t in met) or torch.Tag.nondeterministic_seeded in func.tags:
        return
    if any(None in shape_of(t) or math.prod(shape_of(t)) > FEW for t in met):
        return

    def zeros(t):
        if t.layout is not torch.strided:
            raise CannotTrace(f"{func} of a tensor that is not strided")
        strides = [hint(n, 1) for n in t.stride()]
        return torch.empty_strided(shape_of(t), strides, dtype=t.dtype, device=t.device).zero_()

    with _disable_current_modes(), torch.no_grad():
        real_args, real_kwargs = pytree.tree_map_only(
            torch.SymInt, hint, of_tensors((args, kwargs), zeros)
        )
        try:
            func(*real_args, **real_kwargs)
        except ours(RuntimeError, IndexError, ValueError) as error:
            raise CannotTrace(f"eager refuses: {str(error).splitlines()[0]}") from error


def shape_of(t) -> list:
    """Its sizes in this call, None for one that only the run knows."""
    return [hint(n) for n in t.shape]


def out_tensors(func, kwargs) -> list[torch.Tensor]:
    """The tensors that the call is given to write its results into."""
    given = [kwargs.get(argument.name) for argument in func._schema.arguments if argument.is_out]
    return [tensor for tensor in given if isinstance(tensor, torch.Tensor)]


def refuse_overlap(func, args, kwargs) -> None:
    """Raise CannotTrace where the call writes memory that has several elements in one place, or
    that it also reads, in another layout: `x.add_(x.t())`.  Most of eager's kernels raise there.

    Sizes that are symbols are taken for what they were in this call: what is refused runs eagerly,
    which is right for all sizes."""
    written, given = [], []
    for place, argument in enumerate(func._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        of_tensors(value, (written if is_written else given).append)
    if any(has_elements_in_one_place(t) for t in written):
        raise CannotTrace(f"{func} writes several elements to one place in memory")
    by_memory = {}
    for t in written:
        by_memory.setdefault(t.untyped_storage()._cdata, []).append(t)
    for other in given:
        for t in by_memory.get(other.untyped_storage()._cdata, ()):
            if overlap_in_part(t, other):
                raise CannotTrace(f"{func} writes to what it also reads, laid out otherwise")


def as_in_this_call(t) -> tuple:
    """(sizes, strides, offset) of a strided tensor in the call that is traced."""
    numbers = [hint(n, 2) for n in (*t.shape, *t.stride(), t.storage_offset())]
    return numbers[: t.dim()], numbers[t.dim() : -1], numbers[-1]


def span_of(t) -> tuple:
    """(the first, the last place in its memory) of a tensor, in the call that is traced."""
    shape, strides, offset = as_in_this_call(t)
    return offset, offset + sum((n - 1) * step for n, step in zip(shape, strides))


def has_elements_in_one_place(t) -> bool:
    """Is it expanded?"""
    if t.layout is not torch.strided:
        return False
    shape, strides, _ = as_in_this_call(t)
    return 0 not in shape and any(n > 1 and step == 0 for n, step in zip(shape, strides))


def overlap_in_part(a, b) -> bool:
    """Do two tensors in one memory, each without holes, share some of it, but not all alike?
    (Of tensors with holes eager does not say, so it computes.)"""
    if a.layout is not torch.strided or b.layout is not torch.strided or a is b:
        return False
    about, other = as_in_this_call(a), as_in_this_call(b)
    if about == other or not (is_without_holes(*about[:2]) and is_without_holes(*other[:2])):
        return False
    start, end = about[2], about[2] + math.prod(about[0])
    other_start, other_end = other[2], other[2] + math.prod(other[0])
    if (start, end) == (other_start, other_end):
        return about[1] != other[1]
    return start < other_end and other_start < end


def is_without_holes(shape, strides) -> bool:
    """Do its elements fill the memory from the first to the last, each in a place of its own?"""
    expected = 1
    for step, n in sorted(zip(strides, shape)):
        if n == 1:
            continue
        if step != expected:
            return False
        expected *= n
    return 0 not in shape


def of_tensors(tree, change):
    """Nested arguments of an op with change(t) in place of each tensor."""
    return fx.node.map_aggregate(
        tree, lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf
    )


def written_argument(func, args, kwargs):
    """The first tensor that the call writes: x of x.normal_(), y of rand(2, out=y)."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            return args[place] if place < len(args) else kwargs[argument.name]
    raise AssertionError(f"{func} writes nothing")


@functools.cache
def functional_of(func):
    """aten.silu_ -> aten.silu, for ops that write their first argument and return it; else None."""
    arguments, returns = func._schema.arguments, func._schema.returns
    name = func._schema.name.split("::")[1]
    if (
        func.namespace != "aten"
        or not name.endswith("_")
        or len(returns) != 1
        or torch.Tag.inplace_view in func.tags
    ):
        return None
    if [a.name for a in arguments if a.alias_info and a.alias_info.is_write] != [arguments[0].name]:
        return None
    try:
        return functional_form(func)[0]
    except CannotFunctionalize:
        return None


@functools.cache
def is_composite(func):
    """Does ATen define `func` purely in terms of other ops (CompositeImplicitAutograd)?"""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return (
        func.namespace != "prim"
        and has(func.name(), "CompositeImplicitAutograd")
        and not has(func.name(), "CPU")
    )  # (prim: no kernels)


def new_fake_mode():
    return FakeMode(allow_non_fake_inputs=True, static_shapes=True)


def fake_inputs(fake_mode, values):
    """Fake tensors of `fake_mode` like the graph's inputs: real tensors, or (symbolic sizes) fake
    ones and SymInts of whoever captured it."""
    tensors = [id(value) for value in values if isinstance(value, torch.Tensor)]
    if len(set(tensors)) < len(tensors):
        raise CannotTrace("the same tensor stands for two inputs")
    if any(isinstance(value, torch.SymInt) for value in values):
        fake_mode.cache_enabled = False  # its keys are made of torch's own symbols

    def fake(value):
        if not isinstance(value, torch.Tensor):
            return value
        with torch.inference_mode(value.is_inference()), torch.no_grad():
            if not isinstance(value, FakeTensor):
                return fake_mode.from_tensor(value.detach(), static_shapes=True)
            with fake_mode:
                return torch.empty_strided(
                    value.shape, value.stride(), dtype=value.dtype, device=value.device
                )

    with torch.no_grad():
        return [fake(value) for value in values]


def input_name(function, position, value, prefix):
    """A placeholder of the traced graph: a size keeps the name of its symbol, which recorded
    arguments print."""
    return (
        function.graph.find_nodes(op="placeholder")[position].target
        if isinstance(value, torch.SymInt)
        else f"{prefix}{position}"
    )


class OriginInterpreter(fx.Interpreter):
    """Runs the captured graph under a tracer, so that each ATen node knows the FX node and user
    line it came from."""

    def __init__(self, gm, tracer):
        super().__init__(gm)
        self.extra_traceback = False  # what is raised keeps its own words
        self.tracer = tracer
        self.ends = []  # functions that leave what the program has entered (inference mode)

    def run(self, *args):
        try:
            return super().run(*args)
        except BaseException:
            # now: a mode that is left after the tracer's own would bring them back
            while self.ends:
                self.ends.pop()()
            raise

    def run_node(self, node):
        self.tracer.meta = {"origins": frozenset([node.name])} | {
            key: node.meta[key]
            for key in ("source_line", "stack_trace", "module_path")
            if key in node.meta
        }
        return super().run_node(node)

    def call_function(self, target, args, kwargs):
        if hasattr(target, "ended_by"):
            super().call_function(target, args, kwargs)
            return self.ends.append(target.ended_by)
        if self.ends and target is self.ends[-1]:
            self.ends.pop()
        rule = CALLS.get(target, OriginInterpreter.plain_call)
        return rule(self, target, args, kwargs)

    def plain_call(self, target, args, kwargs):
        if stays_whole(target, args):
            with torch._C._DisablePythonDispatcher():
                return super().call_function(target, args, kwargs)
        out = super().call_function(target, args, kwargs)
        if target in RESAMPLING and isinstance(out, torch.Tensor) and same(out.numel(), 0):
            raise CannotTrace("eager may refuse to make an image without pixels")
        if target is getattr and args[1] == "data":
            self.tracer.share(out, self.tracer.to_fake(args[0]), data_of)
        return out

    def call_method(self, target, args, kwargs):
        if target in LOOKS_CLOSER:
            with torch._C._DisablePythonDispatcher():
                return super().call_method(target, args, kwargs)
        return super().call_method(target, args, kwargs)

    def get_attr(self, target, args, kwargs):
        tensor = self.fetch_attr(target)
        if not isinstance(tensor, torch.Tensor):
            return tensor
        self.tracer.constant(tensor, target)
        return self.tracer.to_fake(tensor)


def stays_whole(target, args) -> bool:
    """Would Python's rule for this function split it before it reaches us, though eager draws, or
    rounds, or looks at values in a way of its own?"""
    if target in OWN_DROPOUT or getattr(target, "__name__", "") in LOOKS_CLOSER:
        return True
    images = [a for a in args[:1] if isinstance(a, torch.Tensor)]
    return target in RESAMPLING and any(map(resampled_unlike_eager, images))


def resampled_unlike_eager(image) -> bool:
    """Do Python's rules for `interpolate` and the like round, refuse, or lay out their results in
    another way than eager's kernels, for this tensor?"""
    if image.dtype not in (torch.float32, torch.float64) or same(image.numel(), 0):
        return True
    if image.dim() == 5 and not image.is_contiguous():
        return True
    dimensions = zip(image.shape, image.stride())
    reach = 1 + sum((hint(n, 1) - 1) * hint(step, 0) for n, step in dimensions)
    return reach < hint(image.numel(), 0)  # elements share memory


def run_traced(function, args, decompositions=None, as_program=lambda mode, args, fakes: fakes):
    """(tracer, fake arguments, what `function` gave for them): one placeholder per tensor or
    symbolic size among `args`.

    as_program(fake_mode, args, fakes): what the function is called with in place of the plain
    fakes. Raises CannotTrace: DataDependent where a size or branch depends on data, or where one
    tensor is passed twice.  Gradients are recorded or not as where it is called: derivatives are
    the joint trace's matter.
    """
    tracer = Tracer(new_fake_mode(), decompositions)
    fakes = as_program(tracer.fake_mode, args, fake_inputs(tracer.fake_mode, args))
    for i, fake in enumerate(fakes):
        if isinstance(fake, (torch.Tensor, torch.SymInt)):
            tracer.placeholder(input_name(function, i, fake, "arg"), fake)
    run = (
        OriginInterpreter(function, tracer).run
        if isinstance(function, fx.GraphModule)
        else function
    )
    with (
        torch.set_grad_enabled(torch.is_grad_enabled()),  # as it was, when the program has ended
        ambient_autocast(),
        enable_python_dispatcher(),
        tracer.fake_mode,
        tracer,
    ):
        return tracer, fakes, run(*fakes)


def trace(function, args, decompositions=None):
    """function(*args) as an fx.GraphModule of ATen ops whose output has the structure that
    `function` returned.  Raises as `run_traced`."""
    with torch.no_grad():
        tracer, _, out = run_traced(function, args, decompositions)
    tracer.graph.output(tracer.nodes_of(out))
    return tracer.module("AtenGraph")
