"""Wrong pieces of the student's own compiler: the reference with one plausible mistake in it.

In:   nothing.  Out: WRONG_PIECES, {piece: {what is wrong: (text of the reference, what stands there
      instead, the row of `check_piece` that says so)}}.

A test makes each mistake and asks for the check (`tests/test_own_compiler.py`).  The students'
tree does not have this file.
"""

Mistake = tuple[str, str, str]

WRONG_PIECES: dict[str, dict[str, Mistake]] = {
    "hook": {
        "what was left alone is tried again": (
            "if code in self.left_alone or code",
            "if code",
            "... and not tried again",
        ),
        "torch is compiled, too": (
            " or code.co_filename.startswith(LIBRARIES)",
            "",
            "a library's code is left alone",
        ),
        "one entry too many": (
            "if len(before) < LIMIT:",
            "if len(before) <= LIMIT:",
            "after eight entries it is plain Python",
        ),
        "why is not written down": (
            "self.left_alone[code] = found",
            "self.left_alone[code] = ''",
            "what cannot be captured is left alone, and it is written down why",
        ),
        "names of arguments are lost": (
            "return compiled(*args, **kwargs)",
            "return compiled(*args)",
            "arguments by name",
        ),
    },
    "machine": {
        "what a tuple holds is not looked at": (
            "if unknown(left) or unknown(right):",
            "if isinstance(left, (Node, Outside)) or isinstance(right, (Node, Outside)):",
            "... nor is what lies in a tuple",
        ),
        "an object from outside is true": (
            "if isinstance(value, (Node, Outside, Bound)):",
            "if isinstance(value, (Node, Bound)):",
            "what an object from outside holds is no constant",
        ),
        "objects from outside are compared": (
            "if unknown(left) or unknown(right):",
            "if any(isinstance(value, Node) for value in (left, right)):",
            "what an object from outside holds is no constant",
        ),
        "+= makes a new list": (
            "isinstance(left, (Node, list))",
            "isinstance(left, Node)",
            "+= writes into a list",
        ),
        "what is not there is not guarded": (
            '        self.capture.guards.add(f"{name!r} not in {source}")\n',
            "",
            "a global that hides a function of Python's, later",
        ),
        "hooks of modules are passed by": (
            "return self.call(self._forward(callee), args, kwargs)",
            'return self.call(capture.attribute(callee, "forward"), args, kwargs)',
            "a module that gets a hook, later",
        ),
        "every default is a constant": (
            "if not all(isinstance(value, CONSTANTS) for value in defaults):",
            "if False:",
            "a default that may change",
        ),
        "the upper operand is compared with the lower": (
            "COMPARE[symbol](left, right)",
            "COMPARE[symbol](right, left)",
            "a chain of comparisons",
        ),
        "a tuple is built from above": (
            "tuple(self.pop(count))",
            "tuple(self.pop(count)[::-1])",
            "... into one graph",
        ),
        "the first arguments have the names": (
            "first = len(values) - len(names)",
            "first = len(names)",
            "... into one graph, too",
        ),
        "operands change places": (
            'BINARY[symbol.rstrip("=")](left, right)',
            'BINARY[symbol.rstrip("=")](right, left)',
            "operands keep their order",
        ),
        "+= makes a new tensor": (
            "if is_write or symbol",
            "if symbol",
            "+= writes into the caller's tensor",
        ),
        "defaults are not looked at": (
            "        bound.apply_defaults()\n",
            "",
            "a default of what is inlined",
        ),
    },
    "breaks": {
        "locals are not taken back": (
            "machine.pc, machine.locals, changes = moment",
            "machine.pc, _, changes = moment",
            "a refused statement that has bound a name before",
        ),
        "what the statement stores is lost": (
            "names = list(dict.fromkeys([*self.names, *stored]))",
            "names = list(self.names)",
            "what the refused statement stores",
        ),
        "a try is not looked at": (
            'if ins.exc or ins.op == "DELETE_FAST" or',
            'if ins.op == "DELETE_FAST" or',
            "an error inside of a try",
        ),
        "a deleted name lives on": (
            'if ins.exc or ins.op == "DELETE_FAST" or',
            "if ins.exc or",
            "a name that is deleted",
        ),
        "every tuple is a tuple": (
            "made[id(value)] = type(value)(rebuild(",
            "made[id(value)] = (list if isinstance(value, list) else tuple)(rebuild(",
            "a shape is a torch.Size afterwards",
        ),
        "what an inlined call did is not taken back": (
            "            journal.back_to(changes)\n",
            "",
            "what an inlined call wrote before it was refused is written once",
        ),
        "what lay on the stack stays there": (
            "            machine.stack.clear()\n",
            "",
            "a refused statement begins behind the one before, with an empty stack",
        ),
        "each instruction begins a statement": (
            "if not machine.stack and machine.pc in starts:",
            "if machine.pc in starts:",
            "a refused statement begins behind the one before, with an empty stack",
        ),
        "a statement is one instruction": (
            "if not depth or ins.op in ENDS:",
            "if True:",
            "a statement ends where the stack is empty again",
        ),
        "a loop is a statement like others": (
            'if ins.exc or ins.op == "DELETE_FAST" or jumps and (depth or not forward):',
            "if ins.exc:",
            "a loop cannot stand alone",
        ),
        "an iterator lives on": (
            "    if isinstance(value, (*CONSTANTS, range)):\n",
            "    if not isinstance(value, (list, tuple)):\n",
            "an iterator is refused",
        ),
        "a view of a view": (
            "return base_of(value.args[0]) if",
            "return value.args[0] if",
            "the base of views of views",
        ),
        "nothing is replayed": (
            "            replay(target, real[target], lambda value: rebuild(value, leaf, made))",
            "            pass",
            "what was done to a list before the break",
        ),
        "each place has a list of its own": (
            "    if id(value) not in made:\n",
            "    if True:\n",
            "a value is made anew, what is one list is one again",
        ),
        "a view is a copy": (
            "real[value] = EAGER[value.op](*args)",
            "real[value] = EAGER[value.op](*args).clone()",
            "what shares memory in Python shares it here",
        ),
        "nobody asks for a second name": (
            "if other is not target and type(other.value) is type(target.value):",
            "if False:",
            "what is written has no second name",
        ),
        "sizes stay numbers": (
            "            dynamic |= changed(machine.capture.shapes, entry.capture.shapes)\n",
            "",
            "a size that changes becomes a symbol: two entries for four",
        ),
        "facts are no guards": (
            "        if self.capture.facts:\n",
            "        if False:\n",
            "a fact about a size is guarded",
        ),
    },
    "graph": {
        "only the first output counts": (
            "needed = set(graph.outputs)",
            "needed = set(graph.outputs[:1])",
            "what any output needs is kept",
        ),
        "layer_norm does not look at the length": (
            "if tuple(shape) != (x.shape[-1],):",
            "if len(tuple(shape)) != 1:",
            "layer_norm of another length, or of two dimensions, is refused",
        ),
        "-1 is a size": (
            "tuple(missing if size == -1 else size for size in wanted)",
            "tuple(wanted)",
            "reshape: a size of -1 is what is left; a list of sizes",
        ),
        "the variance over n - 1": (
            "(centred * centred).mean(-1, keepdim=True)",
            "(centred * centred).sum(-1, keepdim=True) / (x.shape[-1] - 1)",
            "layer_norm, without a weight",
        ),
        "eps outside of the root": (
            "keepdim=True) + eps).sqrt()",
            "keepdim=True).sqrt() + eps)",
            "... with weight, bias and eps",
        ),
        "sizes are taken from the left": (
            "[shape[-place] for shape in shapes if place <= len(shape)]",
            "[shape[place - 1] for shape in shapes if place <= len(shape)]",
            "shapes are broadcast from the right",
        ),
        "only the last dimension is compared": (
            "if any(size != wide[0] for size in wide):",
            "if place == 1 and any(size != wide[0] for size in wide):",
            "... in any dimension",
        ),
        "two shapes only": (
            "for shape in shapes if place <= len(shape)]",
            "for shape in shapes[:2] if place <= len(shape)]",
            "three shapes at once",
        ),
        "forwards: what a needed one needs is not seen": (
            "for node in reversed(graph.nodes):\n        if node in needed:",
            "for node in graph.nodes:\n        if node in needed:",
            "what no output needs is left out",
        ),
        "inputs that nobody needs go": (
            'if node in needed or node.op == "input"]',
            "if node in needed]",
            "an input stays",
        ),
        "all inputs are one": (
            'node if node.op == "input" or node in graph.outputs else earlier',
            "node if node in graph.outputs else earlier",
            "two operations on one argument stay two, and so do two inputs",
        ),
        "arguments are not replaced": (
            "tuple(instead[arg] if isinstance(arg, Node) else arg for arg in node.args)",
            "node.args",
            "... and what is computed of them, too",
        ),
        "equal outputs are one": (
            'node if node.op == "input" or node in graph.outputs else earlier',
            'node if node.op == "input" else earlier',
            "two outputs that are equal stay two",
        ),
        "any number of elements will do": (
            "if product(result) != product(self.shape):",
            "if False:",
            "reshape to another number of elements is refused",
        ),
        "a mean of all is one of the last": (
            "product(self.shape[d] for d in self.dims(dim))",
            "self.shape[-1]",
            "a mean of the last dimension, and of all",
        ),
        "batches must be equal": (
            "*broadcast(a.shape[:-2], b.shape[:-2])",
            "*a.shape[:-2]",
            "... of batches of them",
        ),
        "the largest element is not subtracted": (
            "shifted = logits - logits.amax(-1, keepdim=True)",
            "shifted = logits * 1.0",
            "cross entropy, of large numbers, too",
        ),
        "the operation is not compared": (
            "key = node.op, tuple(",
            "key = tuple(",
            "two operations on one argument stay two, and so do two inputs",
        ),
        "the sum is along the last dimension": (
            "e.sum(dim, keepdim=True)",
            "e.sum(-1, keepdim=True)",
            "softmax along the first dimension",
        ),
        "the first output only": (
            "return [values[node] for node in self.outputs]",
            "return [values[node] for node in self.outputs[:1]]",
            "two outputs that are equal stay two",
        ),
        "inputs in the wrong order": (
            "dict(zip(self.inputs, tensors, strict=True))\n        for node",
            "dict(zip(self.inputs[::-1], tensors, strict=True))\n        for node",
            "each input has its place",
        ),
    },
    "guards": {
        "a sign that is turned lazily": (
            " or tensor.is_neg()",
            "",
            "a tensor whose sign is turned lazily: it does not",
        ),
        "every size is the example's": (
            "{dtype}, {shape!r}, ",
            "{dtype}, {tuple(tensor.shape)!r}, ",
            "a tensor with one size left open",
        ),
        "every tensor is plain": (
            "if not tensor_fits(tensor, tensor.dtype, tuple(tensor.shape), tensor.requires_grad):",
            "if False:",
            "a tensor of a class of its own is refused",
        ),
        "0.0 is -0.0": (" and repr(value) == repr(expected)", "", "so are 0.0 and -0.0"),
        "any size fits, 1 too": (
            "wanted is None and size > 1",
            "wanted is None",
            "where any size is allowed: 2 and 9 are, 1 is not",
        ),
        "a size of 2 does not fit": (
            "wanted is None and size > 1",
            "wanted is None and size > 2",
            "where any size is allowed: 2 and 9 are, 1 is not",
        ),
        "dimensions are not counted": (
            "tensor.ndim == len(shape) and all(",
            "all(",
            "fewer dimensions: it does not",
        ),
        "any subclass is plain": (
            "type(tensor) not in (torch.Tensor, torch.nn.Parameter)",
            "not isinstance(tensor, torch.Tensor)",
            "a class of tensors of its own: it does not",
        ),
        "a parameter is none": (
            "type(tensor) not in (torch.Tensor, torch.nn.Parameter)",
            "type(tensor) is not torch.Tensor",
            "a parameter fits where gradients are wanted, a tensor without them does not",
        ),
        "an alias is not guarded": (
            'self.guards.add(f"{source} is {other}")',
            "pass",
            "one object under two sources is one value, and must be one again",
        ),
        "an alias is a second value": (
            "if id(value) in self.known:",
            "if False:",
            "one object under two sources is one value, and must be one again",
        ),
        "a size of 1 is a symbol": (
            "if size > 1 and (source, dim) in self.dynamic:",
            "if (source, dim) in self.dynamic:",
            "a size that has changed is a symbol, unless it is 1",
        ),
        "the length is not guarded": (
            'self.guards.add(f"len({source}) == {len(found)}")',
            "pass",
            "of a list the length is guarded, and each item",
        ),
        "code may change": (
            'self.guards.identical(f"{source}.__code__", value.__code__)',
            "pass",
            "a function is guarded: itself, its code, its defaults",
        ),
        "gradients are asked for in one case only": (
            "(tensor.dtype, tensor.requires_grad) != (dtype, requires_grad)",
            "tensor.dtype != dtype or tensor.requires_grad and not requires_grad",
            "a parameter fits where gradients are wanted, a tensor without them does not",
        ),
        "compared by ==": (
            'self.add(f"same({source}, {self.name(value)})")',
            'self.add(f"{source} == {self.name(value)}")',
            "another type of number",
        ),
        "the value is written as text": (
            'self.add(f"same({source}, {self.name(value)})")',
            'self.add(f"same({source}, {value!r})")',
            "a dtype",
        ),
        "one check is enough": (
            '" and ".join(self.checks)',
            '" or ".join(self.checks)',
            "what cannot be found has failed",
        ),
        "the last check decides": (
            '" and ".join(self.checks)',
            "list(self.checks)[-1]",
            "all of several checks hold",
        ),
        "a missing attribute is an error": (
            "except (AttributeError, LookupError, TypeError):",
            "except (TypeError, LookupError):",
            "... an attribute, too",
        ),
    },
    "effects": {
        "what changes is not noted": (
            "        self.note(target)\n        return target.items",
            "        return target.items",
            "that a list changes is noted, and undone",
        ),
        "that it changed is not taken back": (
            "        self.undo.append(self.changed.pop)\n",
            "",
            "that a list changes is noted, and undone",
        ),
        "the first element is taken away": (
            "self.undo.append(target.pop)",
            "self.undo.append(lambda: target.pop(0))",
            "an append is undone",
        ),
        "an equal element is taken away": (
            "self.undo.append(target.pop)",
            "self.undo.append(lambda: target.remove(value))",
            "an append of what is there already",
        ),
        "what was before is not copied": (
            "            before = target[key]\n",
            "            before = value\n",
            "an element is put back",
        ),
        "the first change is undone first": (
            "self.undo.pop()()",
            "self.undo.pop(0)()",
            "several changes are undone, the last first",
        ),
        "everything is undone": (
            "while len(self.undo) > length:",
            "while self.undo:",
            "what came before the mark stays",
        ),
        "the list is appended to": (
            "found[:] = [rebuild(value) for value in target.items]",
            "found.extend(rebuild(value) for value in target.items)",
            "two lists of the caller",
        ),
        "a key stays, with nothing in it": (
            "self.undo.append(lambda: target.pop(key))",
            "self.undo.append(lambda: target.update({key: None}))",
            "a key that was not there is gone again",
        ),
        "only what both lists have is written": (
            "found[:] = [",
            "found[: len(target.items)] = [",
            "replay leaves the final state in the caller's list",
        ),
        "attributes are not rebuilt": (
            "        setattr(found, name, rebuild(value))",
            "        setattr(found, name, value)",
            "attributes are written",
        ),
        "what was not looked at is written": (
            "if isinstance(found, list) and target.items is not None:",
            "if isinstance(found, list):",
            "a list that was not looked at stays as it is",
        ),
    },
    "sizes": {
        "no parentheses": (
            'f"({text_of(left)} {symbol} {text_of(right)})"',
            'f"{text_of(left)} {symbol} {text_of(right)}"',
            "arithmetic is written down",
        ),
        "the value is not swapped": (
            "value = function(int(left), int(right))",
            "value = function(int(right), int(left))",
            "... with their values",
        ),
        "what was computed has facts of its own": (
            '{text_of(right)})", facts)',
            '{text_of(right)})", [])',
            "of what was computed",
        ),
        "what is false is written as true": (
            'fact if answer else f"not ({fact})"',
            "fact",
            "so is one that fails",
        ),
        "n == n is a fact": (
            "if text_of(left) != text_of(right):",
            "if True:",
            "what is true of every size is no fact",
        ),
        "the other size is a number": (
            'fact = f"{text_of(left)} {symbol} {text_of(right)}"',
            'fact = f"{text_of(left)} {symbol} {int(right)}"',
            "of two sizes",
        ),
        "floats are cut off": (
            "        if not isinstance(other, int):\n            return NotImplemented\n",
            "",
            "a float is none of its business",
        ),
        "two factors only": (
            "return functools.reduce(operator.mul, sizes, 1)",
            "s = [1, *sizes]; return functools.reduce(operator.mul, s[:3])",
            "a product of three",
        ),
    },
    "program": {
        "the first tensors get the gradients": (
            "for place, gradient in zip(ctx.halves.places, found, strict=True):",
            "for place, gradient in enumerate(found):",
            "gradients go where they are wanted",
        ),
        "outputs are not read": (
            " for buffer in reads} | self.outputs",
            " for buffer in reads}",
            "kernels and products in their order",
        ),
        "the memory of a view is free": (
            "self.last |= {buffer: number, buffer.root: number}",
            "self.last[buffer] = number",
            "the memory of a view that is still read is not used again",
        ),
        "every graph has two halves": (
            "if wanted and graph.outputs and torch.is_grad_enabled():",
            "if graph.outputs and torch.is_grad_enabled():",
            "two halves only where gradients are wanted",
        ),
        "every result needs a gradient": (
            "[place for place, out in enumerate(outputs) if out not in depends]",
            "[]",
            "a result that depends on no parameter needs no gradient",
        ),
        "any free memory is taken": (
            "size_of(other) == size_of(buffer) and other.dtype == buffer.dtype",
            "other.dtype == buffer.dtype",
            "memory of another size is not taken",
        ),
        "only memory of the same shape": (
            "size_of(other) == size_of(buffer) and",
            "other.shape == buffer.shape and",
            "... for another shape, too",
        ),
        "what was taken stays free": (
            "                self.free.remove(other)\n",
            "                pass\n",
            "one block is not given to two",
        ),
        "in the shape of what it was": (
            'return f"{other.name}.view({shape})"',
            "return other.name",
            "... seen in that shape",
        ),
        "an output is free": (
            " and b not in self.outputs]",
            "]",
            "an output's memory is not used again",
        ),
        "what stays in registers gets memory": (
            "made = [buffer for buffer in unit.writes if buffer in stored]",
            "made = [*unit.writes]",
            "what stays in registers gets no memory: two of a softmax's four results do",
        ),
        "every kernel is the first": (
            'kernel = f"kernel{len(self.sources)}"',
            'kernel = "kernel0"',
            "one block is not given to two",
        ),
        "nothing is used again": (
            "self.free += [buffer for buffer in ended if buffer in self.owned]",
            "pass",
            "memory is used again",
        ),
        "nothing is let go": (
            "return [buffer.name for buffer in ended if buffer in by_torch]",
            "return []",
            "what torch has made is let go",
        ),
    },
    "autograd": {
        "a sum's gradient has no dimension": (
            "_spread(g, x, dims).expand(",
            "g.expand(",
            "a sum of rows",
        ),
        "moved on, not back": (
            "(order.index(dim) for dim in range(len(order)))",
            "order",
            "three dimensions change places, and back",
        ),
        "what is given is computed again": (
            "if node in needed and node not in given:\n            args",
            'if node in needed and node.op != "input":\n            args',
            "two halves give what the whole gives, and the product is not made again",
        ),
        "a size of 1 is not summed": (
            "if own == 1 and size != 1",
            "if False",
            "of what had size 1",
        ),
        "the quotient is differentiated as 1 / b": (
            "-g * out / b",
            "-g / b",
            "a product, and a quotient",
        ),
        "what was broadcast is not fitted": (
            "fitted = fit(amount, node)",
            "fitted = amount if isinstance(node, Node) else None",
            "of what was broadcast",
        ),
        "each of the largest gets all": (
            "_spread(g, x, dims) / count",
            "_spread(g, x, dims)",
            "equal ones share it",
        ),
        "a batch is one long matrix, whatever it meets": (
            "if b.ndim == 2:",
            "if True:",
            "one matrix, many others",
        ),
        "the bound gets the gradient": (
            'where(out.graph.add("eq", out, bound), 0.0, g)',
            'where(out.graph.add("eq", out, bound), g, 0.0)',
            "relu: nothing below 0",
        ),
        "one step only": (
            "            result.add(node)\n    return result",
            "            pass\n    return result",
            "what is computed of the second of five nodes",
        ),
        "the last use wins": (
            "gradient[node] + fitted if node in gradient else fitted",
            "fitted",
            "a sum goes to both",
        ),
        "what backward reads is saved": (
            'if (n, "in") in before and (n, "out") not in before',
            "if n not in backward and any(n in m.inputs for m in backward)",
            "nothing is saved that the input gives",
        ),
        "a product is computed again": (
            "if node.op not in CHEAP:",
            'if node.op == "input":',
            "a product is not computed twice",
        ),
        "values are counted, not bytes": (
            "bytes_of(node) + 1",
            "1",
            "two narrow values are saved rather than a wide one",
        ),
    },
    "loops": {
        "a sum over two dimensions is one over columns": (
            "node.args[1] == (node.args[0].ndim - 1,)",
            "node.args[0].ndim - 1 in node.args[1]",
            "... and so is one over rows and columns",
        ),
        "the first places of the index": (
            "index[len(index) - value.ndim :]",
            "index[: value.ndim]",
            "fewer dimensions: the last places of the index",
        ),
        "permuted the other way round": (
            "tuple(index[place] for place in back)",
            "tuple(index[place] for place in order)",
            "three dimensions change places",
        ),
        "nothing is stored for several readers": (
            "if node.op in POINTWISE and self.users[node] > 1 and self.is_dear(node):",
            "if False:",
            "what is dear and read twice is a loop of its own",
        ),
        "each sum is torch's": (
            "node.args[1] == (node.args[0].ndim - 1,)",
            "False",
            "a reduction is a loop that keeps its row",
        ),
        "only the outermost operation reads": (
            "[load for arg in value.args for load in loads(arg)]",
            "[arg for arg in value.args if isinstance(arg, Load)]",
            "an operation inside an operation reads, too",
        ),
        "a reduction has the rows of its result": (
            "self.add(node, Loop, x.shape[:-1], x.shape[-1], node.op, value)",
            "self.add(node, Loop, node.shape, x.shape[-1], node.op, value)",
            "so is one whose result has the dimension still",
        ),
        "a reduction reads its first column": (
            "self.element(x, rows_and_column(x.ndim - 1))",
            'self.element(x, (*rows_and_column(x.ndim - 1)[:-1], "0"))',
            "its value is an element of the argument",
        ),
        "every reshape is free": (
            "            return None\n\n        def element",
            "            pass\n\n        def element",
            "any other shape is torch's, with a base",
        ),
        "nobody has a base": (
            "            self.stored[node].base = reads[0]\n",
            "            pass\n",
            "any other shape is torch's, with a base",
        ),
        "torch gets the argument of a view": (
            'return f"{self.operand(x, reads)}.{value.op}({text_of(how)})"',
            "return self.operand(x, reads)",
            "torch takes a transposed argument as it is, and a computed one out of memory",
        ),
        "what torch reads is not noted": (
            "        reads.append(buffer)\n",
            "",
            "what torch is called with is what it reads",
        ),
        "only some operations are dear": (
            " or operations(self.inlined[node](index)) > 4",
            "",
            "dear is an exponential, or more than four operations",
        ),
        "what is stored is stored again": (
            "if node not in self.stored:",
            "if True:",
            "a reduction is a loop that keeps its row",
        ),
    },
    "fusion": {
        "one round": (
            "while plan.fuse_best():\n        pass",
            "plan.fuse_best()",
            "a softmax is one kernel",
        ),
        "nobody looks for a third": (
            " and not self.leads_around(first, second)",
            "",
            "nothing is fused around a product that lies between",
        ),
        "the second's loops in front": (
            "Kernel([*first.loops, *second.loops])",
            "Kernel([*second.loops, *first.loops])",
            "in a kernel the loops keep their order",
        ),
        "no walk to a third": (
            "waiting = [unit for unit in self.before(second) if unit is not first]",
            "waiting = []",
            "nothing is fused around a product that lies between",
        ),
        "the direct step counts": (
            "waiting = [unit for unit in self.before(second) if unit is not first]",
            "waiting = self.before(second)",
            "a softmax is one kernel",
        ),
        "sizes compared as numbers": (
            "[text_of(n) for n in first.rows] != [text_of(n) for n in second.rows]",
            "first.rows != second.rows",
            "rows of two symbols that happen to be equal stay two kernels",
        ),
        "whatever row is read": (
            "if maker and load.index[: len(maker.rows)] != maker.result.index[: len(maker.rows)]:",
            "if False:",
            "a reader of other rows is not fused",
        ),
        "rows may differ": (
            "if [text_of(n) for n in first.rows] != [text_of(n) for n in second.rows]:",
            "if False:",
            "sums of rows and of columns are two kernels",
        ),
        "the fewest bytes first": (
            "key=lambda pair: -pair[0]",
            "key=lambda pair: pair[0]",
            "a softmax has four pairs that share bytes; the most come first",
        ),
        "neighbours only": (
            "in kernels[place + 1 :]",
            "in kernels[place + 1 : place + 2]",
            "a softmax has four pairs that share bytes; the most come first",
        ),
        "only what flows": (
            "touched = {*first.writes, *first.reads}",
            "touched = {*first.writes}",
            "two loops over x share its bytes: 4 rows, 8 columns, 4 bytes each",
        ),
        "in the order in which they stand": (
            "for unit in self.units:\n            visit(unit)\n        return result",
            "return self.units",
            "what is fused runs before the product that reads it",
        ),
    },
    "cpp": {
        "a sum may be read before its end": (
            "made[at.buffer].result == at and not made[at.buffer].reduction",
            "made[at.buffer].result == at",
            "a softmax walks over its columns three times",
        ),
        "everything starts with zero": (
            "= {START[s.reduction]};",
            "= 0.0f;",
            "sums and largest elements",
        ),
        "a walk for each loop": (
            "if found and takes(found[-1], loop):",
            "if False:",
            "a softmax walks over its columns three times",
        ),
        "one walk for all": (
            "if found and takes(found[-1], loop):",
            "if found:",
            "a softmax walks over its columns three times",
        ),
        "all is stored": (
            "{buffer for buffer in kernel.writes if buffer in read_elsewhere}",
            "{*kernel.writes}",
            "of its four results two lie in memory",
        ),
        "results of reductions are stored": (
            "- here - reduced",
            "- here",
            "of its four results two lie in memory",
        ),
        "no threads": (
            '[f"    #pragma omp parallel for collapse({len(rows)})"] if rows else []',
            "[]",
            "one pragma for all dimensions of the rows",
        ),
        "the end of a sum is forgotten": (
            'return [*lines, "        }", *(line for loop in sums for line in self.end(loop))]',
            'return [*lines, "        }"]',
            "results of the row are used in it",
        ),
        "threads for the first dimension only": (
            " collapse({len(rows)})",
            "",
            "one pragma for all dimensions of the rows",
        ),
        "only the last column counts": (
            "{row} = {self.forms[loop.reduction].format(row, name)};",
            "{row} = {name};",
            "sums and largest elements",
        ),
        "the row's result is not remembered": (
            "self.row_values[loop.result] = row",
            "pass",
            "results of the row are used in it",
        ),
        "the first dimension lies closest": (
            "({text} * {python_text(size)} + {position})",
            "({text} + {python_text(size)} * {position})",
            "element (1, 2, 3) of 2 x 3 x 4 is number 23",
        ),
    },
    "gpu": {
        "numbers as in C++": (
            """f'float("{float(value)}")'""",
            'f"{float(value)}f"',
            "a layer norm in the interpreter",
        ),
        "a load without a mask": (
            'mask = ", mask=inside, other=0" if "c" in load.index else ""',
            'mask = ""',
            "a load of columns has a mask",
        ),
        "a store without a mask": (
            'mask = "" if loop.reduction else ", mask=inside"',
            'mask = ""',
            "a layer norm in the interpreter",
        ),
        "nothing is divided": ('rest = f"({rest} // {size})"', "pass", "rows of two dimensions"),
        "no name is remembered": (
            "self.registers[loop.result] = name",
            "pass",
            "a layer norm in the interpreter",
        ),
        "the mask is the block": (
            "inside = c < {text_of(loop.columns)}",
            "inside = c < BLOCK",
            "a mask keeps out what lies beyond the last column",
        ),
    },
}
