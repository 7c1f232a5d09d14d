/* A tensor's layout as bytes, for guards: class, dtype, device, bits, number of dimensions;
 * then sizes and strides.
 *
 *     layout(tensor) == b'...'             # one call instead of six attributes
 *     layout(tensor).startswith(b'...')    # where sizes are symbols
 *
 *     still([note(module, ...)], (weight, b'...'), module)     # nobody has written there
 *
 * Bits: is it a lazily negated or conjugated view, zeros without memory, has it names of
 * dimensions, was it made in inference mode, does it require gradients?  None: it is no dense
 * tensor.
 * libtorch's C functions read it; `use_torch` is given their addresses, and tries them first.
 * Mirrors TensorCheck in torch/csrc/dynamo/guards.cpp.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* dimensions of a tensor */
#define MOST 64

/* Each takes an at::Tensor *, which lies `offset` bytes behind the start of the Python object.
 * The first seven return 0 if all went well. */
static struct {
    int32_t (*layout)(void *, int32_t *), (*dtype)(void *, int32_t *);
    int32_t (*device_type)(void *, int32_t *), (*device_index)(void *, int32_t *);
    int32_t (*dim)(void *, int64_t *), (*sizes)(void *, int64_t **), (*strides)(void *, int64_t **);
    bool (*is_neg)(const void *), (*is_conj)(const void *);
    bool (*is_zerotensor)(const void *), (*is_inference)(const void *);
    /* these take what the at::Tensor points to; NULL: torch 2.13 has no names of dimensions */
    bool (*requires_grad)(const void *), (*has_names)(const void *);
    Py_ssize_t offset;                  /* 0: there are none */
} torch;
static PyTypeObject *tensor_type;       /* torch.Tensor */
static int32_t strided;                 /* what torch.layout says of dense tensors */

typedef struct {
    void *class;
    int32_t dtype, device_type, device_index, bits;
    int64_t dim, numbers[2 * MOST];
} Layout;

/* The bytes that it has; 0: there is no layout. */
static Py_ssize_t
read_layout(PyObject *tensor, Layout *found)
{
    int64_t *sizes, *strides;
    int32_t kind;
    if (!torch.offset || !PyObject_TypeCheck(tensor, tensor_type))
        return 0;
    void *handle = (char *)tensor + torch.offset;
    found->class = Py_TYPE(tensor);
    found->bits = torch.is_neg(handle) | torch.is_conj(handle) << 1
        | torch.is_zerotensor(handle) << 2
        | (torch.has_names && torch.has_names(*(void **)handle)) << 3
        | torch.is_inference(handle) << 4 | torch.requires_grad(*(void **)handle) << 5;
    if (torch.layout(handle, &kind) || kind != strided || torch.dtype(handle, &found->dtype)
        || torch.device_type(handle, &found->device_type)
        || torch.device_index(handle, &found->device_index)
        || torch.dim(handle, &found->dim) || found->dim > MOST
        || torch.sizes(handle, &sizes) || torch.strides(handle, &strides))
        return 0;
    size_t size = found->dim * sizeof(int64_t);
    memcpy(found->numbers, sizes, size);
    memcpy(found->numbers + found->dim, strides, size);
    return offsetof(Layout, numbers) + 2 * size;
}

static PyObject *
layout(PyObject *module, PyObject *tensor)
{
    Layout found;
    Py_ssize_t size = read_layout(tensor, &found);
    return size ? PyBytes_FromStringAndSize((char *)&found, size) : Py_NewRef(Py_None);
}

/* A dictionary, an object and its own, or a tuple; each write gives a dictionary another version.
 * (Not so where Python 3.13 writes an attribute.)  A tuple has no version: only an object that was
 * compared before keeps it alive, and its address with it. */
typedef struct {
    PyObject *object, *fields;
    PyTypeObject *class;
    uint64_t version;
} Seen;
static PyObject *dict_name;

