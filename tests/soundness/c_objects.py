"""Objects of C types: every name of every type, every method, and the order of effects of
iteration.

    python -m tests.soundness.c_objects --count 2000 [--modes eager] [--only consume]

A case is one of

    ("names", type, number, place)          hasattr and getattr of every name in `dir`
    ("operations N", type, number, place)   part N of type, isinstance, repr, hash, len, iter, ==, <
    ("methods", type, number, place, seed)  methods, called with drawn arguments, one after another
    ("sets", seed)                          the order in which sets of numbers are walked
    ("consume", statement, target, iterator, stop, place)
                                            what a consumer of an iterator does, in which order

`number` is that of the expression in `INSTANCES` that makes the instance; `place` says how it comes
into the compiled function.  Many questions lie in one function, so that a case is cheap.
"""

import importlib
import linecache
import random
import re
import warnings

import torch

from tests.fuzz.compare import ADDRESS, Describer
from tests.soundness import runner
from tests.soundness.tables import items, named, statements

MODULES = (
    "builtins collections functools itertools operator types weakref enum "
    "contextlib array decimal fractions datetime pathlib"
).split()
HEADER = """
import array, builtins, collections, contextlib, datetime, decimal, enum, fractions, functools
import itertools, math, operator, pathlib, sys, types, typing, weakref
import torch

class Plain:
    def method(self, a=1): return a

class Other(Plain):
    pass

class Color(enum.Enum):
    RED = 1
    BLUE = 2

class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2

class Permission(enum.Flag):
    READ = 1
    WRITE = 2

class Mask(enum.IntFlag):
    ONE = 1
    TWO = 2

class Word(enum.StrEnum):
    YES = "yes"

Pair = collections.namedtuple("Pair", "left right")
KEPT = Plain()

def function(a, b=2, *rest, **named):
    "Its text."
    return a

def generate():
    yield 1
    yield 2

async def coroutine(): pass

async def agenerate():
    yield 1

@contextlib.contextmanager
def manage():
    yield 1

def traceback_of():
    try:
        raise ValueError("inside")
    except ValueError as error:
        return error.__traceback__

def outer():
    captured = 1
    def inner(): return captured
    return inner

@functools.lru_cache(None)
def cached(a): return a

@functools.singledispatch
def dispatched(a): return 0

class Described:
    @functools.cached_property
    def slow(self): return 3
    partly = functools.partialmethod(Plain.method, 2)
    single = functools.singledispatchmethod(lambda self, a: a)
    @property
    def prop(self): return 4
    @staticmethod
    def fixed(a): return a
    @classmethod
    def own(cls): return 5
    __slots__ = ("slot", "__dict__")

def note(error):
    return type(error).__name__  # texts of C code are near only
"""

