/* Calls generated kernels from Python: `Kernel(address, name, library)(tensor_or_int, ...)`.
 *
 * A generated kernel is `int kernel(void** args)`: data pointers and sizes, in order; not 0 is an error (see raise_error).
 * One call costs about 0.1 us per kernel, because the data pointer of a tensor is read without a Python method call:
 *
 *   A `torch.Tensor` object holds, at some offset, an `at::Tensor`, which is one pointer: to the TensorImpl.  At import,
 *   speed/launcher.py gives us a tensor, its TensorImpl (`tensor._cdata`) and libtorch's stable C function
 *   `aoti_torch_get_data_ptr(at::Tensor*, void**)`.  `use_torch` finds the offset by looking for that pointer and checks
 *   it against `tensor.data_ptr()`.  If anything does not match, we call the `data_ptr` method instead: slower, same result.
 *
 * `empty_strided(size, stride, dtype)` makes a CPU tensor through the stable C function of that name: half of what torch.empty_strided costs.
 *
 * `CudaKernel` launches a compiled Triton kernel the same way, on the stream that is its last argument, through the driver's
 * cuLaunchKernel.  Kernels are compiled for 16-byte aligned pointers; a call with another one goes to `unaligned`.
 *
 * Mirrors: the C++ wrapper and static launchers of torch/_inductor.  Built without torch's or CUDA's headers.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_ARGUMENTS 1024

typedef int (*kernel_function)(void **);
typedef int32_t (*get_data_ptr_function)(void *, void **);

static get_data_ptr_function get_data_ptr = NULL;
static Py_ssize_t tensor_offset = 0;
static PyTypeObject *tensor_type = NULL, *parameter_type = NULL;
static PyObject *data_ptr_name = NULL, *enabled_name = NULL;
static PyObject *profiler = NULL, *record_function = NULL;     /* torch.autograd.profiler's names; its class for labels */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    kernel_function function;
    PyObject *name, *library;       /* the library stays loaded as long as its kernels live */
} Kernel;

/* The pointer a kernel gets for `object`: 0 on success. */
static int argument(PyObject *object, void **result)
{
    if (get_data_ptr && (Py_TYPE(object) == tensor_type || Py_TYPE(object) == parameter_type))
        if (get_data_ptr((char *)object + tensor_offset, result) == 0)
            return 0;
    if (PyLong_Check(object)) {
        long long number = PyLong_AsLongLong(object);
        *result = (void *)(intptr_t)number;
        return number == -1 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *address = PyObject_CallMethodNoArgs(object, data_ptr_name);
    if (!address) return -1;
    *result = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    return PyErr_Occurred() ? -1 : 0;
}

static PyObject *raise_error(int error, PyObject *name)
{
    if (error & 1)
        return PyErr_Format(PyExc_IndexError, "index out of range in self (in compiled kernel %U)", name);
    return PyErr_Format(PyExc_RuntimeError, "ZeroDivisionError (in compiled kernel %U)", name);
}

static PyObject *kernel_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *keywords)
{
    Kernel *kernel = (Kernel *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    void *pointers[MOST_ARGUMENTS];
    if (count > MOST_ARGUMENTS)
        return PyErr_Format(PyExc_ValueError, "%U: more than %d arguments", kernel->name, MOST_ARGUMENTS);
    for (Py_ssize_t i = 0; i < count; i++)
        if (argument(args[i], &pointers[i]) < 0) return NULL;
    PyObject *label = NULL, *done = NULL;
    if (profiler && PyDict_GetItem(profiler, enabled_name) == Py_True) {       /* torch.profiler shows the kernel's name */
        if (!(label = PyObject_CallOneArg(record_function, kernel->name))
            || !(done = PyObject_CallMethod(label, "__enter__", NULL))) { Py_XDECREF(label); return NULL; }
        Py_DECREF(done);
    }
    int error;
    Py_BEGIN_ALLOW_THREADS
    error = kernel->function(pointers);
    Py_END_ALLOW_THREADS
    if (label) {
        done = PyObject_CallMethod(label, "__exit__", "OOO", Py_None, Py_None, Py_None);
        Py_DECREF(label);
        if (!done) return NULL;
        Py_DECREF(done);
    }
    if (error) return raise_error(error, kernel->name);
    Py_RETURN_NONE;
}

static PyObject *kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    unsigned long long address;
    PyObject *name, *library = Py_None;
    if (!PyArg_ParseTuple(args, "KU|O", &address, &name, &library)) return NULL;
    Kernel *self = (Kernel *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    self->vectorcall = kernel_call;
    self->function = (kernel_function)(uintptr_t)address;
    self->name = Py_NewRef(name);
    self->library = Py_NewRef(library);
    return (PyObject *)self;
}

static void kernel_free(Kernel *self)
{
    Py_XDECREF(self->name);
    Py_XDECREF(self->library);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject KernelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "miniinductor.speed._launcher.Kernel",
    .tp_doc = "Kernel(address, name, library=None): a generated function; call it with tensors and ints",
    .tp_basicsize = sizeof(Kernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Kernel, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = kernel_new,
    .tp_dealloc = (destructor)kernel_free,
};

/* --- CUDA ---------------------------------------------------------------------------------------------------------- */
typedef int (*launch_function)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                               void **, void **);
static struct {
    launch_function launch;
    int (*load)(void **, const void *);
    int (*function)(void **, void *, const char *);
    int (*attribute)(void *, int, int);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    int (*error_name)(int, const char **);
} cuda;
static const char *const cuda_names[] = {"cuLaunchKernel", "cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute",
                                         "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuGetErrorName"};

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    void *function;
    PyObject *name, *unaligned;
    unsigned grid[2], threads, shared;
    int device;
} CudaKernel;

