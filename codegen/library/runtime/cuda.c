/* The launcher of CUDA libraries. It needs the C library alone. */
#define _GNU_SOURCE
#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the driver, as its documented interface has it ---- */

typedef int result;
typedef void *context, *module, *kernel, *event, *pool, *graph;

/* name in the driver, name here, parameters */
#define DRIVER(_)                                                                             \
  _(cuInit, init, (unsigned))                                                                 \
  _(cuGetErrorName, error_name, (result, const char **))                                      \
  _(cuGetErrorString, error_string, (result, const char **))                                  \
  _(cuDeviceGetCount, device_count, (int *))                                                  \
  _(cuDeviceGet, device_get, (int *, int))                                                    \
  _(cuDeviceGetName, device_name, (char *, int, int))                                         \
  _(cuDeviceGetAttribute, device_attribute, (int *, int, int))                                \
  _(cuDevicePrimaryCtxRetain, primary_retain, (context *, int))                               \
  _(cuCtxGetCurrent, context_current, (context *))                                            \
  _(cuCtxGetDevice, context_device, (int *))                                                  \
  _(cuCtxPushCurrent_v2, context_push, (context))                                             \
  _(cuCtxPopCurrent_v2, context_pop, (context *))                                             \
  _(cuCtxSynchronize, context_finish, (void))                                                 \
  _(cuModuleLoadData, module_load, (module *, const void *))                                  \
  _(cuModuleUnload, module_unload, (module))                                                  \
  _(cuModuleGetFunction, module_kernel, (kernel *, module, const char *))                     \
  _(cuFuncSetAttribute, kernel_set, (kernel, int, int))                                       \
  _(cuLaunchKernel, launch,                                                                   \
    (kernel, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,    \
     void **, void **))                                                                       \
  _(cuMemAlloc_v2, allocate, (uint64_t *, size_t))                                            \
  _(cuMemFree_v2, release, (uint64_t))                                                        \
  _(cuMemcpyHtoD_v2, upload, (uint64_t, const void *, size_t))                                \
  _(cuMemcpyDtoH_v2, download, (void *, uint64_t, size_t))                                    \
  _(cuMemsetD8Async, erase, (uint64_t, unsigned char, size_t, void *))                        \
  _(cuStreamSynchronize, stream_finish, (void *))                                             \
  _(cuEventCreate, event_create, (event *, unsigned))                                         \
  _(cuEventRecord, event_record, (event, void *))                                             \
  _(cuEventSynchronize, event_finish, (event))                                                \
  _(cuEventElapsedTime, event_elapsed, (float *, event, event))                               \
  _(cuEventDestroy_v2, event_destroy, (event))

/* These came with CUDA 11.2; without them workspaces cost a wait. */
#define OPTIONAL(_)                                                                           \
  _(cuMemAllocAsync, allocate_async, (uint64_t *, size_t, void *))                            \
  _(cuMemFreeAsync, release_async, (uint64_t, void *))                                        \
  _(cuDeviceGetDefaultMemPool, default_pool, (pool *, int))                                   \
  _(cuMemPoolSetAttribute, pool_set, (pool, int, void *))

/* These came with CUDA 11.4; without them short kernels are timed as fast as calls can start. */
#define GRAPHS(_)                                                                             \
  _(cuStreamCreate, stream_create, (void **, unsigned))                                       \
  _(cuStreamDestroy_v2, stream_destroy, (void *))                                             \
  _(cuStreamBeginCapture_v2, capture_begin, (void *, int))                                    \
  _(cuStreamEndCapture, capture_end, (void *, graph *))                                       \
  _(cuGraphInstantiateWithFlags, graph_make, (graph *, graph, uint64_t))                      \
  _(cuGraphUpload, graph_upload, (graph, void *))                                             \
  _(cuGraphLaunch, graph_launch, (graph, void *))                                             \
  _(cuGraphExecDestroy, graph_drop, (graph))                                                  \
  _(cuGraphDestroy, capture_drop, (graph))