# Expressions that make an instance of each type: `name: one or another`, or a call of the type.
INSTANCES = {
    re.match(r"[\w.]+", item)[0]: re.sub(r"^[\w.]+: ", "", item).split(" or ")
    for item in items(r"""
    builtins.bool: True; builtins.bytearray: bytearray(b'ab c'); builtins.bytes: b'ab c' or b'';
    builtins.classmethod: Described.__dict__['own']; builtins.complex: (1.5-2j);
    builtins.dict: {'a': 1, 2: [3]} or {}; builtins.enumerate: enumerate(['a', 'b'], 3);
    builtins.filter: filter(None, [0, 1, 2]); builtins.float: 1.5 or float('nan') or -0.0;
    builtins.frozenset: frozenset({1, 2}) or frozenset(); builtins.int: 7 or 0 or -3;
    builtins.list: [3, 1, 2] or [] or [[1], 'a'];
    builtins.map: map(abs, [-1, 2]) or map(lambda a: a + 1, (1, 2));
    builtins.memoryview: memoryview(b'abc'); builtins.object: object();
    builtins.property: Described.__dict__['prop']; builtins.range: range(2, 8, 3) or range(0);
    builtins.reversed: reversed((1, 2)); builtins.set: {1, 2} or set();
    builtins.slice: slice(1, None, 2); builtins.staticmethod: Described.__dict__['fixed'];
    builtins.str: 'ab c' or '' or '\u00e9T1'; builtins.super: super(Other, Other());
    builtins.tuple: (1, 'a') or (); builtins.type: Plain or int or list;
    builtins.zip: zip((1, 2), 'ab'); collections.ChainMap({'a': 1}, {'b': 2});
    collections.Counter('abca'); collections.OrderedDict(a=1, b=2); collections.UserDict(a=1);
    collections.UserList([2, 1]); collections.UserString('ab');
    collections.defaultdict(list, a=[1]);
    collections.deque([3, 1, 2]) or collections.deque([1, 2, 3], 2);
    functools.cached_property: Described.__dict__['slow'];
    functools.partial(function, 1, b=3) or functools.partial(int, base=2);
    functools.partialmethod: Described.__dict__['partly'];
    functools.singledispatchmethod: Described.__dict__['single']; itertools.accumulate([1, 2, 3]);
    itertools.batched([1, 2, 3], 2); itertools.chain([1], (2,));
    itertools.combinations([1, 2, 3], 2); itertools.combinations_with_replacement([1, 2], 2);
    itertools.compress([1, 2], [0, 1]); itertools.count(2); itertools.cycle([1, 2]);
    itertools.dropwhile(bool, [1, 0, 2]); itertools.filterfalse(None, [1, 0]);
    itertools.groupby([1, 1, 2]); itertools.islice([1, 2, 3], 1, 3); itertools.pairwise([1, 2, 3]);
    itertools.permutations([1, 2]); itertools.product([1, 2], 'a'); itertools.repeat(4, 3);
    itertools.starmap(pow, [(2, 3)]); itertools.takewhile(bool, [1, 0]);
    itertools.zip_longest([1, 2], 'a'); operator.attrgetter('real'); operator.itemgetter(0);
    operator.methodcaller('upper'); types.AsyncGeneratorType: agenerate();
    types.BuiltinFunctionType: len or [1].append or math.sin;
    types.CellType(3) or outer().__closure__[0];
    types.ClassMethodDescriptorType: dict.__dict__['fromkeys']; types.CodeType: function.__code__;
    types.DynamicClassAttribute(None); types.FunctionType: function or lambda a, b=1: a or outer();
    types.GeneratorType: generate() or (a for a in [1, 2]); types.GenericAlias: list[int];
    types.GetSetDescriptorType: types.FunctionType.__dict__['__code__'];
    types.MappingProxyType({'a': 1}); types.MemberDescriptorType: Described.__dict__['slot'];
    types.MethodDescriptorType: str.upper; types.MethodType: KEPT.method or Plain().method;
    types.MethodWrapperType: (1).__add__; types.ModuleType: math or types.ModuleType('made');
    types.NoneType: None; types.EllipsisType: ...; types.NotImplementedType: NotImplemented;
    types.SimpleNamespace(a=1); types.TracebackType: traceback_of(); types.UnionType: int|str;
    types.WrapperDescriptorType: int.__add__; weakref.KeyedRef(KEPT, None, 'k');
    weakref.ReferenceType: weakref.ref(KEPT); weakref.CallableProxyType: weakref.proxy(function);
    weakref.ProxyType: weakref.proxy(KEPT); weakref.WeakKeyDictionary({KEPT: 1});
    weakref.WeakMethod(KEPT.method); weakref.WeakSet([KEPT]);
    weakref.WeakValueDictionary({'a': KEPT}); weakref.finalize(KEPT, int); enum.Enum: Color.RED;
    enum.EnumType: Color; enum.Flag: Permission.READ or Permission.READ|Permission.WRITE;
    enum.IntEnum: Level.LOW; enum.IntFlag: Mask.ONE; enum.StrEnum: Word.YES; enum.auto();
    contextlib.ExitStack(); contextlib._GeneratorContextManager: manage(); contextlib.closing(KEPT);
    contextlib.nullcontext(3); contextlib.redirect_stdout(None); contextlib.suppress(ValueError);
    array.array('i', [3, 1]) or array.array('d'); decimal.Context(prec=4); decimal.Decimal('1.50');
    fractions.Fraction(3, 4); datetime.date(2020, 2, 29); datetime.datetime(2020, 2, 29, 12, 30);
    datetime.time(12, 30); datetime.timedelta(days=2, seconds=5);
    datetime.timezone: datetime.timezone.utc; pathlib.PosixPath('a/b.txt');
    pathlib.PurePosixPath('a/b.txt'); pathlib.PureWindowsPath('a/b.txt')
""")
}
# Types that have no instances of their own here, or none that two runs would make alike.
WITHOUT = named("""
    array.ArrayType: array.array's other name; contextlib.AbstractAsyncContextManager: abstract;
    contextlib.AbstractContextManager: abstract; contextlib.AsyncContextDecorator: abstract;
    contextlib.AsyncExitStack: asynchronous; contextlib.ContextDecorator: abstract;
    contextlib.aclosing: asynchronous; contextlib.chdir: changes the process;
    contextlib.redirect_stderr: like redirect_stdout; datetime.tzinfo: abstract;
    decimal.DecimalTuple: a named tuple; enum.EnumCheck: an enum like Color;
    enum.EnumDict: made by EnumType alone; enum.EnumMeta: EnumType's other name;
    enum.FlagBoundary: an enum like Word; enum.ReprEnum: abstract;
    enum.member: a descriptor of class bodies; enum.nonmember: a descriptor of class bodies;
    enum.property: a descriptor of class bodies; enum.verify: a decorator of classes;
    functools.GenericAlias: types.GenericAlias; functools.RLock: a lock;
    functools.Placeholder: Python 3.14; pathlib.Path: makes a PosixPath;
    pathlib.PurePath: makes a PurePosixPath; pathlib.Sequence: collections.abc's;
    pathlib.UnsupportedOperation: an exception; pathlib.WindowsPath: not on this system;
    types.CapsuleType: made by C code alone; types.CoroutineType: one that is never awaited warns;
    types.FrameType: a frame of the compiled program is another one than plain Python's
""")
NO_CONSTRUCTION = {  # exceptions that take other arguments than text
    "UnicodeDecodeError": "UnicodeDecodeError('utf-8', b'a', 0, 1, 'why')",
    "UnicodeEncodeError": "UnicodeEncodeError('utf-8', 'a', 0, 1, 'why')",
    "UnicodeTranslateError": "UnicodeTranslateError('a', 0, 1, 'why')",
    "ExceptionGroup": "ExceptionGroup('group', [ValueError(1)])",
    "BaseExceptionGroup": "BaseExceptionGroup('group', [KeyboardInterrupt()])",
}
PLACES = ("made", "argument", "global", "closure")