static PyObject *cuda_error(int error, const char *what)
{
    const char *name = "unknown error";
    if (cuda.error_name) cuda.error_name(error, &name);
    return PyErr_Format(PyExc_RuntimeError, "CUDA: %s (%d) in %s", name, error, what);
}

/* A thread that has made no CUDA call yet has no context: take the device's. */
static int enter_context(int device)
{
    void *context;
    int error = cuda.retain(&context, device);
    return error ? error : cuda.set_current(context);
}

static PyObject *cuda_kernel_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *keywords)
{
    CudaKernel *kernel = (CudaKernel *)callable;
    Py_ssize_t count = PyVectorcall_NARGS(flags) - 1;       /* the last one is the stream */
    void *pointers[MOST_ARGUMENTS + 2], *addresses[MOST_ARGUMENTS + 2], *stream;
    uintptr_t bits = 0;
    if (count < 0 || count > MOST_ARGUMENTS)
        return PyErr_Format(PyExc_ValueError, "%U: wrong number of arguments", kernel->name);
    for (Py_ssize_t i = 0; i < count; i++) {
        if (argument(args[i], &pointers[i]) < 0) return NULL;
        if (!PyLong_Check(args[i])) bits |= (uintptr_t)pointers[i];
        addresses[i] = &pointers[i];
    }
    if (bits & 15 && kernel->unaligned != Py_None)
        return PyObject_Vectorcall(kernel->unaligned, args, flags, keywords);
    if (argument(args[count], &stream) < 0) return NULL;
    for (int i = 0; i < 2; i++) {       /* Triton's scratch buffers, which these kernels do not use */
        pointers[count + i] = NULL;
        addresses[count + i] = &pointers[count + i];
    }
    for (int try = 0; ; try++) {
        int error = cuda.launch(kernel->function, kernel->grid[0], kernel->grid[1], 1, kernel->threads, 1, 1,
                                kernel->shared, stream, addresses, NULL);
        if (!error) Py_RETURN_NONE;
        if (try || (error = enter_context(kernel->device))) return cuda_error(error, PyUnicode_AsUTF8(kernel->name));
    }
}

