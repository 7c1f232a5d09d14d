"""Wrong answers that are the solution with one mistake in it.

In:   nothing.  Out: EDITS, {exercise: {what is wrong: (text of the solution, what stands there)}}.

Many answers are classes that need what their notebook defines.  So a wrong one is written as the
edit that a student's mistake would be, and a test applies it to the notebook's own cell
(`tests/test_wrong_answers.py`).  The students' tree does not have this file.
"""

EDITS: dict[str, dict[str, tuple[str, str]]] = {
    "00.1": {
        "one too few: counting began at zero": (".kernels)", ".kernels) - 1"),
        "a library call is counted as a kernel": (
            "return len(minidynamo.explain(function)(*arguments).main.compiled.kernels)",
            "made = minidynamo.explain(function)(*arguments).main.compiled\n"
            "    return len(made.kernels) + len(made.fallbacks)",
        ),
        "kernels are asked for, not counted": ("return len(", "return ("),
    },
    "00.2": {
        "the print is still there": (
            "return (torch",
            "print('hello from the middle')\n    return (torch",
        ),
        "multiplies first, adds afterwards": ("(torch.relu(x) + 1) * 2", "torch.relu(x) * 2 + 1"),
        "the text is forgotten": (', "hello from the middle"', ', ""'),
    },
    "01.1": {
        "the two inputs are the wrong way round": (
            "record(function, a)(b), function(b)",
            "record(function, b)(a), function(b)",
        )
    },
    "01.2": {
        "lists are allowed, but have no value": (
            "return [self.value(element, names) for element in node.elts]",
            "return node.elts",
        ),
        "only the first element": ("for element in node.elts]", "for element in node.elts[:1]]"),
        "every display is allowed, dictionaries too": (
            "KNOWN, ast.List)",
            "KNOWN, ast.List, ast.Dict, ast.Constant)\n\n    def visit(self, node):\n        pass",
        ),
        "the language does not know lists yet": (
            "KNOWN = (*prior.scripting.Script.KNOWN, ast.List)",
            "KNOWN = prior.scripting.Script.KNOWN",
        ),
    },
    "01.3": {
        "the flag is read after the look into the table": (
            "key = read()\n        if key not in staged",
            "key = 0\n        if key not in staged",
        )
    },
    "02.1": {
        "the smallest instead of the largest": ("return max(", "return min("),
        "the number of dimensions instead of elements": (".numel()", ".dim()"),
    },
    "02.3": {
        "the dtype is compared, but nothing is removed": (
            "                gm.graph.erase_node(node)",
            "                pass",
        ),
        "any number is taken for one": ("node.args[1] == 1:", "node.args[1]:"),
        "only whole numbers are looked at, and the dtype is not": (
            "if (before.dtype, before.shape) == (after.dtype, after.shape):",
            "if True:",
        ),
    },
    "03.1": {
        "the count begins at zero": (".get(code.co_name, 0) + 1", ".get(code.co_name, -1) + 1"),
        "the hook never calls back": (", callback)(*args)", ", lambda *a: None)(*args)"),
    },
    "03.2": {
        "the guard is true for every number": ("type(n) is int and n == key", "True"),
        "the key of the answer is stored, not the answer": ("{result_of[key]!r}", "{key!r}"),
    },
    "04.1": {
        "the iterator is not taken off at the end": (
            "            self.stack.pop()\n            self.pc",
            "            self.pc",
        ),
        "the iterable stays below its iterator": ("iter(self.stack.pop())", "iter(self.stack[-1])"),
        "the jump at the end is forgotten": ("            self.pc = target\n", ""),
        "the item takes the place of the iterator": (
            "self.stack.append(item)",
            "self.stack[-1] = item",
        ),
    },
    "04.2": {
        "arguments in the wrong order": ("co_varnames, args", "co_varnames, args[::-1]"),
        "only one level deep": ("type(self)(callee", "Machine(callee"),
        "the result is not put on the stack": ("self.stack.append(inner.run())", "inner.run()"),
        "the inner output stays in the graph": ("            self.graph.erase_node(output)\n", ""),
    },
    "04.3": {
        "the sequence is taken off": ("frame.stack[-1].length", "frame.stack.pop().length"),
        "one too many": ("length(frame))", "length(frame) + 1)"),
        "a plain number instead of a variable": (
            "ConstantVar(frame.stack[-1].length(frame))",
            "frame.stack[-1].length(frame)",
        ),
    },
    "05.2": {
        "the object instead of its text": ("return found[1]", "return found[0]"),
        "the arguments are not passed on": ("first_failure(None, *args)", "first_failure(None)"),
    },
    "05.3": {
        "not equal instead of equal": ("is {backend.enabled}", "is not {backend.enabled}"),
        "the flag is read once, when the guard is made": (
            'f"P_mkldnn.enabled is {backend.enabled}"',
            'f"{backend.enabled} is {backend.enabled}"',
        ),
        "the name is not pinned": ('{"P_mkldnn": backend}', "{}"),
    },
    "06.1": {
        "the condition asks for the largest element": ("x.sum() > 0", "x.max() > 0"),
        "the branch is still one of Python": (
            "return torch.where(x.sum() > 0, x / x.abs().max(), -x)",
            "return x / x.abs().max() if x.sum() > 0 else -x",
        ),
        "the two sides are swapped": ("x / x.abs().max(), -x)", "-x, x / x.abs().max())"),
    },
    "06.2": {
        "walks from the front": (
            "reversed(disassemble(function.__code__))",
            "disassemble(function.__code__)",
        )
    },
    "06.3": {
        "one line too late": ("co_firstlineno + line - 1", "co_firstlineno + line"),
        "begins at the start of the function": (
            "k = next(n for n, ins in enumerate(disassemble(code)) if ins.pos and "
            "ins.pos[0] == code.co_firstlineno + line - 1)",
            "k = 0",
        ),
        "no variable is alive": ("live=alive(function, line)", "live=()"),
    },
    "07.2": {
        "replay appends what is there already": (
            "self.real[:] = self.items",
            "self.real += self.items",
        ),
        "replay makes a new list": ("self.real[:] = self.items", "self.real = self.items"),
        "the shadow is the list itself (aliasing)": ("real, list(real)", "real, real"),
        "append is lost": ("self.items.append(value)", "pass"),
    },
    "07.3": {
        "the copy is taken afterwards": (
            "    before = copy.deepcopy(args)\n    minidynamo.compile(function, "
            'backend="eager")(*args)',
            '    minidynamo.compile(function, backend="eager")(*args)\n    before '
            "= copy.deepcopy(args)",
        )
    },
    "08.1": {
        "the second row is summed too early": ("y = x1.sum(0)", "y = x.sum(0)"),
        "returns the old first row": ("return y + x2[0]", "return y + x1[0]"),
        "one row too many is doubled": ("0, 1, 3)", "0, 1, 4)"),
    },
    "08.2": {
        "every value costs the same": ("capacity=size", "capacity=1"),
        "source and sink are the wrong way round": (
            'if (name, "in") in near and (name, "out") not in near',
            'if (name, "in") not in near and (name, "out") in near',
        ),
    },
    "08.3": {
        "another operation is saved": ("aten.exp.default", "aten.sin.default"),
        "the function of torch, which the graph does not call": (
            "torch.ops.aten.exp.default",
            "torch.exp",
        ),
        "the policy returns True, no reason": (
            'return "exp is never computed again"',
            "return True",
        ),
        "the original is not asked": ("return original_policy(node, is_cheap, value)", 'return ""'),
        "everything is saved": ("return original_policy(node, is_cheap, value)", 'return "saved"'),
    },
    "09.1": {
        "no absolute value": ("torch.abs(x)", "x"),
        "clamped from above": ("torch.clamp_min", "torch.clamp_max"),
        "signs swapped": ("1 - torch.abs(x)", "torch.abs(x) - 1"),
        "it calls what it takes apart": ("torch.clamp_min(1 - torch.abs(x), 0)", "hat(x)"),
    },
    "09.2": {
        "a minimum instead of a maximum": ("ops.maximum", "ops.minimum"),
        "operands of the difference swapped": (
            "ops.sub(one(), ops.abs(v))",
            "ops.sub(ops.abs(v), one())",
        ),
        "the absolute value is forgotten": ("ops.abs(v)", "v"),
    },
    "09.3": {
        "loads count as arithmetic": ('elif name != "constant":', 'if name != "constant":'),
        "constants count, too": ('elif name != "constant":', "else:"),
        "every load counts twice": ("self.loads += 1", "self.loads += 2"),
    },
    "10.3": {
        "the alphabet decides": ('category != "horizontal"', "category"),
        "horizontal pairs first": ('category != "horizontal"', 'category == "horizontal"'),
        "fewer bytes first": ("saved, -distance", "-saved, -distance"),
        "the farther of equals": ("-distance", "distance"),
        "the distance before the bytes": ("saved, -distance", "-distance, saved"),
    },
    "10.4": {
        "no test for cycles": (
            "p[0] and not through_a_third(p[2], p[1]) and not through_a_third(p[1], p[2])",
            "p[0]",
        ),
        "the walk stops after one step": (
            "            waiting += [g for g in groups if g not in seen and g not in (a, b) "
            "and needs(group, g)]\n",
            "",
        ),
        "pairs that save nothing are merged, too": ("if p[0] and not", "if not"),
        "the first pair, not the best": ("max(pairs, key=lambda p: p[0])", "pairs[0]"),
        "cycles are looked for in one direction": (" and not through_a_third(p[1], p[2])", ""),
        "one round only": (
            "groups = [a | b if group == a else group for group in groups if group != b]",
            "return [set(a | b if g == a else g) for g in groups if g != b]",
        ),
    },
    "11.1": {
        "the table is never filled": (
            "self.known[expression] = super().line(expression)\n        return "
            "self.known[expression]",
            "return super().line(expression)\n        return self.known[expression]",
        ),
        "the text is returned, not its name": (
            "return self.known[expression]",
            "return expression",
        ),
        "whatever has the same first letter is one": (
            "if expression not in self.known:",
            "expression = expression[:1]\n        if expression not in self.known:",
        ),
    },
    "11.2": {
        "as it was: only comparisons": ("{a} != {a} || {a} > {b}", "{a} > {b}"),
        "only the second operand is tested": ("{a} != {a} ||", "{b} != {b} ||"),
        "by the library": (
            'f"{a} != {a} || {a} > {b} ? {a} : {b}"',
            'f"std::isnan({a}) || {a} > {b} ? {a} : {b}"',
        ),
        "the smaller one": ("{a} > {b}", "{a} < {b}"),
    },
    "11.3": {
        "the total is not set to zero for each row": (
            "        for (long row = 0; row < {rows}; row++) {{\n            double total = 0;",
            "        double total = 0;\n        for (long row = 0; row < {rows}; row++) {{",
        ),
        "sums columns (wrong axis)": ("in[row * {columns} + k]", "in[k * {rows} + row]"),
    },
    "12.1": {
        "zero for what is not there": ('float("-inf")', "0.0"),
        "the last column is left out": ("mask=k < columns", "mask=k < columns - 1"),
        "the row's stride is the tile's": ("row * columns", "row * BLOCK"),
    },
    "12.2": {
        "the product is read from memory": ("if name == self.product:", "if False:"),
        "nothing is masked": (", inside)", ")"),
        "the accumulator is stored, not the value": (
            "{index_text(index, 'triton')}, {value}, inside)",
            "{index_text(index, 'triton')}, acc, inside)",
        ),
    },
    "12.3": {
        "the sums are added without being rescaled": (
            "s1 * tl.exp(m1 - base) + s2 * tl.exp(m2 - base)",
            "s1 + s2",
        ),
        "minus infinity minus itself": ('tl.where(m == float("-inf"), 0.0, m)', "m"),
        "the second is rescaled by the first's maximum": (
            "s2 * tl.exp(m2 - base)",
            "s2 * tl.exp(m1 - base)",
        ),
    },
    "13.1": {
        "the blocks are not sorted": ("in sorted(taken)", "in taken"),
        "a gap that fits exactly is passed over": (">= size", "> size"),
        "a small block ends a large one": ("max(offset, start + length)", "start + length"),
        "always behind everything": ("            break", "            pass"),
        "the highest gap": (
            """    offset = 0
    for start, length in sorted(taken):
        if start - offset >= size:
            break
        offset = max(offset, start + length)
    return offset""",
            """    offset, found = 0, None
    for start, length in sorted(taken):
        if start - offset >= size:
            found = offset
        offset = max(offset, start + length)
    return offset if found is None else found""",
        ),
        "the tightest gap": (
            """    offset = 0
    for start, length in sorted(taken):
        if start - offset >= size:
            break
        offset = max(offset, start + length)
    return offset""",
            """    offset, gaps = 0, []
    for start, length in sorted(taken):
        if start - offset >= size:
            gaps.append((start - offset, offset))
        offset = max(offset, start + length)
    return min(gaps)[1] if gaps else offset""",
        ),
    },
    "13.2": {
        "the new input is not copied in": ('state["input"].copy_(x)', "pass"),
        "the result is not copied out (aliasing)": ('state["output"].clone()', 'state["output"]'),
        "captures in every call": ("if not state:", "if True:"),
        "the caller's tensor is the input": ("torch.empty_like(x)", "x"),
        "the dtype is ignored": ("torch.empty_like(x)", "torch.empty(x.shape)"),
        "one recording for all programs": (
            "stream, state = Stream(), {}",
            'stream, state = graphed.__dict__.setdefault("once", (Stream(), {}))',
        ),
    },
    "13.3": {
        "the slowest": ("return min(", "return max("),
        "the number of rounds is ignored": ("range(rounds)", "range(9)"),
        "a run to warm up, beyond what is allowed": ("range(rounds)", "range(rounds + 1)"),
    },
    "14.1": {
        "true division": ("a // b", "a / b"),
        "the other size is taken for its number": (
            "plain = super().combine(other, operation)",
            "plain = super().combine(getattr(other, 'hint', other), operation)",
        ),
        "the remainder is a quotient": ("a % b", "a // b"),
        "the hint is taken for the expression": (
            "SizeWithDivision(plain.expression,",
            "SizeWithDivision(plain.hint,",
        ),
        "questions are not passed on": ("plain.hint, plain.asked)", "plain.hint, [])"),
    },
    "14.3": {
        "the largest bucket always": (
            "for s in sorted(sizes) if s >= len(x)",
            "for s in sorted(sizes)[::-1] if s >= len(x)",
        ),
        "a bucket that fits exactly is passed over": ("s >= len(x)", "s > len(x)"),
        "the buckets are taken in the order given": ("sorted(sizes)", "sizes"),
        "larger ones are filled up to the next power of two": (
            "len(x))\n",
            "1 << (len(x) - 1).bit_length())\n",
        ),
        "always of float32": (
            "torch.nn.functional.pad(x, (0, 0, 0, size - len(x)))",
            "torch.cat([x, torch.zeros(size - len(x), x.shape[1])])",
        ),
        "filled up with ones": ("size - len(x)))", "size - len(x)), value=1)"),
        "columns are padded (wrong axis)": ("(0, 0, 0, size - len(x))", "(0, size - len(x))"),
    },
    "15.1": {
        "the quartiles are swapped": ("return middle, low, high", "return middle, high, low"),
        "both lists are sorted first": ("zip(slow, fast)", "zip(sorted(slow), sorted(fast))"),
        "the first and the last tenth": ("n=4)", "n=10)[::4]"),
    },
    "15.3": {
        "what saves nothing is named, too": ("> least", ">= least"),
        "only reads count, and more is taken for less": ("> least", "< least"),
        "the switches are those of the text": (
            "for name in switches",
            'for name in ("fusion", "inlining", "buffer_reuse")',
        ),
        "all switches are off at once": (
            "moved(**{name: False})",
            "moved(**{each: False for each in switches})",
        ),
    },
    "16.1": {
        "the wrong branch goes through silu": (
            "F.silu(self.gate(x)) * self.up(x)",
            "self.gate(x) * F.silu(self.up(x))",
        ),
        "biases": ("hidden, bias=False), nn", "hidden), nn"),
        "a third is rounded down first": ("8 * width // 3", "8 * (width // 3)"),
        "the hidden width is rounded up": ("8 * width // 3", "round(8 * width / 3)"),
        "the hidden width of a plain GPT": ("8 * width // 3", "4 * width"),
    },
    "16.2": {
        "the learning rate is a number": (
            "lr=torch.tensor(learning_rates[0])",
            "lr=learning_rates[0]",
        ),
        "the rate never changes": (
            '["lr"].fill_(next(rates))',
            '["lr"].fill_(learning_rates[0] * 3)',
        ),
        "the loss keeps its graph": ("return loss.detach()", "return loss"),
        "the rate is one step late": (
            """        optimizer.param_groups[0]["lr"].fill_(next(rates))
        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        update()
""",
            """        optimizer.zero_grad()
        loss = forward(x, y)
        loss.backward()
        update()
        optimizer.param_groups[0]["lr"].fill_(next(rates))
""",
        ),
        "the optimizer is not compiled": ("minidynamo.compile(optimizer.step)", "optimizer.step"),
        "gradients are never set to zero": ("        optimizer.zero_grad()\n", ""),
    },
    "16.3": {
        "the window grows": (
            "x = torch.zeros(1, model.context, dtype=torch.long)",
            "x = torch.zeros(1, len(window), dtype=torch.long)",
        ),
        "reads the last place, which is padding": ("[0, len(window) - 1]", "[0, -1]"),
        "one too few": ("range(length)", "range(length - 1)"),
        "a window that is one too short": ("known[-model.context:]", "known[1 - model.context:]"),
        "padded in front": (
            "x[0, :len(window)] = torch.tensor(window)",
            "x[0, model.context - len(window):] = torch.tensor(window)",
        ),
        "only the new ones": ("return known", "return known[-length:]"),
    },
    "17.1": {
        "the arithmetic mean": ("statistics.geometric_mean", "statistics.mean"),
        "the last of the three numbers": (
            "row[label][0] for row in both",
            "row[label][-1] for row in both",
        ),
        "the mean of the three numbers": (
            "row[label][0] for row in both",
            "statistics.mean(row[label]) for row in both",
        ),
        "a model that one of them gets wrong counts for the other": (
            "[row[label][0] for row in both]",
            "[row[label][0] for row in rows if label in row]",
        ),
        "the two are the wrong way round": (
            '("eager / ours", "eager / torch.compile")',
            '("eager / torch.compile", "eager / ours")',
        ),
    },
    "17.2": {
        "random numbers decide": ("torch.manual_seed(0)\n    return", "return"),
        "the capture is not told": ("for one in (model, graph):", "for one in (model,):"),
        "the model is not told": ("for one in (model, graph):", "for one in (graph,):"),
        "the model stays in eval mode": ("one.train()", "one.eval()"),
        "equal and different are the wrong way round": (
            "return not torch.allclose",
            "return torch.allclose",
        ),
    },
    "18.1": {
        "every rank counts the same": (
            "return sum(g * n for g, n in zip(gradients, counts, strict=True) if n) / sum(counts)",
            "return sum(gradients) / len(gradients)",
        ),
        "the ranks' gradients are multiplied": (
            "return sum(g * n for g, n",
            "return sum(g.mul_(n) for g, n",
        ),
        "the NaN of a rank without rows": (" if n)", ")"),
        "a sum, not a mean": (" / sum(counts)", ""),
        "divided by the ranks, not by the rows": (" / sum(counts)", " / len(counts)"),
    },
    "18.2": {
        "a piece ends before it has enough": ("if new and count >= limit:", "if new and count:"),
        "a parameter that was seen counts again": ("if p not in seen}", "}"),
        "only what reads nothing that was seen begins a piece": (
            "if new and count",
            "if new and len(new) == len(parameters) and count",
        ),
        "a piece must have more than the limit": ("count >= limit", "count > limit"),
        "the count goes on over the border": ("            count = 0\n", ""),
        "a cut at any operation": ("if new and count", "if count"),
    },
    "18.3": {
        "the wire carries all buckets at once": ("max(free, ready) + travel", "ready + travel"),
        "only the first and the last piece matter": (
            "return max(ready, free)",
            "return max(computing[0] + sum(sending), sum(computing) + sending[-1])",
        ),
        "a bucket leaves before it is ready": ("max(free, ready) + travel", "free + travel"),
        "nothing is sent before the end": (
            "return max(ready, free)",
            "return sum(computing) + sum(sending)",
        ),
    },
    "18.4": {
        "pieces cost nothing": ("computing / n + overhead", "computing / n"),
        "of equals the most": (
            "return min(range(1, most + 1), key=end)",
            "return min(range(most, 0, -1), key=end)",
        ),
        "a formula for a fast wire": (
            "round(finish([computing / n + overhead] * n, [sending / n] * n), 9)",
            "round(computing + n * overhead + sending / n, 9)",
        ),
        "the overhead is paid once": ("computing / n + overhead", "(computing + overhead) / n"),
        "the most is left out": ("range(1, most + 1)", "range(1, most)"),
        "the latest end": ("return min(", "return max("),
    },
    "00.3": {
        "methods are forgotten": ('in ("call_function", "call_method")', '== "call_function"'),
        "from the end": (
            "nodes = minidynamo.explain(function)(*arguments).main.record.graph.graph.nodes",
            "nodes = [*minidynamo.explain(function)(*arguments).main.record.graph.g"
            "raph.nodes][::-1]",
        ),
        "the last operation is left out": ("for node in nodes if", "for node in [*nodes][:-2] if"),
    },
    "00.4": {
        "only what is written": (
            "for part in (node, *node.all_input_nodes))",
            "for part in (node,))",
        ),
        "elements instead of bytes": (" * value.element_size()", ""),
        "the kernels are forgotten": (
            "eager - sum(kernel.bytes_read + kernel.bytes_written for kernel in "
            "main.compiled.kernels)",
            "eager",
        ),
    },
    "01.4": {
        "the number of a name is a number": (
            'return "value", numbers.setdefault(value, len(numbers))',
            'return "int", repr(numbers.setdefault(value, len(numbers)))',
        ),
        "names are part of the key": (
            'return "value", numbers.setdefault(value, len(numbers))',
            'return "value", value',
        ),
        "the wiring is forgotten": (
            'return "value", numbers.setdefault(value, len(numbers))',
            'return "value", 0',
        ),
        "equal numbers are the same": ("return type(value).__name__, repr(value)", "return value"),
        "only the wiring counts": ("((operation, tuple(", '(("", tuple('),
    },
    "02.4": {
        "a write has an underscore": (
            "not writes_itself(node) and",
            'not getattr(node.target, "__name__", str(node.target)).endswith("_") and',
        ),
        "walks from the front": ("in reversed(list(gm.graph.nodes)):", "in list(gm.graph.nodes):"),
        "writes are removed": ("not writes_itself(node) and node.target", "node.target"),
        "random operations are removed": (" and node.target not in RANDOM", ""),
        "nothing is removed": ("gm.graph.erase_node(node)", "pass"),
    },
    "03.3": {
        "the new entry's guard is asked": (
            "    cache.append(entry)\n    return entry[1]",
            "    cache.append(entry)\n    return entry[1] if entry[0](function, "
            '*args) else "original"',
        ),
        "the last entry that holds": (
            "for guard, code in cache:",
            "for guard, code in cache[::-1]:",
        ),
        "the entry is not kept": ("    cache.append(entry)\n", ""),
        "the callback is always asked": (
            "    for guard, code in cache:\n        if guard(function, *args):\n     "
            "       return code\n",
            "",
        ),
    },
    "03.4": {
        "every function is replaced": (
            "        if code is not old.__code__:\n            return None\n",
            "",
        ),
        "the guard never holds, and nothing is hooked below": (
            "frame_hook.enabled(program, callback)",
            "program",
        ),
        "old is changed for good": (
            "    return frame_hook.enabled(program, callback)",
            "    old.__code__ = new.__code__\n    return program",
        ),
    },
    "04.4": {
        "the items in reverse": ("self.stack.pop()[::-1]", "self.stack.pop()"),
        "the tuple is built from the top": (
            "tuple(self.pop(count))",
            "tuple(self.pop(count)[::-1])",
        ),
        "the tuple is not taken apart": ("self.stack.pop()[::-1]", "self.pop(1)"),
        "one value too few": ("self.pop(count)", "self.pop(count - 1)"),
    },
    "05.4": {
        "the guard is not asked": ("outcome(guard, args) is True and not", "not"),
        "numbers are compared, dtypes are not": (
            "a.dtype == b.dtype and a.shape == b.shape and torch.allclose(a, b, equal_nan=True)",
            "a.shape == b.shape and torch.allclose(a.double(), b.double(), equal_nan=True)",
        ),
        "NaN is never equal": (", equal_nan=True", ""),
        "an error of the guard ends the search": ("outcome(guard, args) is True", "guard(*args)"),
    },
    "06.4": {
        "variables are counted": (
            "sum(sizes[name] for name in alive(function, line))",
            "len(alive(function, line))",
        ),
        "the most bytes": ("return min(", "return max("),
        "of equals, the last": ("return min(places,", "return min(places[::-1],"),
        "the largest variable decides the other way": (
            "sum(sizes[name] for name in alive(function, line))",
            "-sum(sizes[name] for name in alive(function, line))",
        ),
    },
    "07.4": {
        "equal lists are taken for one": ("if written is target:", "if written == target:"),
        "reading writes": ("shown = list(target)", "shown = target"),
        "replayed twice": (
            "            getattr(target, method)(*args)\n        self.writes = []",
            "            getattr(target, method)(*args)",
        ),
        "from the end": (
            "for target, method, args in self.writes:",
            "for target, method, args in self.writes[::-1]:",
        ),
    },
    "08.4": {
        "the last use wins": (
            "found[name] = found.get(name, 0) + back * factor",
            "found[name] = back * factor",
        ),
        "the factors are the wrong way round": (
            "(values[b], values[a]) if",
            "(values[a], values[b]) if",
        ),
        "from the front": ("in reversed(tape):", "in tape:"),
        "what comes back is forgotten": ("+ back * factor", "+ factor"),
        "what is not needed gets 0": (
            "        if result not in found:\n            continue\n        back = found[result]",
            "        back = found.get(result, 0)",
        ),
        "the result is divided by the factor": (
            "(values[b], values[a]) if",
            "(values[result] / values[a], values[result] / values[b]) if",
        ),
    },
    "09.4": {
        "permuted the other way round": (
            "            for place, dim in zip(index, how[0]):\n                below[dim] = place",
            "            below = [index[dim] for dim in how[0]]",
        ),
        "the step multiplies the start, too": (
            "start + step * index[dim]",
            "step * (start + index[dim])",
        ),
        "expand keeps the index": ("below[how[0]] = 0", "pass"),
        "the start is left out": ("start + step * index[dim]", "step * index[dim]"),
    },
    "11.4": {
        "tiles from top to bottom": (
            "for top in range(0, rows, tile) for left in range(0, columns, tile)",
            "for left in range(0, columns, tile) for top in range(0, rows, tile)",
        ),
        "the plain order": (
            "for top in range(0, rows, tile) for left in range(0, columns, tile)",
            "for top in range(0, rows, rows) for left in range(0, columns, "
            "columns)\n            for tile in [max(rows, columns)]",
        ),
        "edge tiles are left out": (
            "for top in range(0, rows, tile) for left in range(0, columns, tile)",
            "for top in range(0, rows - tile + 1, tile) for left in range(0, "
            "columns - tile + 1, tile)",
        ),
        "edge tiles go over the edge": ("min(left + tile, columns)", "left + tile"),
    },
    "12.4": {
        "one for each lane": (
            "return len(touched)",
            "return len([a for a in addresses if a is not None])",
        ),
        "lanes of the mask count": (
            "        if address is not None:\n",
            "        address = address or 0\n        if True:\n            touched "
            "|= {len(touched) // 4 + 900} if address == 0 else set()\n",
        ),
        "bytes moved, not sectors": ("return len(touched)", "return 32 * len(touched)"),
        "a read never crosses": ("(address + size - 1) // 32 + 1", "address // 32 + 1"),
    },
    "13.4": {
        "in the order of the program": (
            "sorted(lives, key=lambda life: (-life[1], life[2]))",
            "lives",
        ),
        "the last step is not counted": ("a <= last and first <= b", "a < last and first < b"),
        "nothing is ever used again": ("if a <= last and first <= b]", "]"),
        "all at the bottom": ("lowest_gap(taken, size)", "lowest_gap([], size)"),
        "equals in the order of the program": ("(-life[1], life[2])", "-life[1]"),
        "equals by name": ("(-life[1], life[2])", "(-life[1], life[0])"),
        "what covers a whole life is not seen": (
            "if a <= last and first <= b]",
            "if a <= first <= b or first <= a and b <= last]",
        ),
        "equals by their end": ("(-life[1], life[2])", "(-life[1], life[3])"),
    },
    "14.4": {
        "every shape is compiled": ("return len(graphs)", "return len(set(shapes))"),
        "zero is a size like others": (
            "else size >= 2 for n, size in zip(graph, shape)) for graph in graphs)",
            "else size != 1 for n, size in zip(graph, shape)) for graph in graphs)",
        ),
        "only the newest graph is asked": ("for graph in graphs)", "for graph in graphs[-1:])"),
        "symbols fit 0 and 1": ("else size >= 2 for n, size", "else True for n, size"),
        "everything is symbolic from the start": (
            "None if len(sizes) > 1 and size >= 2",
            "None if size >= 2",
        ),
        "nothing is ever symbolic": ("None if len(sizes) > 1 and size >= 2 else size", "size"),
    },
    "15.4": {
        "two parts and no more": (
            "return sum(seconds for seconds, _ in parts)",
            "parts = parts[:2]\n    return sum(seconds for seconds, _ in parts)",
        ),
        "what is slower does not count": ("seconds / factor", "seconds / max(factor, 1)"),
        "a mean of the factors, by time": (
            "sum(seconds for seconds, _ in parts) / sum(seconds / factor for "
            "seconds, factor in parts)",
            "sum(s * f for s, f in parts) / sum(s for s, _ in parts)",
        ),
        "parts count the same, however long": (
            "sum(seconds for seconds, _ in parts) / sum(seconds / factor for "
            "seconds, factor in parts)",
            "len(parts) / sum(1 / f for _, f in parts)",
        ),
        "the inverse": (
            "sum(seconds for seconds, _ in parts) / sum(seconds / factor for "
            "seconds, factor in parts)",
            "sum(s / f for s, f in parts) / sum(s for s, _ in parts)",
        ),
    },
    "16.4": {
        "the dearest kernel, not the one that grew": (
            "key=lambda name: cost(after, name) - cost(before, name)",
            "key=lambda name: cost(after, name)",
        ),
        "the time of one call decides": ("return calls * each", "return each"),
        "a ratio instead of a difference": (
            "cost(after, name) - cost(before, name)",
            "cost(after, name) / (cost(before, name) or 1e-9)",
        ),
        "any call more explains it": (
            'return "more calls" if by_calls > by_time else "slower"',
            'return "more calls" if calls > old_calls else "slower"',
        ),
        "any slower call explains it": (
            'return "more calls" if by_calls > by_time else "slower"',
            'return "slower" if each > old_each else "more calls"',
        ),
        "one kernel at least is expected": (", default=None)", ")"),
    },
    "17.3": {
        "what failed is left out": (
            "return 100 * len(one) / len(rows), 100 * len(right) / len(rows)",
            'rows = [row for row in rows if "failed" not in row]\n    return 100 * '
            "len(one) / len(rows), 100 * len(right) / len(rows)",
        ),
        "wrong results count as captured": (
            "for row in right if (row",
            'for row in rows if "failed" not in row and (row',
        ),
        "whole percents only": (
            "return 100 * len(one) / len(rows), 100 * len(right) / len(rows)",
            "return 100 * len(one) // len(rows), 100 * len(right) // len(rows)",
        ),
        "whole among the right ones": (
            "100 * len(one) / len(rows),",
            "100 * len(one) / len(right),",
        ),
        "breaks are not looked at": (
            '(row["graphs"], row["breaks"]) == (1, 0)',
            'row["graphs"] == 1',
        ),
        "graphs are not counted": (
            '(row["graphs"], row["breaks"]) == (1, 0)',
            'row["breaks"] == 0',
        ),
    },
    "17.4": {
        "the largest speedup": (
            "key=lambda name: abs(math.log(without(name) / mean))",
            "key=speedups.get",
        ),
        "differences instead of factors": (
            "abs(math.log(without(name) / mean))",
            "abs(speedups[name] - mean)",
        ),
        "the one that is farthest from one": (
            "abs(math.log(without(name) / mean))",
            "abs(math.log(speedups[name]))",
        ),
        "the one that is farthest from the median": (
            "abs(math.log(without(name) / mean))",
            "abs(math.log(speedups[name] / statistics.median(speedups.values())))",
        ),
        "the mean with it": ("return name, without(name)", "return name, mean"),
    },
}


def edited(solution: str, edit: tuple[str, str]) -> str:
    """The solution with the mistake.  ValueError if the solution has no such text (any more)."""
    old, new = edit
    if old not in solution:
        raise ValueError(f"the solution does not say {old!r}")
    return solution.replace(old, new)
