/* Memos of guard checks: nothing that was read has changed since the check last passed.
 *
 * In:   what a generated guard function read on its way (`remember`): objects, dictionaries, classes, functions, parents before
 *       what they hold; and tensors whose layout matters.
 * Out:  `memo(*tensors)`: True only if all of the objects are as they were and the tensors lie as those did, so that the check need
 *       not be repeated.
 *
 *     memo = Memo()
 *     if not memo(parameter): ...check in Python...; memo.remember([module, module.__dict__], [], parameter)
 *
 * A dictionary carries a version that no other state of any dictionary in the process ever had (PEP 509), one of a class of its own
 * also its class and its __dict__, an object its class and its __dict__, a class its dictionary and MRO, a function its code and its
 * defaults (its closure cannot be replaced), a cell its content.  References are borrowed: a row is looked at only after the row of
 * the dictionary that holds it was found unchanged, hence the order; the first is held by whoever calls.
 * The order of an OrderedDict has no version: one is remembered only if the second list says that its order does not matter.
 *
 * A tensor's layout is what a kernel that was compiled for it relies on: class, dtype, device, sizes, strides, whether it requires
 * gradients, whether its dimensions have names, whether it was made in inference mode, and whether it is a lazily negated or conjugated
 * view.  It is read by libtorch's C functions (a few ns each; `use_torch` is told their addresses and tries them first): the same
 * question through Python's attributes costs half a microsecond a tensor.
 * A memo keeps the numbers and no tensor: an argument is another one in each call.
 *
 * Mirrors the dict tags of torch/csrc/dynamo/guards.cpp.  # PyTorch: dict watchers from 3.12 on (3.14 has no versions any more).
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <structmember.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

#define MOST_DIMENSIONS 16          /* the layout of a tensor with more of them is not watched: its guards run each time */
#define REQUIRES_GRAD 8             /* one of `Layout.bits` */
#define NAMED 16                    /* another: dimensions have names, which went with torch 2.13 */
#define INFERENCE 32                /* another: made in inference mode */
#define ALL_BITS 63
#define MANY_MISSES 32              /* in a row: what changes in every call is not worth remembering */

typedef struct {
    PyObject *object;
    void *first, **slot, *second;
    union { uint64_t version; void *third; };
    enum { DICT, OBJECT, CLASS, FUNCTION, CELL, DICT_OBJECT } kind;
} Row;
typedef struct {
    PyTypeObject *type;
    int32_t dtype, device_type, device_index, bits;
    int64_t dim, numbers[2 * MOST_DIMENSIONS];      /* sizes, then strides */
} Layout;

typedef struct {
    PyObject_HEAD
    Layout *layouts;
    Row *rows;
    Py_ssize_t layout_count, count, misses;
    int holds;                      /* 0: nothing is remembered but layouts, perhaps */
    int any_size;                   /* sizes and strides may be others; not their number */
    vectorcallfunc vectorcall;
} Memo;

/* libtorch's functions; each takes an at::Tensor *, which lies `offset` bytes behind the start of the Python object.  The first seven
 * give 0 if all went well. */
static struct {
    int32_t (*layout)(void *, int32_t *), (*dtype)(void *, int32_t *), (*device_type)(void *, int32_t *), (*device_index)(void *, int32_t *);
    int32_t (*dim)(void *, int64_t *), (*sizes)(void *, int64_t **), (*strides)(void *, int64_t **);
    bool (*is_neg)(const void *), (*is_conj)(const void *), (*is_zerotensor)(const void *), (*is_inference)(const void *);
    bool (*requires_grad)(const void *), (*has_names)(const void *);    /* take what the at::Tensor points to; NULL: nothing has names */
    Py_ssize_t offset;              /* 0: there are none */
} torch;
static PyTypeObject *tensor_type;   /* torch.Tensor */
static int32_t strided;             /* what torch.layout says of dense tensors */

static uint64_t version_of(PyObject *dict) { return ((PyDictObject *)dict)->ma_version_tag; }