def types_found() -> dict[str, type]:
    """name -> type: every public type of the modules, each under one name."""
    found: dict[str, type] = {}
    for module_name in MODULES:
        for name, value in sorted(vars(importlib.import_module(module_name)).items()):
            if isinstance(value, type) and not name.startswith("_") and value not in found.values():
                found[f"{module_name}.{name}"] = value
    return found


def instances() -> dict[str, list[str]]:
    """The table with the exceptions of `builtins` added."""
    table = dict(INSTANCES)
    for name, cls in types_found().items():
        if issubclass(cls, BaseException) and name not in table:
            owner, _, short = name.rpartition(".")
            arguments = "'why'" if issubclass(cls, SyntaxError) else "'why', 3"
            plain = f"{short if owner == 'builtins' else name}({arguments})"
            table[name] = [NO_CONSTRUCTION.get(short, plain)]
    return {name: made for name, made in table.items() if exists(name)}


def without_instances() -> set[str]:
    """Types that neither table knows: a new Python's, perhaps."""
    return set(types_found()) - set(instances()) - set(WITHOUT)


def exists(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    return hasattr(importlib.import_module(module), attribute)


# ---- what is asked
# names whose answer differs from run to run, or that change the process
UNASKED = {
    *"__del__ __sizeof__ __weakref__ __subclasses__ __dir__ __builtins__ __globals__".split()
}
UNCALLED = UNASKED | set(
    (
        "__class__ __init_subclass__ __setattr__ __delattr__ __reduce__ "
        "__reduce_ex__ __getstate__ __setstate__ __new__ now today utcnow "
        "fromtimestamp timestamp astimezone mro clear_frames _abc_registry_clear "
        "_abc_caches_clear"
    ).split()
)
NAMES_BY_ALL = (
    "__call__ __doc__ __dict__ __eq__ __ne__ __lt__ __hash__ __class__ __init__ __repr__ __str__ "
    "__len__ __iter__ __next__ __getitem__ __contains__ __bool__ __name__ __qualname__ __module__ "
    "__self__ __func__ __wrapped__ __get__ __set__ __add__ __reduce__ __format__ "
    "__getattribute__ __slots__ __match_args__ __annotations__ __class_getitem__ nothing"
).split()
OPERATIONS = items("""
    type(o); type(o) is KIND; o.__class__; isinstance(o, KIND); isinstance(o, (str, KIND));
    isinstance(o, (int, float)); isinstance(o, collections.abc.Sized);
    isinstance(o, collections.abc.Iterable); isinstance(o, collections.abc.Iterator);
    isinstance(o, collections.abc.Callable); isinstance(o, collections.abc.Hashable);
    isinstance(o, collections.abc.Sequence); isinstance(o, collections.abc.Mapping);
    isinstance(o, typing.Sequence); isinstance(o, typing.Callable); isinstance(o, typing.Hashable);
    isinstance(o, typing.SupportsInt); isinstance(o, typing.SupportsIndex);
    isinstance(o, int | None); isinstance(o, typing.Union[str, list]);
    isinstance(o, typing.Optional[dict]); isinstance(o, numbers.Number);
    isinstance(o, numbers.Integral); isinstance(o, torch.Tensor); isinstance(o, torch.FloatTensor);
    isinstance(o, torch.nn.Parameter); isinstance(o, list[int]); isinstance(o, 3);
    issubclass(type(o), KIND); issubclass(type(o), (collections.abc.Sized, str));
    issubclass(type(o), typing.Hashable); issubclass(o, object); callable(o); repr(o); str(o);
    ascii(o); format(o); format(o, '>4'); f'{o}'; f'{o!r:>3}'; '%s' % (o,); hash(o); len(o);
    bool(o); not o; iter(o) is o; type(iter(o)); o == o; o != o; o == O2; o != O2; O2 == o; o < O2;
    o <= O2; o == 3; o == 'ab c'; 3 == o; o is o; o in [o]; [o] == [o]; (1, o) == (1, o);
    [o].index(o); [o, o].count(o); {1: o} == {1: o}; o in (1, 'a'); 1 in o; 'a' in o; o[0]; o['a'];
    o[0:1]; o + o; o + 1; 1 + o; o * 2; 2 * o; o | o; o & o; o - o; o % 2; o ** 2; o // 2; -o; +o;
    ~o; abs(o); int(o); float(o); complex(o); round(o); divmod(o, 2); operator.index(o);
    operator.length_hint(o, 4); max(o, o, key=id) is o; max(o, O2); sorted([O2, o]); [*o]; {**o};
    list(o); tuple(o); set(o); dict(o); reversed(o); list(reversed(o)); sum(o); min(o); any(o);
    all(o); enumerate(o); sorted(o); zip(o, o); next(o); next(o, 5); {o: 1}[o]; {o} == {o}; vars(o);
    id(o) == id(o); getattr(o, 'nothing', 4); callable(getattr(o, '__call__', None))
""")
PARTS = 5  # in which the operations are asked
# These iterators have no end: what walks them to the end never comes back in plain Python, either.
ENDLESS = {"itertools.count", "itertools.cycle"}
WALKING = {
    *items("1 in o; 'a' in o; [*o]; list(o); tuple(o); set(o); sum(o); min(o); all(o); sorted(o)")
}
VALUES = (
    "0 1 -1 2 True None 'a' 'b' 'ab' b'a' [1,2] (1,2) {'a':5} {1} 1.5 int function slice(0,1) "
    "[('a',1)] range(2) iter([1,2]) KEPT Plain ValueError ['a','b'] lambda:3 (lambda*a:1)"
).split()


def picture(value: object) -> object:
    """The value as plain data; a C object without attributes by its text, addresses masked."""
    return Picture()(value)


class Picture(Describer):
    def __call__(self, value):
        kind = type(value)
        if kind is str:  # str() of an object
            return ADDRESS.sub("", value)
        known = super().__call__(value)
        if isinstance(known, tuple) and known == (kind.__name__,):
            if not hasattr(kind, "__next__") and kind.__repr__ is not object.__repr__:
                return kind.__name__, ADDRESS.sub("", repr(value))
        return known


# ---- programs
def questions(expressions: list[str], prefix: str = "out") -> str:
    """Statements that append each answer, or what it raises."""
    lines = []
    for expression in expressions:
        lines.append(f"    try: {prefix}.append({expression})")
        lines.append(f"    except Exception as error: {prefix}.append(note(error))")
    return "\n".join(lines)


def program(kind: str, made: str, place: str, body: str) -> str:
    """A module with `plain(x, o)`, and `arguments()`."""
    outside = f"O2 = {made}\nKIND = {kind}\nimport numbers\n"
    start = f"    o = {made}\n" if place == "made" else ""
    parameters = "x, o" if place == "argument" else "x"
    function = f"def f({parameters}):\n{start}    x = x + 1\n    out = []\n{body}\n"
    function += "    return x * 2, out, o\n"
    if place == "global":
        return HEADER + outside + f"o = {made}\n" + function
    if place == "closure":
        inner = function.replace("\n", "\n    ")
        return HEADER + outside + f"def close(o):\n    {inner}\n    return f\nf = close({made})\n"
    return HEADER + outside + function


def load(source: str, name: str) -> dict:
    """The namespace of a program.  Its lines can be shown."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace = {"__name__": "program"}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def outcome(source: str, name: str, made: str, place: str, wrap) -> list:
    """What a fresh copy of the program does."""
    namespace = load(source, name)
    arguments = [torch.arange(3.0)]
    if place == "argument":
        arguments.append(eval(made, namespace))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result, out, instance = wrap(namespace["f"])(*arguments)
        except Exception as error:
            return ["raised", picture(error)]
    return [picture(result), *[pictured(item) for item in out], pictured(instance)]


def pictured(value: object) -> object:
    """Each answer for itself: a picture of a strange object may fail, but must fail alike."""
    try:
        return picture(value)
    except Exception as error:
        return "no picture", type(error).__name__, ADDRESS.sub("", str(error))


def compared(source: str, made: str, place: str, mode, labels: list[str]) -> str:
    """What differs between plain Python and the compiled program, answer by answer."""
    name = f"<c_objects {abs(hash(source)) % 10**8}>"
    plain = outcome(source, name, made, place, lambda f: f)
    again = outcome(source, name, made, place, lambda f: f)
    compiled = outcome(source, name, made, place, mode.compile)
    if plain[0] == "raised" or compiled[0] == "raised" or len(plain) != len(compiled):
        return "" if plain == compiled else f"plain {plain!r:.300}\ncompiled {compiled!r:.1500}"
    found = []
    for label, one, two, ours in zip(["x", *labels, "state"], plain, again, compiled, strict=True):
        if one == two and one != ours:  # what plain Python does not repeat tells nothing
            found.append(f"{label}: plain {one!r:.200}   compiled {ours!r:.300}")
    return "\n".join(found)


def check_instance(family: str, kind: str, number: int, place: str, mode, seed: int = 0) -> str:
    made = instances()[kind][number]
    namespace = load(HEADER, "<c_objects header>")
    names = set(dir(eval(made, namespace))) | set(NAMES_BY_ALL)
    if family == "names":
        asked = sorted(names - UNASKED)
        expressions = [f"hasattr(o, {name!r})" for name in asked]
        expressions += [f"getattr(o, {name!r})" for name in asked if name.startswith("__")]
        expressions += [f"o.{name}" for name in asked if not name.startswith("__")]
    elif family.startswith("operations"):
        expressions = OPERATIONS[int(family.split()[1]) :: PARTS]
        if kind in ENDLESS:
            expressions = [asked for asked in expressions if asked not in WALKING]
        if type(eval(made, namespace)).__hash__ is object.__hash__:  # the address, which changes
            expressions = [asked for asked in expressions if asked != "hash(o)"]
    else:
        draw = random.Random(f"{kind} {number} {seed}")
        allowed = names & PATHS if kind.startswith("pathlib.") else names - UNCALLED
        methods = sorted(n for n in allowed if callable_name(made, n, namespace))
        expressions = [call(draw, draw.choice(methods)) for _ in range(12)] if methods else []
    source = program(kind, made, place, questions(expressions))
    report = compared(source, made, place, mode, expressions)
    return f"o = {made}\n{report}" if report else ""


def callable_name(made: str, name: str, namespace: dict) -> bool:
    try:
        return callable(getattr(eval(made, namespace), name))
    except Exception:
        return False


PATHS = {  # of methods of paths, those that do not touch files
    *"as_posix as_uri is_absolute is_relative_to joinpath match relative_to with_name".split(),
    *"with_stem with_suffix __fspath__ __truediv__ __rtruediv__ __eq__ __lt__ __hash__".split(),
}


def call(draw: random.Random, name: str) -> str:
    """A call of a method with zero to three drawn arguments."""
    arguments = draw.choices(VALUES, k=draw.choice((0, 1, 1, 1, 2, 2, 3)))
    return f"o.{name}({', '.join(arguments)})"


# ---- order of effects
CONSUME_HEADER = """
LOG = []

def saw(*what):
    LOG.append(what)

class Spy:
    "An iterator in Python that looks at the consumer at each step."
    def __init__(self, items, target, stop):
        self.given, self.target, self.stop, self.at = list(items), target, stop, 0
    def __iter__(self):
        saw("iter")
        return self
    def __next__(self):
        saw("next", self.at, look(self.target))
        if self.at == self.stop: raise ValueError("stop")
        if self.at == len(self.given): raise StopIteration
        self.at += 1
        return self.given[self.at - 1]

class Hinted(Spy):
    def __length_hint__(self):
        saw("hint")
        return 2

class Sized:
    def __init__(self, items, target, stop): self.spy = Spy(items, target, stop)
    def __len__(self):
        saw("len")
        return 3
    def __iter__(self):
        saw("made")
        return self.spy

class Indexed:
    def __init__(self, items, target, stop): self.spy = Spy(items, target, stop)
    def __getitem__(self, index):
        try: return next(self.spy)
        except StopIteration: raise IndexError

class Keyed:
    "A mapping as far as dict.update asks for one."
    def __init__(self, items, target, stop):
        self.pairs, self.target, self.stop = dict(items), target, stop
    def keys(self):
        saw("keys", look(self.target))
        return Spy(self.pairs, self.target, self.stop)
    def __getitem__(self, key):
        saw("get", key, look(self.target))
        return self.pairs[key]

class Listed(list):
    pass

def look(target):
    return repr(target) if type(target) is not set else repr(sorted(target))

def generated(items, target, stop):
    for n, item in enumerate(items):
        saw("step", n, look(target))
        if n == stop: raise ValueError("stop")
        yield item

def mapped(items, target, stop):
    def step(item):
        saw("map", item, look(target))
        if item == stop or stop is not None and len(LOG) > 3: raise ValueError("stop")
        return item
    return map(step, items)

def growing(items, target, stop):
    for n, item in enumerate(items):
        if isinstance(target, (list, collections.deque)): target.append(90 + n)
        elif isinstance(target, set): target.add(90 + n)
        elif isinstance(target, dict): target[90 + n] = n
        if n == stop: raise ValueError("stop")
        yield item

def key(value):
    saw("key", value, look(TARGETS[0]))
    return -value if isinstance(value, int) else 0

TARGETS = [None]

class Ordered:
    "Compares, and tells."
    def __init__(self, value): self.value = value
    def __lt__(self, other):
        saw("lt", self.value, other.value, look(TARGETS[0]))
        if other.value == 99: raise ValueError("not comparable")
        return self.value < other.value
    def __eq__(self, other):
        saw("eq", self.value)
        return isinstance(other, Ordered) and self.value == other.value
    def __hash__(self): return self.value
    def __repr__(self): return f"Ordered({self.value})"
    def __add__(self, other):
        saw("add", self.value)
        return Ordered(self.value + getattr(other, "value", other))
    __radd__ = __add__
    def __bool__(self):
        saw("bool", self.value)
        return self.value > 1
"""
ITERATORS = "Spy Hinted Sized Indexed generated mapped growing".split()
# what `t` is, the statement; {i} is the iterator over numbers, {p} over pairs
LISTS = ["[7, 8, 9]", "Listed([7, 8, 9])"]
DEQUES = ["collections.deque([7, 8])", "collections.deque([7, 8], 3)"]
DICTS = ["{1: 0, 'z': 1}", "collections.OrderedDict(z=1)", "collections.defaultdict(int, z=1)"]
CONSUMERS = {
    statement: targets
    for targets, text in (
        (
            LISTS,
            """
            t[1:] = {i} | t[:1] = {i} | t[::2] = {i} | t[-1:] = {i} | t[:] = zip({i}, {i}) |
            t.sort(key=key) | t.sort(key=key, reverse=True) |
            t[:] = [Ordered(3), Ordered(1), Ordered(2)]; t.sort() |
            t[:] = [Ordered(3), Ordered(99), Ordered(1), Ordered(0)]; t.sort() |
            t.extend(map(key, {i})) | t.extend(itertools.chain({i}, {i})) | list.extend(t, {i}) |
            t = [*t, *{i}, 5] | t[1:2] = t | t.index(Ordered(9), 1) | t.remove(Ordered(5)) |
            Ordered(5) in t | t = t + [*{i}]""",
        ),
        (
            DEQUES,
            """
            t.extend({i}) | t += {i} | t.extend(t) | t += t | t.extendleft({i}) |
            t = collections.deque({i}, 2) | t.extendleft(t) | t.extendleft(map(key, {i})) |
            t.rotate(1); t.extend(zip({i}, {i}))""",
        ),
        (
            ["{7, 8}"],
            """
            t.update({i}, {i}) | t |= set({i}) | t.difference_update({i}) |
            t.intersection_update({i}) | t.symmetric_difference_update({i}) | r = t.union({i}) |
            r = t.issubset({i}) | r = t.issuperset({i}) | r = t.isdisjoint({i}) |
            r = t.intersection({i}) | r = t.difference({i}) | t = {{*t, *{i}}} | t.update(t) |
            t.update([1, True, 1.0]) | r = repr(set([1.0, 1, True])), repr(frozenset([True, 1])) |
            r = repr({{1}}|{{1.0}}), repr({{1}} & {{1.0}}), repr({{1.0}}.union([True]))""",
        ),
        (
            DICTS,
            """
            t.update({i}) | t.update({p}) | t.update({p}, q=3) | t |= {p} | t.update({k}) |
            t.update(zip({i}, {i})) | r = dict.fromkeys({i}, 3) |
            r = dict(map(lambda a: (a, key(a)), {i})) | r = {{a: key(a) for a in {i}}} |
            t.update([(1, 2), (3,)]) | t.update([(1, 2), 3]) | r = {{**t, **{k}}} | r = dict({k}) |
            r = collections.Counter({i})""",
        ),
        (
            ["[7]"],
            """
            r = list({i}) | r = tuple({i}) | r = set({i}) | r = frozenset({i}) | r = sorted({i}) |
            r = sorted({i}, key=key) | r = sorted({i}, key=key, reverse=True) | r = sum({i}) |
            r = sum(map(Ordered, {i}), 5).value | r = sum({i}, 'a') | r = sum({i}, start=[]) |
            r = min({i}) | r = max({i}, key=key) | r = min({i}, key=key, default=4) |
            r = max(map(Ordered, {i})).value | r = any(map(Ordered, {i})) |
            r = all(map(Ordered, {i})) | r = all(key(a) for a in {i}) |
            r = 'x'.join(map(str, {i})) | r = ','.join({i}) | a, b, c = {i}; r = (a, b, c) |
            a, b = {i}; r = (a, b) | a, *b = {i}; r = (a, b) | *a, b, c, d, e = {i} | r = [*{i}] |
            r = function(*{i}) | r = function(0, *{i}, **{k}) | r = list(zip({i}, {i})) |
            r = list(zip([1, 2], {i}, strict=True)) | r = list(zip({i}, [1], strict=True)) |
            r = list(map(lambda a, b: (key(a), b), {i}, [1, 2])) | r = list(filter(key, {i})) |
            r = list(enumerate({i}, 4)) | r = 2 in {i} | r = 5 in {i} |
            r = list(iter({i}.__next__, 2)) | r = functools.reduce(lambda a, b: a + key(b), {i}) |
            r = functools.reduce(lambda a, b: a + key(b), {i}, 1) |
            r = list(itertools.chain({i}, t, {i})) |
            r = list(itertools.chain.from_iterable([{i}, t])) | r = list(itertools.islice({i}, 2)) |
            r = list(itertools.islice({i}, 0, None, 2)) |
            r = list(itertools.takewhile(lambda a: key(a) > -2, {i})) |
            r = list(itertools.dropwhile(lambda a: key(a) > -2, {i})) |
            r = list(itertools.filterfalse(lambda a: key(a) > -2, {i})) |
            r = list(itertools.accumulate({i}, lambda a, b: a + key(b))) |
            r = list(itertools.accumulate({i}, initial=2)) |
            r = list(itertools.starmap(lambda a, b: key(a), zip({i}, {i}))) |
            r = list(itertools.zip_longest({i}, [1], fillvalue=0)) |
            r = list(itertools.product({i}, {i})) | r = list(itertools.permutations({i}, 2)) |
            r = list(itertools.combinations({i}, 2)) | r = list(itertools.pairwise({i})) |
            r = list(itertools.compress({i}, {i})) |
            r = [(k, list(g)) for k, g in itertools.groupby({i}, key)] |
            r = list(itertools.islice(itertools.cycle({i}), 5)) |
            a, b = itertools.tee({i}); r = (next(a), list(b), list(a)) |
            r = [b for a in {i} for b in (a, key(a))] |
            t.append(next({i})); t.append(next({i}, 5)) | t.append(next(iter([]), 5)) |
            m = map(key, {i}); next(m); t.extend(m); r = list(m) |
            m = zip({i}, {i}); next(m); t.extend(m); r = list(m) |
            m = enumerate({i}); next(m); t.extend(m); r = next(m, None) |
            m = iter({i}); a, b = m, 0; t.append(next(a)); t.extend(m) |
            r = list(reversed(list({i}))) |
            r = operator.contains({i}, 2), operator.indexOf({i}, 2), operator.countOf({i}, 2) |
            r = bytes({i}) | r = list({p}) | r = max({p}, key=lambda pair: key(pair[0])) |
            r = dict({p}) |
            d = {{1: 1, 2: 2}}; r = list(itertools.chain((d.update(a=key(5)) for a in (1,)), d))""",
        ),
    )
    for statement in statements(text)
}


def consume_program(statement: str, target: str, iterator: str, stop: int | None, place: str):
    numbers = f"{iterator}([1, 2, 3], t, {stop})"
    pairs = f"{iterator}([(1, 2), ('b', 3), (4, 5)], t, {stop})"
    keyed = f"Keyed([('a', 1), ('b', 2)], t, {stop})"
    written = statement.format(i=numbers, p=pairs, k=keyed)
    body = f"""
    TARGETS[0] = t
    r = None
    try:
        {written}
    except Exception as error:
        out.append(note(error))
    out.append(r)
    out.append(t)
    out.append(list(LOG))"""
    body = body.replace("TARGETS[0] = t", "TARGETS[0] = t = o")
    source = program("object", target, place, body)
    return source.replace("KEPT = Plain()", "KEPT = Plain()\n" + CONSUME_HEADER), written


def check_consume(statement: str, target: str, iterator: str, stop, place: str, mode) -> str:
    source, written = consume_program(statement, target, iterator, stop, place)
    name = f"<c_objects {abs(hash(source)) % 10**8}>"
    plain = outcome(source, name, target, place, lambda f: f)
    compiled = outcome(source, name, target, place, mode.compile)
    if plain == compiled:
        return ""
    parts = [
        f"plain {a!r:.700}\ncompiled {b!r:.700}" for a, b in zip(plain, compiled) if a != b
    ] or [f"plain {plain!r:.700}\ncompiled {compiled!r:.700}"]
    return f"t = {target}; {written}\n" + "\n".join(parts)


# ---- the order of sets
NUMBERS = "0 1 8 16 24 32 9 17 33 5 64 128 True 1.0 0.5 2.5 8.0".split()  # they collide
MADE = (
    "{{{}}}; set([{}]); frozenset(({},)); set({{{}}}); frozenset({{{}}}); "
    "set(dict.fromkeys([{}])); {{k: 0 for k in [{}]}}.keys()"
).split("; ")
STEPS = (
    "s.add({n})",
    "s.discard({n})",
    "s.update({v})",
    "s.update([{n}, {n}])",
    "{w} = {v} {o} {u}",
    "s {o}= {v}",
    "s = set(s)",
    "s = set(s); s.difference_update({v})",
    "s = set(s); s.intersection_update({v})",
    "s = set(s); s.symmetric_difference_update({v})",
    "t = set(t).union({v}, [{n}])",
    "t = set(t).intersection({v}, [{n}, {n}])",
    "t = set(t).difference({v}, [{n}])",
    "u = s.copy()",
    "out.append(list({v}))",
    "out.append(s.pop() if s else None)",
    "globals()",  # breaks the graph
)


def set_program(seed: int) -> tuple[str, str]:
    """(source, argument) of a program that makes sets and walks them."""
    draw = random.Random(seed)

    def made() -> str:
        numbers = ", ".join(draw.choices(NUMBERS, k=draw.randrange(9)))
        return draw.choice(MADE).format(numbers) if numbers else "set()"

    def step() -> str:
        v, w, u = draw.choices("stu", k=3)
        return draw.choice(STEPS).format(
            n=draw.choice(NUMBERS), o=draw.choice("|&-^"), v=v, w=w, u=u
        )

    lines = [f"s = {draw.choice((f'set({made()})', 'o'))}", f"t = {made()}", f"u = {made()}"]
    lines += [step() for _ in range(draw.randrange(1, 7))]
    inside = "\n        ".join(lines)
    body = f"""    try:
        {inside}
    except Exception as error:
        out.append(note(error))
    out += [list(s), list(t), list(u)]
    out = [out, s, t, u]"""
    return program("object", "set()", "argument", body), "{8, 0, 16, 24}"


def set_outcome(seed: int, wrap) -> list[str]:
    source, argument = set_program(seed)
    namespace = load(source, f"<c_objects sets {seed}>")
    _, (out, *sets), given = wrap(namespace["f"])(torch.arange(3.0), eval(argument))
    return [repr(out), *map(repr, sets), repr(given)]


def check_sets(seed: int, mode) -> str:
    plain, compiled = set_outcome(seed, lambda f: f), set_outcome(seed, mode.compile)
    if plain == compiled:
        return ""
    program_text = set_program(seed)[0].partition("def f(")[2]
    return f"{program_text}\nplain {plain}\ncompiled {compiled}"


# ---- the generator
def enumerated() -> list[tuple]:
    """Every lookup and operation of every type, in every place."""
    table = [(kind, n) for kind, made in instances().items() for n in range(len(made))]
    return [
        (family, kind, n, place)
        for kind, n in table
        for place in PLACES
        for family in ("names", *(f"operations {part}" for part in range(PARTS)))
    ]


def consumers() -> list[tuple]:
    return [
        ("consume", statement, target, iterator, stop, place)
        for statement, targets in CONSUMERS.items()
        for target in targets
        for iterator in (ITERATORS if "{i}" in statement or "{p}" in statement else ["Spy"])
        for stop in (None, 1)
        for place in ("made", "argument")
    ]


def calls(count: int, first: int) -> list[tuple]:
    """`count` cases of methods with drawn arguments, half as many of sets."""
    table = [(kind, n) for kind, made in instances().items() for n in range(len(made))]
    made = []
    for seed in range(first, first + count):
        draw = random.Random(seed)
        made.append(("methods", *draw.choice(table), draw.choice(PLACES), seed))
    return made + [("sets", seed) for seed in range(first, first + count // 2)]


def cases(count: int, first: int) -> list[tuple]:
    return [*consumers(), *enumerated(), *calls(count, first)]


def check(case: tuple, mode) -> str:
    family, *rest = case
    if family == "consume":
        return check_consume(*rest, mode)
    if family == "sets":
        return check_sets(*rest, mode)
    if family == "methods":
        kind, number, place, seed = rest
        return check_instance(family, kind, number, place, mode, seed)
    return check_instance(family, *rest, mode)


if __name__ == "__main__":
    runner.main("tests.soundness.c_objects", default_modes="eager")