/* CudaKernel(function, name, device, grid x, grid y, threads, shared bytes, unaligned) */
static PyObject *cuda_kernel_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    unsigned long long function;
    unsigned x, y, threads, shared;
    int device;
    PyObject *name, *unaligned;
    if (!PyArg_ParseTuple(args, "KUiIIIIO", &function, &name, &device, &x, &y, &threads, &shared, &unaligned)) return NULL;
    CudaKernel *self = (CudaKernel *)type->tp_alloc(type, 0);
    if (!self) return NULL;
    *self = (CudaKernel){.ob_base = self->ob_base, .vectorcall = cuda_kernel_call, .function = (void *)(uintptr_t)function,
                         .name = Py_NewRef(name), .unaligned = Py_NewRef(unaligned), .grid = {x, y}, .threads = threads,
                         .shared = shared, .device = device};
    return (PyObject *)self;
}

static void cuda_kernel_free(CudaKernel *self)
{
    Py_XDECREF(self->name);
    Py_XDECREF(self->unaligned);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject CudaKernelType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "miniinductor.speed._launcher.CudaKernel",
    .tp_doc = "CudaKernel(function, name, device, grid x, grid y, threads, shared bytes, unaligned): call it with tensors "
              "and a stream",
    .tp_basicsize = sizeof(CudaKernel),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(CudaKernel, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = cuda_kernel_new,
    .tp_dealloc = (destructor)cuda_kernel_free,
};

/* load_cubin(code, function name, shared bytes, device) -> address of the loaded function */
static PyObject *load_cubin(PyObject *self, PyObject *args)
{
    const char *code, *name;
    Py_ssize_t length;
    int shared, device, error;
    void *module, *function;
    if (!PyArg_ParseTuple(args, "y#sii", &code, &length, &name, &shared, &device)) return NULL;
    if (!cuda.launch) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        if (!library) return PyErr_Format(PyExc_RuntimeError, "no CUDA driver: %s", dlerror());
        void **functions = (void **)&cuda;
        for (int i = 0; i < 7; i++) functions[i] = dlsym(library, cuda_names[i]);
    }
    if ((error = enter_context(device)) || (error = cuda.load(&module, code))
        || (error = cuda.function(&function, module, name))
        || (shared > 48 << 10 && (error = cuda.attribute(function, 8, shared))))    /* MAX_DYNAMIC_SHARED_SIZE_BYTES */
        return cuda_error(error, name);
    return PyLong_FromVoidPtr(function);
}