/* The class of an object and its __dict__.  0: with an error set. */
static int
attributes_of(PyObject *object, Row *row)
{
    if ((row->slot = (void **)_PyObject_GetDictPtr(object)) && (row->second = *row->slot)) {
#if PY_VERSION_HEX >= 0x030D0000            /* writes to values that lie in the object give its dictionary no new version: move them there */
        PyObject *name = Py_TYPE(object)->tp_flags & Py_TPFLAGS_INLINE_VALUES ? PyUnicode_InternFromString("__dict__") : NULL;
        int status = name ? PyObject_GenericSetAttr(object, name, row->second) : 0;
        Py_XDECREF(name);
        return status == 0;
#endif
    }
    return 1;
}

/* What `object` is now.  0: an object that this file knows nothing to compare of (with an error set, perhaps). */
static int
row_of(PyObject *object, Row *row)
{
    *row = (Row){.object = object, .first = Py_TYPE(object), .kind = OBJECT};
    if (PyDict_Check(object)) {
        row->kind = PyDict_CheckExact(object) ? DICT : DICT_OBJECT;
        row->version = version_of(object);
        return row->kind == DICT || attributes_of(object, row);
    }
    if (PyType_Check(object)) {
        PyTypeObject *type = (PyTypeObject *)object;
        if (!type->tp_dict)         /* 3.12: a builtin class, which does not change */
            return 1;
        *row = (Row){object, type->tp_mro, (void **)&type->tp_dict, type->tp_dict, {version_of(type->tp_dict)}, CLASS};
    }
    else if (PyFunction_Check(object)) {
        row->kind = FUNCTION;
        row->first = PyFunction_GET_CODE(object);
        row->second = PyFunction_GET_DEFAULTS(object);
        row->third = PyFunction_GET_KW_DEFAULTS(object);
    }
    else if (PyCell_Check(object)) {
        row->kind = CELL;
        row->first = PyCell_GET(object);
    }
    else
        return attributes_of(object, row);
    return 1;
}

static int
as_it_was(Row *row)
{
    switch (row->kind) {
    case DICT:
        return version_of(row->object) == row->version;
    case FUNCTION:
        return PyFunction_GET_CODE(row->object) == row->first && PyFunction_GET_DEFAULTS(row->object) == row->second
            && PyFunction_GET_KW_DEFAULTS(row->object) == row->third;
    case CLASS:
        return ((PyTypeObject *)row->object)->tp_mro == row->first && *row->slot == row->second && version_of(row->second) == row->version;
    case CELL:
        return PyCell_GET(row->object) == row->first;
    case DICT_OBJECT:
        if (version_of(row->object) != row->version)
            return 0;
        /* fall through */
    default:
        return (void *)Py_TYPE(row->object) == row->first && (!row->slot || *row->slot == row->second);
    }
}

/* 0: not a tensor of numbers at strides, or one of too many dimensions. */
static int
layout_of(PyObject *tensor, Layout *found, int64_t **sizes, int64_t **strides)
{
    void *handle = (char *)tensor + torch.offset;
    int32_t layout;
    found->type = Py_TYPE(tensor);
    found->bits = torch.is_neg(handle) | torch.is_conj(handle) << 1 | torch.is_zerotensor(handle) << 2
        | (torch.requires_grad(*(void **)handle) ? REQUIRES_GRAD : 0)
        | (torch.has_names && torch.has_names(*(void **)handle) ? NAMED : 0)
        | (torch.is_inference(handle) ? INFERENCE : 0);
    return torch.layout(handle, &layout) == 0 && layout == strided
        && torch.dtype(handle, &found->dtype) == 0
        && torch.device_type(handle, &found->device_type) == 0
        && torch.device_index(handle, &found->device_index) == 0
        && torch.dim(handle, &found->dim) == 0 && found->dim <= MOST_DIMENSIONS
        && torch.sizes(handle, sizes) == 0 && torch.strides(handle, strides) == 0;
}

static int
remember_layout(PyObject *tensor, Layout *layout)
{
    int64_t *sizes, *strides;
    if (!layout_of(tensor, layout, &sizes, &strides))
        return 0;
    memcpy(layout->numbers, sizes, layout->dim * sizeof(int64_t));
    memcpy(layout->numbers + layout->dim, strides, layout->dim * sizeof(int64_t));
    return 1;
}