enum {
  OUT_OF_MEMORY = 2,
  DEINITIALIZED = 4,
  INVALID_VALUE = 1,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  NO_BINARY = 209,
  INVALID_PTX = 218,
  UNSUPPORTED_PTX = 222,
  OUT_OF_RESOURCES = 701,
  DYNAMIC_SHARED_BYTES = 8, /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
  RELEASE_THRESHOLD = 4,    /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */
  MEMORY_POOLS = 115,       /* CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED */
  THIS_THREAD = 1,          /* CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
  GRAPH_CALLS = 32,         /* of a graph that is timed */
  STATIC_SHARED_BYTES = 48 << 10
};

#define MEMBER(symbol, name, parameters) result(*name) parameters;
static struct {
  DRIVER(MEMBER) OPTIONAL(MEMBER) GRAPHS(MEMBER)
} cu;
#undef MEMBER

static int driver_status; /* of start */
static int has_graphs = 1;
static char driver_message[512];
static _Thread_local char message[512];

#define MOST_GPUS 32
static context primary[MOST_GPUS];
static int pools[MOST_GPUS]; /* whether memory can be had in the order of a stream */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int status_of(result r) {
  switch (r) {
    case 0: return LW_OK;
    case OUT_OF_MEMORY: return LW_OUT_OF_MEMORY;
    case NO_DEVICE: return LW_NO_GPU;
    case INVALID_IMAGE:
    case NO_BINARY:
    case INVALID_PTX:
    case UNSUPPORTED_PTX: return LW_OTHER_GPU;
    case INVALID_VALUE:
    case INVALID_DEVICE:
    case OUT_OF_RESOURCES: return LW_BAD_ARGUMENT;
    default: return LW_LOST;
  }
}

/* Notes what the driver says of a result. */
static int failed(const char *what, result r) {
  const char *name = NULL, *text = NULL;
  if (!r) return LW_OK;
  if (cu.error_name) cu.error_name(r, &name);
  if (cu.error_string) cu.error_string(r, &text);
  snprintf(message, sizeof message, "%s: error %d, %s (%s)", what, r, name ? name : "unknown",
           text ? text : "no text");
  return status_of(r);
}

#define TRY(what, expression)                    \
  do {                                           \
    int try_ = failed(what, (expression));       \
    if (try_) return try_;                       \
  } while (0)

static void start(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(driver_message, sizeof driver_message, "%s", why ? why : "libcuda.so.1 is missing");
    driver_status = LW_NO_DRIVER;
    return;
  }