/* use_torch(tensor, tensor._cdata, tensor.data_ptr(), address of aoti_torch_get_data_ptr, Parameter) -> bool */
static PyObject *use_torch(PyObject *module, PyObject *args)
{
    PyObject *tensor, *parameter;
    unsigned long long impl, data, function;
    if (!PyArg_ParseTuple(args, "OKKKO", &tensor, &impl, &data, &function, &parameter)) return NULL;
    Py_ssize_t size = Py_TYPE(tensor)->tp_basicsize;
    for (Py_ssize_t offset = sizeof(PyObject); offset + (Py_ssize_t)sizeof(void *) <= size; offset += sizeof(void *)) {
        if (*(uintptr_t *)((char *)tensor + offset) != (uintptr_t)impl) continue;
        void *found = NULL;
        get_data_ptr_function candidate = (get_data_ptr_function)(uintptr_t)function;
        if (candidate((char *)tensor + offset, &found) == 0 && (uintptr_t)found == (uintptr_t)data) {
            tensor_offset = offset;
            tensor_type = (PyTypeObject *)Py_NewRef(Py_TYPE(tensor));
            parameter_type = (PyTypeObject *)Py_NewRef(parameter);
            get_data_ptr = candidate;
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

/* --- making tensors ------------------------------------------------------------------------------------------------ */
static struct {
    int32_t (*empty)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, void **);    /* -> at::Tensor * */
    int32_t (*delete)(void *);
    PyObject *(*wrap)(const void *);        /* libtorch_python's THPVariable_Wrap(const at::TensorBase &) */
    PyObject *codes;                        /* torch.dtype -> its number */
} allocator;

static PyObject *empty_strided(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    int64_t numbers[2][64];
    PyObject *code = count == 3 ? PyDict_GetItemWithError(allocator.codes, args[2]) : NULL;
    Py_ssize_t dims = code && PyTuple_Check(args[0]) && PyTuple_Check(args[1]) ? PyTuple_GET_SIZE(args[0]) : -1;
    if (dims < 0 || dims > 64 || PyTuple_GET_SIZE(args[1]) != dims)
        return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "expected two tuples of equal length and a dtype");
    for (Py_ssize_t i = 0; i < 2 * dims; i++)
        if ((numbers[i >= dims][i % dims] = PyLong_AsLongLong(PyTuple_GET_ITEM(args[i >= dims], i % dims))) == -1 && PyErr_Occurred())
            return NULL;
    void *handle;
    if (allocator.empty(dims, numbers[0], numbers[1], (int32_t)PyLong_AsLong(code), 0, -1, &handle))
        return PyErr_Format(PyExc_RuntimeError, "cannot allocate a tensor of size %R, stride %R", args[0], args[1]);
    PyObject *tensor = allocator.wrap(handle);
    allocator.delete(handle);
    return tensor;
}

/* use_allocator(addresses of aoti_torch_empty_strided, aoti_torch_delete_tensor_object, THPVariable_Wrap; {dtype: number}) */
static PyObject *use_allocator(PyObject *module, PyObject *args)
{
    unsigned long long empty, delete, wrap;
    PyObject *codes;
    if (!PyArg_ParseTuple(args, "KKKO!", &empty, &delete, &wrap, &PyDict_Type, &codes)) return NULL;
    Py_XSETREF(allocator.codes, Py_NewRef(codes));
    *(void **)&allocator.empty = (void *)(uintptr_t)empty;
    *(void **)&allocator.delete = (void *)(uintptr_t)delete;
    *(void **)&allocator.wrap = (void *)(uintptr_t)wrap;
    Py_RETURN_NONE;
}

/* use_profiler(names of torch.autograd.profiler, its class record_function) */
static PyObject *use_profiler(PyObject *module, PyObject *args)
{
    PyObject *names, *label;
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &names, &label)) return NULL;
    Py_XSETREF(profiler, Py_NewRef(names));
    Py_XSETREF(record_function, Py_NewRef(label));
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"use_profiler", use_profiler, METH_VARARGS, "Label kernels with their names while torch.profiler runs."},
    {"use_torch", use_torch, METH_VARARGS, "Find where a tensor object keeps its data pointer; False: it was not found."},
    {"use_allocator", use_allocator, METH_VARARGS, "Addresses of torch's C functions, for empty_strided."},
    {"empty_strided", (PyCFunction)(void (*)(void))empty_strided, METH_FASTCALL, "empty_strided(size, stride, dtype): a CPU tensor"},
    {"load_cubin", load_cubin, METH_VARARGS, "Load a compiled CUDA kernel; its function's address."},
    {NULL}
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_launcher", "Calls generated kernels with tensors.", -1, methods
};

PyMODINIT_FUNC PyInit__launcher(void)
{
    PyObject *module = PyModule_Create(&definition);
    data_ptr_name = PyUnicode_InternFromString("data_ptr");
    enabled_name = PyUnicode_InternFromString("_is_profiler_enabled");
    if (!module || !data_ptr_name || !enabled_name || PyType_Ready(&KernelType) < 0 || PyType_Ready(&CudaKernelType) < 0
        || PyModule_AddObjectRef(module, "CudaKernel", (PyObject *)&CudaKernelType) < 0
        || PyModule_AddObjectRef(module, "Kernel", (PyObject *)&KernelType) < 0)
        return NULL;
    return module;
}