/* `asked`: the bits that count. */
static int
lies_as_it_did(PyObject *tensor, Layout *was, int32_t asked, int any_size)
{
    Layout now;
    int64_t *sizes, *strides;
    return Py_TYPE(tensor) == was->type         /* another class may be no tensor at all */
        && layout_of(tensor, &now, &sizes, &strides)
        && now.dtype == was->dtype && (now.bits & asked) == (was->bits & asked) && now.dim == was->dim
        && now.device_type == was->device_type && now.device_index == was->device_index
        && (any_size || (!memcmp(sizes, was->numbers, now.dim * sizeof(int64_t))
                         && !memcmp(strides, was->numbers + now.dim, now.dim * sizeof(int64_t))));
}

static int
all_lie_as_they_did(Memo *memo, PyObject *const *tensors, Py_ssize_t count, int32_t asked)
{
    if (count != memo->layout_count)
        return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!lies_as_it_did(tensors[i], &memo->layouts[i], asked, memo->any_size))
            return 0;
    return 1;
}

static PyObject *
memo_call(PyObject *self, PyObject *const *tensors, size_t nargsf, PyObject *kwnames)
{
    Memo *memo = (Memo *)self;
    if (!memo->holds)
        Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < memo->count; i++)
        if (!as_it_was(&memo->rows[i])) {
            memo->holds = 0;
            memo->misses++;
            Py_RETURN_FALSE;
        }
    if (!all_lie_as_they_did(memo, tensors, PyVectorcall_NARGS(nargsf), ALL_BITS))
        Py_RETURN_FALSE;
    memo->misses = 0;
    Py_RETURN_TRUE;
}

/* -1: with an error set; 0: one of them cannot be watched. */
static int
remember_layouts(Memo *memo, PyObject *const *tensors, Py_ssize_t count)
{
    Layout *layouts = PyMem_Resize(memo->layouts, Layout, count);
    if (!layouts) {
        PyErr_NoMemory();
        return -1;
    }
    memo->layouts = layouts;
    for (memo->layout_count = 0; memo->layout_count < count; memo->layout_count++) {
        PyObject *tensor = tensors[memo->layout_count];
        if (!torch.offset || !PyObject_TypeCheck(tensor, tensor_type)) {
            PyErr_Format(PyExc_TypeError, "only the layouts of tensors can be watched, and only after use_torch");
            return -1;
        }
        if (!remember_layout(tensor, &layouts[memo->layout_count]))
            return 0;
    }
    return 1;
}

static int
holds(PyObject *list, PyObject *object)
{
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++)
        if (PyList_GET_ITEM(list, i) == object)
            return 1;
    return 0;
}