#define LOAD(symbol, name, parameters)                                                     \
  if (!(*(void **)&cu.name = dlsym(library, #symbol)) && !driver_status) {                 \
    driver_status = LW_NO_DRIVER;                                                          \
    snprintf(driver_message, sizeof driver_message, "libcuda.so.1 has no " #symbol);       \
  }
  DRIVER(LOAD)
#undef LOAD
#define LOAD(symbol, name, parameters) *(void **)&cu.name = dlsym(library, #symbol);
  OPTIONAL(LOAD)
#undef LOAD
#define LOAD(symbol, name, parameters) \
  has_graphs &= (*(void **)&cu.name = dlsym(library, #symbol)) != NULL;
  GRAPHS(LOAD)
#undef LOAD
  if (driver_status) return;
  int count = 0;
  driver_status = failed("cuInit", cu.init(0));
  if (!driver_status) driver_status = failed("cuDeviceGetCount", cu.device_count(&count));
  if (!driver_status && !count) driver_status = LW_NO_GPU;
  snprintf(driver_message, sizeof driver_message, "%s", message);
}

static int ready(void) {
  pthread_once(&once, start);
  if (driver_status) snprintf(message, sizeof message, "%s", driver_message);
  return driver_status;
}

/* Makes the context of a GPU current, until `leave`. */
static int enter(int *device) {
  int status = ready();
  if (status) return status;
  if (*device < 0) {
    context now = NULL;
    *device = 0;
    if (!cu.context_current(&now) && now) {
      TRY("cuCtxGetDevice", cu.context_device(device));
    }
  }
  if (*device >= MOST_GPUS) return LW_BAD_ARGUMENT;
  pthread_mutex_lock(&lock);
  result r = 0;
  if (!primary[*device]) {
    int id = 0, can = 0;
    r = cu.device_get(&id, *device);
    if (!r) r = cu.primary_retain(&primary[*device], id);
    if (!r && cu.allocate_async && cu.release_async) cu.device_attribute(&can, MEMORY_POOLS, id);
    pool memory = NULL;
    uint64_t all = UINT64_MAX; /* keep what is free for the next call */
    if (!r && can && cu.default_pool && cu.pool_set && !cu.default_pool(&memory, id))
      cu.pool_set(memory, RELEASE_THRESHOLD, &all);
    pools[*device] = can;
  }
  pthread_mutex_unlock(&lock);
  TRY("cuDevicePrimaryCtxRetain", r);
  TRY("cuCtxPushCurrent", cu.context_push(primary[*device]));
  return LW_OK;
}

static int leave(int status) {
  context old;
  cu.context_pop(&old);
  return status;
}

/* ---- a library's kernels ---- */

typedef struct {
  module loaded[MOST_GPUS];
  kernel *kernels[MOST_GPUS][LW_FUNCTIONS];
} state;

static int load_kernels(lw_gpu_library *library, state *s, int device) {
  TRY("loading the kernels", cu.module_load(&s->loaded[device], library->image));
  for (int f = 0; f < LW_FUNCTIONS; f++) {
    const lw_plan *plan = &library->functions[f];
    kernel *made = calloc((size_t)plan->launches + 1, sizeof *made);
    if (!made) return LW_OUT_OF_MEMORY;
    s->kernels[device][f] = made;
    for (int i = 0; i < plan->launches; i++) {
      const lw_launch *l = &plan->launch[i];
      TRY(l->kernel, cu.module_kernel(&made[i], s->loaded[device], l->kernel));
      if (l->shared) TRY(l->kernel, cu.kernel_set(made[i], DYNAMIC_SHARED_BYTES, l->shared));
    }
  }
  return LW_OK;
}

static void drop_kernels(state *s, int device) {
  for (int f = 0; f < LW_FUNCTIONS; f++) {
    free(s->kernels[device][f]);
    s->kernels[device][f] = NULL;
  }
  if (s->loaded[device]) cu.module_unload(s->loaded[device]);
  s->loaded[device] = NULL;
}

/* The kernels on a GPU whose context is current. */
static int kernels_on(lw_gpu_library *library, int device, state **found) {
  int status = LW_OK;
  pthread_mutex_lock(&lock);
  if (!library->state) library->state = calloc(1, sizeof(state));
  state *s = *found = library->state;
  if (!s) {
    status = LW_OUT_OF_MEMORY;
  } else if (!s->loaded[device] && (status = load_kernels(library, s, device))) {
    drop_kernels(s, device);
  }
  pthread_mutex_unlock(&lock);
  return status;
}

static int load(lw_gpu_library *library, int device) {
  state *s;
  int status = enter(&device);
  return status ? status : leave(kernels_on(library, device, &s));
}

static void unload(lw_gpu_library *library) {
  state *s = library->state;
  for (int device = 0; s && device < MOST_GPUS; device++) {
    int entered = device;
    if (s->loaded[device] && !enter(&entered)) {
      drop_kernels(s, device);
      leave(0);
    }
  }
  free(s);
  library->state = NULL;
}

/* ---- calls ---- */

static result take(int device, uint64_t bytes, uint64_t *pointer, void *stream) {
  if (!bytes) bytes = 1;
  return pools[device] ? cu.allocate_async(pointer, bytes, stream)
                       : cu.allocate(pointer, bytes);
}

static void give(int device, uint64_t pointer, void *stream) {
  if (!pointer) return;
  if (pools[device]) {
    cu.release_async(pointer, stream);
  } else {
    cu.stream_finish(stream);
    cu.release(pointer);
  }
}

static int start_all(const lw_plan *plan, kernel *kernels, uint64_t *pointers, void *stream) {
  for (int i = 0; i < plan->launches; i++) {
    const lw_launch *l = &plan->launch[i];
    void *parameters[LW_GPU_MAX_ARGUMENTS];
    for (int a = 0; a < l->count; a++) parameters[a] = &pointers[l->arguments[a]];
    TRY(l->kernel, cu.launch(kernels[i], (unsigned)l->grid, 1, 1, (unsigned)l->block, 1, 1,
                             (unsigned)l->shared, stream, parameters, NULL));
  }
  return LW_OK;
}

/* Several calls as one graph. */
static int capture(const lw_plan *plan, kernel *kernels, uint64_t *pointers, void *stream,
                   graph *made) {
  graph captured = NULL;
  TRY("cuStreamBeginCapture", cu.capture_begin(stream, THIS_THREAD));
  int status = LW_OK;
  for (int i = 0; i < GRAPH_CALLS && !status; i++)
    status = start_all(plan, kernels, pointers, stream);
  int ended = failed("cuStreamEndCapture", cu.capture_end(stream, &captured));
  if (!status) status = ended;
  if (!status) status = failed("cuGraphInstantiate", cu.graph_make(made, captured, 0));
  if (!status) status = failed("cuGraphUpload", cu.graph_upload(*made, stream));
  if (captured) cu.capture_drop(captured);
  return status;
}

/* Runs a function `times` times, and tells the seconds between two events. Calls are graphs as far
 * as they fill them, so that what is timed is the GPU's work, not how fast calls can be started. */
static int timed(const lw_plan *plan, kernel *kernels, uint64_t *pointers, int64_t times,
                 double *seconds) {
  void *stream = NULL;
  graph calls = NULL;
  event first = NULL, last = NULL;
  int64_t graphs = has_graphs ? times / GRAPH_CALLS : 0;
  float milliseconds = 0;
  int status = LW_OK;
  if (graphs) status = failed("cuStreamCreate", cu.stream_create(&stream, 0));
  if (graphs && !status) status = capture(plan, kernels, pointers, stream, &calls);
  if (!status) status = failed("cuEventCreate", cu.event_create(&first, 0));
  if (!status) status = failed("cuEventCreate", cu.event_create(&last, 0));
  if (!status) status = failed("cuEventRecord", cu.event_record(first, stream));
  for (int64_t i = 0; i < graphs && !status; i++)
    status = failed("cuGraphLaunch", cu.graph_launch(calls, stream));
  for (int64_t i = graphs * GRAPH_CALLS; i < times && !status; i++)
    status = start_all(plan, kernels, pointers, stream);
  if (!status) status = failed("cuEventRecord", cu.event_record(last, stream));
  if (!status) status = failed("waiting for the kernels", cu.event_finish(last));
  if (!status)
    status = failed("cuEventElapsedTime", cu.event_elapsed(&milliseconds, first, last));
  *seconds = milliseconds * 1e-3;
  if (first) cu.event_destroy(first);
  if (last) cu.event_destroy(last);
  if (calls) cu.graph_drop(calls);
  if (stream) cu.stream_destroy(stream);
  return status;
}

/* Runs a function once, or `times` times where `seconds` is wanted. */
static int run(lw_gpu_library *library, int device, int function, const uint64_t *given,
               void *stream, int64_t times, double *seconds) {
  state *s;
  const lw_plan *plan = &library->functions[function];
  uint64_t pointers[LW_GPU_MAX_ARGUMENTS];
  if (plan->pointers + plan->workspaces > LW_GPU_MAX_ARGUMENTS) return LW_BAD_ARGUMENT;
  int status = kernels_on(library, device, &s);
  if (status) return status;
  memset(pointers, 0, sizeof pointers);
  memcpy(pointers, given, sizeof *given * (size_t)plan->pointers);
  for (int i = 0; i < plan->workspaces && !status; i++)
    status = failed("no memory for the temporary arrays of the kernels",
                    take(device, plan->bytes[i], &pointers[plan->pointers + i], stream));
  kernel *kernels = s->kernels[device][function];
  if (!status)
    status = seconds ? timed(plan, kernels, pointers, times, seconds)
                     : start_all(plan, kernels, pointers, stream);
  for (int i = 0; i < plan->workspaces; i++) give(device, pointers[plan->pointers + i], stream);
  return status;
}

static int call(lw_gpu_library *library, int device, int function, const uint64_t *pointers,
                void *stream) {
  int status = enter(&device);
  return status ? status : leave(run(library, device, function, pointers, stream, 1, NULL));
}

static int repeat(lw_gpu_library *library, int device, int function, const uint64_t *pointers,
                  int64_t times, double *seconds) {
  int status = enter(&device);
  return status ? status
                : leave(run(library, device, function, pointers, NULL, times, seconds));
}

/* ---- memory ---- */

#define INSIDE(what, expression)                                \
  int status = enter(&device);                                  \
  return status ? status : leave(failed(what, (expression)))

static int allocate(int device, uint64_t bytes, uint64_t *pointer) {
  INSIDE("cuMemAlloc", cu.allocate(pointer, bytes ? bytes : 1));
}

static void release(int device, uint64_t pointer) {
  if (enter(&device)) return;
  cu.release(pointer);
  leave(0);
}

static int upload(int device, uint64_t to, const void *from, uint64_t bytes) {
  INSIDE("copying to the GPU", cu.upload(to, from, bytes));
}

static int download(int device, void *to, uint64_t from, uint64_t bytes) {
  INSIDE("waiting for the kernels", cu.download(to, from, bytes));
}

static int erase(int device, uint64_t pointer, uint64_t bytes) {
  int status = enter(&device);
  if (status) return status;
  status = failed("cuMemsetD8Async", cu.erase(pointer, 0, bytes, NULL));
  return leave(status ? status : failed("cuStreamSynchronize", cu.stream_finish(NULL)));
}

static int finish(int device) { INSIDE("waiting for the kernels", cu.context_finish()); }

static int attribute(int device, int number, int *value) {
  int id = 0, status = ready();
  if (status) return status;
  TRY("cuDeviceGet", cu.device_get(&id, device < 0 ? 0 : device));
  return failed("cuDeviceGetAttribute", cu.device_attribute(value, number, id));
}

static int device_name(int device, char *text, int size) {
  int id = 0, status = ready();
  if (status) return status;
  TRY("cuDeviceGet", cu.device_get(&id, device < 0 ? 0 : device));
  return failed("cuDeviceGetName", cu.device_name(text, size, id));
}

/* ---- for exported libraries ---- */

static const char *error_text(int status) {
  switch (status) {
    case LW_OK: return "no error";
    case LW_NULL_POINTER: return "a pointer is null";
    case LW_MISALIGNED: return "a pointer is not aligned to 16 bytes";
    case LW_OUT_OF_MEMORY: return "no memory on the GPU";
    case LW_BAD_ARGUMENT: return "a number is out of range";
    case LW_NO_DRIVER: return "NVIDIA's driver, libcuda.so.1, is missing or too old";
    case LW_NO_GPU: return "there is no NVIDIA GPU";
    case LW_OTHER_GPU: return "the kernels were compiled for another GPU";
    case LW_LOST: return "a kernel or the GPU failed; its context cannot be used any more";
    case LW_OVERLAP: return "an output overlaps an input or another output";
    default: return "unknown status";
  }
}

static const char *detail(void) { return message; }

extern lw_gpu_library lw_gpu_own __attribute__((weak, visibility("hidden")));

static int overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes) {
  return a < b ? b - a < a_bytes && b_bytes : a - b < b_bytes && a_bytes;
}

__attribute__((visibility("hidden"))) int lw_gpu_checked_call(int function,
                                                              const uint64_t *pointers,
                                                              const lw_gpu_argument *arguments,
                                                              void *stream) {
  int count = lw_gpu_own.functions[function].pointers;
  for (int i = 0; i < count; i++) {
    if (!pointers[i]) return LW_NULL_POINTER;
    if (pointers[i] % (uint64_t)arguments[i].alignment) return LW_MISALIGNED;
  }
  for (int i = 0; i < count; i++)
    for (int j = 0; arguments[i].written && j < count; j++)
      if (j != i && overlap(pointers[i], arguments[i].bytes, pointers[j], arguments[j].bytes))
        return LW_OVERLAP;
  return call(&lw_gpu_own, -1, function, pointers, stream);
}

__attribute__((visibility("hidden"))) int lw_gpu_allocate(uint64_t bytes, uint64_t *pointer,
                                                          void *stream) {
  int device = -1, status = enter(&device);
  return status ? status : leave(failed("no memory", take(device, bytes, pointer, stream)));
}

__attribute__((visibility("hidden"))) void lw_gpu_release(uint64_t pointer, void *stream) {
  int device = -1;
  if (enter(&device)) return;
  give(device, pointer, stream);
  leave(0);
}

__attribute__((visibility("default"))) const lw_gpu_table loopwright_gpu = {
    .abi = LW_GPU_ABI,
    .own = &lw_gpu_own,
    .call = call,
    .repeat = repeat,
    .load = load,
    .unload = unload,
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .erase = erase,
    .finish = finish,
    .attribute = attribute,
    .name = device_name,
    .error = error_text,
    .detail = detail,
};