static int
look_at(PyObject *object, Seen *seen)
{
    PyObject *fields = object;
    if (PY_VERSION_HEX >= 0x030D0000)
        return 0;
    int is_tuple = PyTuple_CheckExact(object);
    if (!is_tuple && !PyDict_CheckExact(object) && !PyODict_CheckExact(object)) {
        if (!(fields = PyObject_GetAttr(object, dict_name))) {
            PyErr_Clear();
            return 0;
        }
        Py_DECREF(fields);
    }
    *seen = (Seen){object, fields, Py_TYPE(object),
                   is_tuple ? 0 : ((PyDictObject *)fields)->ma_version_tag};
    return 1;
}

/* note(x, y...): bytes that say how these objects are; b"" if nobody can. */
static PyObject *
note(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, count * sizeof(Seen));
    for (Py_ssize_t i = 0; bytes && i < count; i++)
        if (!look_at(args[i], (Seen *)PyBytes_AS_STRING(bytes) + i)) {
            _PyBytes_Resize(&bytes, 0);
            break;
        }
    return bytes;
}

/* still([bytes], (tensor, layout, tensor, layout...), x...): are all objects as `note(x...)` saw
 * them, and have the tensors these layouts?  The bytes keep no object alive.  They need not: an
 * object is either an argument here, or lies in an object that was compared before it.  A tuple
 * among the arguments may be a new one at the address of the one that was seen: false. */
static PyObject *
still(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    PyObject *bytes = PyList_GET_ITEM(args[0], 0), *held = args[1];
    Seen now, *seen = (Seen *)PyBytes_AS_STRING(bytes);
    Py_ssize_t last = PyBytes_GET_SIZE(bytes) / sizeof(Seen);
    if (!last)
        Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < last; i++)
        if ((i + 2 < count
             && (args[i + 2] != seen[i].object || PyTuple_CheckExact(args[i + 2])))
            || !look_at(seen[i].object, &now) || memcmp(&now, seen + i, sizeof now))
            Py_RETURN_FALSE;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held); i += 2) {
        PyObject *known = PyTuple_GET_ITEM(held, i + 1);
        Layout found;
        Py_ssize_t size = read_layout(PyTuple_GET_ITEM(held, i), &found);
        if (size != PyBytes_GET_SIZE(known) || memcmp(&found, PyBytes_AS_STRING(known), size))
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* use_torch(tensor, tensor._cdata, addresses of libtorch's functions): find the at::Tensor in the
 * Python object. */
static PyObject *
use_torch(PyObject *module, PyObject *args)
{
    PyObject *tensor, *addresses;
    unsigned long long impl, at[13];
    if (!PyArg_ParseTuple(args, "OKO!", &tensor, &impl, &PyTuple_Type, &addresses)
        || PyTuple_GET_SIZE(addresses) != 13)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected 13 addresses");
    for (int i = 0; i < 13; i++)
        at[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(addresses, i));
    if (PyErr_Occurred())
        return NULL;
    memcpy(&torch, at, sizeof at);
    tensor_type = (PyTypeObject *)Py_NewRef(Py_TYPE(tensor));
    Py_ssize_t end = tensor_type->tp_basicsize - (Py_ssize_t)sizeof(void *);
    for (torch.offset = sizeof(PyObject); torch.offset <= end; torch.offset += sizeof(void *)) {
        void *handle = (char *)tensor + torch.offset;
        if (*(uintptr_t *)handle == (uintptr_t)impl && torch.layout(handle, &strided) == 0)
            Py_RETURN_NONE;
    }
    torch.offset = 0;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"layout", layout, METH_O},
    {"note", (PyCFunction)(void (*)(void))note, METH_FASTCALL},
    {"still", (PyCFunction)(void (*)(void))still, METH_FASTCALL},
    {"use_torch", use_torch, METH_VARARGS},
    {NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "minidynamo.guards._layouts", "Layouts of tensors as bytes", -1,
    functions
};

PyMODINIT_FUNC PyInit__layouts(void)
{
    return (dict_name = PyUnicode_InternFromString("__dict__")) ? PyModule_Create(&module) : NULL;
}