static PyObject *
memo_remember(Memo *memo, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 2 || !PyList_CheckExact(args[0]) || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected two lists, and tensors");
    Py_ssize_t n = PyList_GET_SIZE(args[0]), hooks = PyList_GET_SIZE(args[1]);
    memo->holds = 0;
    if (memo->misses >= MANY_MISSES)
        Py_RETURN_NONE;
    Row *rows = PyMem_Resize(memo->rows, Row, n + hooks);
    if (!rows)
        return PyErr_NoMemory();
    memo->rows = rows;
    for (Py_ssize_t i = 0; i < n + hooks; i++) {
        PyObject *object = i < n ? PyList_GET_ITEM(args[0], i) : PyList_GET_ITEM(args[1], i - n);
        if (i < n ? PyODict_Check(object) && !holds(args[1], object) : !PyDict_Check(object))
            Py_RETURN_NONE;
        if (!row_of(object, &rows[i])) {
            if (PyErr_Occurred())
                return NULL;
            Py_RETURN_NONE;
        }
    }
    memo->count = n + hooks;
    int status = remember_layouts(memo, args + 2, nargs - 2);
    memo->holds = status == 1;
    return status < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
memo_watch(Memo *memo, PyObject *const *tensors, Py_ssize_t count)
{
    memo->holds = 0;
    return remember_layouts(memo, tensors, count) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
memo_lie(Memo *memo, PyObject *const *tensors, Py_ssize_t count)
{
    return PyBool_FromLong(all_lie_as_they_did(memo, tensors, count, ALL_BITS & ~REQUIRES_GRAD));
}

static void
memo_dealloc(Memo *memo)
{
    PyMem_Free(memo->rows);
    PyMem_Free(memo->layouts);
    Py_TYPE(memo)->tp_free((PyObject *)memo);
}

static PyObject *
memo_new(PyTypeObject *type, PyObject *args, PyObject *kw)
{
    int any_size = 0;
    static char *names[] = {"any_size", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|p", names, &any_size))
        return NULL;
    Memo *memo = (Memo *)type->tp_alloc(type, 0);
    if (memo) {
        memo->vectorcall = memo_call;
        memo->any_size = any_size;
    }
    return (PyObject *)memo;
}

#define METHOD(function) (PyCFunction)(void (*)(void))function, METH_FASTCALL
static PyMethodDef memo_methods[] = {
    {"remember", METHOD(memo_remember),
     "remember(objects, dicts, *tensors): how they are now, parents before what they hold; the order of the dicts does not matter"},
    {"watch", METHOD(memo_watch), "watch(*tensors): how they lie now; for `lie` alone"},
    {"lie", METHOD(memo_lie), "lie(*tensors): do they lie as those did?  Whether they require gradients does not matter"},
    {NULL}};

static PyTypeObject MemoType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "minidynamo.extras._guard_memo.Memo",
    .tp_doc = "Memo(any_size=False): `memo(*tensors)` is True while nothing that was remembered has changed, and the tensors lie as those did; "
              "`any_size`: whatever their sizes and strides are, as long as there are as many.",
    .tp_basicsize = sizeof(Memo),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Memo, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = memo_new,
    .tp_dealloc = (destructor)memo_dealloc,
    .tp_methods = memo_methods,
};

/* use_torch(tensor, tensor._cdata, addresses) -> bool.  The tensor is the transpose of a dense one of sizes (2, 3), and requires
 * gradients. */
static PyObject *
use_torch(PyObject *module, PyObject *args)
{
    PyObject *tensor, *addresses;
    unsigned long long impl, at[13];
    if (!PyArg_ParseTuple(args, "OKO!", &tensor, &impl, &PyTuple_Type, &addresses))
        return NULL;
    if (PyTuple_GET_SIZE(addresses) != 13)
        return PyErr_Format(PyExc_TypeError, "expected 13 addresses");
    for (int i = 0; i < 13; i++)
        at[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(addresses, i));
    if (PyErr_Occurred())
        return NULL;
    memcpy(&torch, at, sizeof(at));
    for (Py_ssize_t offset = sizeof(PyObject); offset + (Py_ssize_t)sizeof(void *) <= Py_TYPE(tensor)->tp_basicsize; offset += sizeof(void *)) {
        void *handle = (char *)tensor + offset;
        Layout found;
        int64_t *sizes, *strides;
        if (*(uintptr_t *)handle != (uintptr_t)impl)
            continue;
        torch.offset = offset;
        if (torch.layout(handle, &strided) == 0 && layout_of(tensor, &found, &sizes, &strides) && found.bits == REQUIRES_GRAD
            && found.dim == 2 && sizes[0] == 3 && sizes[1] == 2 && strides[0] == 1 && strides[1] == 3) {
            tensor_type = (PyTypeObject *)Py_NewRef(Py_TYPE(tensor));
            Py_RETURN_TRUE;
        }
        torch.offset = 0;
    }
    Py_RETURN_FALSE;
}

static PyMethodDef functions[] = {
    {"use_torch", use_torch, METH_VARARGS,
     "use_torch(tensor, tensor._cdata, addresses of libtorch's functions) -> can layouts be watched?"},
    {NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "minidynamo.extras._guard_memo", "A memo of guard checks; see guards.py", -1, functions};

PyMODINIT_FUNC
PyInit__guard_memo(void)
{
    PyObject *m = PyModule_Create(&module);
    return m && PyModule_AddType(m, &MemoType) == 0 ? m : NULL;
}
