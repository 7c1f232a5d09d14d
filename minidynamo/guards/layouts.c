/* A tensor's layout as bytes, for guards: class, dtype, device, bits, number of dimensions;
 * then sizes and strides.
 *
 *     layout(tensor) == b'...'             # one call instead of six attributes
 *     layout(tensor).startswith(b'...')    # where sizes are symbols
 *
 *     holds(module._parameters, 'weight', weight, b'...', 'bias', bias, b'...')
 *     lacks(module.__dict__, 'forward')    # of any dictionary
 *
 * Bits: is it a lazily negated or conjugated view, zeros without memory, has it names of
 * dimensions; and, not asked by `plain_layout`, was it made in inference mode, does it require
 * gradients?  None: it is no dense tensor.
 * libtorch's C functions read it; `use_torch` is given their addresses, and tries them first.
 * Mirrors TensorCheck in torch/csrc/dynamo/guards.cpp.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

#define PLAIN (1 << 6)                  /* the bit of what `plain_layout` gives */

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
    int64_t dim;
} Head;

/* The layout's head, and its sizes and strides in place; 0: the object has none. */
static int
read_layout(PyObject *tensor, int is_plain, Head *head, int64_t **sizes, int64_t **strides)
{
    int32_t kind;
    if (!torch.offset || !PyObject_TypeCheck(tensor, tensor_type))
        return 0;
    void *handle = (char *)tensor + torch.offset;
    head->class = Py_TYPE(tensor);
    head->bits = torch.is_neg(handle) | torch.is_conj(handle) << 1
        | torch.is_zerotensor(handle) << 2
        | (torch.has_names && torch.has_names(*(void **)handle)) << 3
        | (is_plain ? PLAIN : torch.is_inference(handle) << 4
           | torch.requires_grad(*(void **)handle) << 5);
    return !torch.layout(handle, &kind) && kind == strided && !torch.dtype(handle, &head->dtype)
        && !torch.device_type(handle, &head->device_type)
        && !torch.device_index(handle, &head->device_index) && !torch.dim(handle, &head->dim)
        && !torch.sizes(handle, sizes) && !torch.strides(handle, strides);
}

static PyObject *
as_bytes(PyObject *tensor, int is_plain)
{
    Head head;
    int64_t *sizes, *strides;
    if (!read_layout(tensor, is_plain, &head, &sizes, &strides))
        Py_RETURN_NONE;
    size_t size = head.dim * sizeof(int64_t);
    PyObject *found = PyBytes_FromStringAndSize(NULL, sizeof head + 2 * size);
    if (found) {
        memcpy(PyBytes_AS_STRING(found), &head, sizeof head);
        memcpy(PyBytes_AS_STRING(found) + sizeof head, sizes, size);
        memcpy(PyBytes_AS_STRING(found) + sizeof head + size, strides, size);
    }
    return found;
}

static PyObject *layout(PyObject *module, PyObject *tensor) { return as_bytes(tensor, 0); }
static PyObject *plain_layout(PyObject *module, PyObject *tensor) { return as_bytes(tensor, 1); }

/* Is this the tensor's layout?  `bytes` come from one of the two functions above. */
static int
has_layout(PyObject *tensor, const char *bytes)
{
    Head head;
    int64_t *sizes, *strides;
    if (!read_layout(tensor, ((Head *)bytes)->bits & PLAIN, &head, &sizes, &strides)
        || memcmp(bytes, &head, sizeof head))
        return 0;
    size_t size = head.dim * sizeof(int64_t);
    bytes += sizeof head;
    return !memcmp(bytes, sizes, size) && !memcmp(bytes + size, strides, size);
}

/* holds(table, key, tensor, layout, key, tensor, layout...): has the dictionary these tensors? */
static PyObject *
holds(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!PyDict_Check(args[0]))
        Py_RETURN_FALSE;
    for (Py_ssize_t i = 1; i + 2 < count; i += 3) {
        PyObject *found = PyDict_GetItemWithError(args[0], args[i]);
        if (PyErr_Occurred())
            return NULL;
        if (found != args[i + 1] || !has_layout(found, PyBytes_AS_STRING(args[i + 2])))
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

/* lacks(dictionary, key, key...): has it none of these keys? */
static PyObject *
lacks(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    for (Py_ssize_t i = 1; i < count; i++) {
        int found = PySequence_Contains(args[0], args[i]);
        if (found)
            return found < 0 ? NULL : Py_NewRef(Py_False);
    }
    Py_RETURN_TRUE;
}

/* use_torch(tensor, tensor._cdata, addresses): find the at::Tensor in the Python object. */
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
    {"layout", layout, METH_O, "layout(tensor) -> bytes, or None"},
    {"plain_layout", plain_layout, METH_O,
     "plain_layout(tensor) -> bytes, or None: the same where gradients do not matter"},
    {"holds", (PyCFunction)(void (*)(void))holds, METH_FASTCALL,
     "holds(table, key, tensor, layout, ...): are these tensors there, in these layouts?"},
    {"lacks", (PyCFunction)(void (*)(void))lacks, METH_FASTCALL,
     "lacks(dictionary, key, ...): are none of these keys there?"},
    {"use_torch", use_torch, METH_VARARGS,
     "use_torch(tensor, tensor._cdata, addresses of libtorch's functions)"},
    {NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "minidynamo.guards._layouts", "Layouts of tensors as bytes", -1,
    functions
};

PyMODINIT_FUNC PyInit__layouts(void) { return PyModule_Create(&module); }
