/* The run-time that is linked with one object file of TVM into a free-standing shared object.
 *
 * One compilation unit, so that nothing but lw_table and TVM's hooks needs a linker symbol.
 */
#define _GNU_SOURCE
#include "runtime.h"

#include "base.c"

/* ---- threads ---- */


static _Thread_local int wanted; /* chunks of this thread's next launch; 0 for as many as usual */

/* Sets the number of chunks of the next launch, for loops with few iterations: a power of two for
 * each of the threads that the code was made for, with at most one iteration to a chunk. A single
 * iteration is the caller's. */
LW_HIDDEN int lw_deal(int iterations, int threads) {
  int each = 1;
  while (each < CHUNKS && each * threads < iterations) each *= 2;
  wanted = iterations < 2 ? 1 : each < CHUNKS ? each * threads : 0;
  return 0;
}

/* TVM's parallel loops ask for 0, which leaves the number to us. */
static int launch(lw_task *task, void *data, int count) {
  int threads = lw_threads(), chunks = wanted;
  wanted = 0;
  if (chunks == 1) count = 1;
  if (count > 0) return active_pool->run(task, data, count, count);
  if (chunks == 0 || chunks % threads) chunks = threads * CHUNKS;
  return active_pool->run(task, data, threads, threads > 1 ? chunks : 1);
}

static _Atomic unsigned calls;

void lw_begin(void) { atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed); }

/* What to combine the number of a chunk with, by exclusive or, so that each thread takes its chunks
 * forwards in one call of the library, and backwards in the next. */
LW_HIDDEN int lw_turn(void) {
  return atomic_load_explicit(&calls, memory_order_relaxed) % 2 ? CHUNKS - 1 : 0;
}

/* Bytes from here to the next cache line, of 64. */
LW_HIDDEN int lw_to_line(const void *pointer) { return (int)(-(uintptr_t)pointer & 63); }

/* TVM's objects define these weakly, as null; these definitions win, and their being hidden
 * keeps every library to its own. */
LW_HIDDEN int (*__TVMBackendParallelLaunch)(lw_task *, void *, int) = launch;
LW_HIDDEN void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int) = allocate;
LW_HIDDEN int (*__TVMBackendFreeWorkspace)(int, int, void *) = release;

/* TVM's C source calls functions of these names. */
LW_HIDDEN void *TVMBackendAllocWorkspace(int device_type, int device_id, uint64_t bytes, int code,
                                         int bits) {
  return allocate(device_type, device_id, bytes, code, bits);
}

LW_HIDDEN int TVMBackendFreeWorkspace(int device_type, int device_id, void *block) {
  return release(device_type, device_id, block);
}

static void borrow(const lw_pool *pool) {
  active_pool = pool;
  __TVMBackendAllocWorkspace = pool->allocate;
  __TVMBackendFreeWorkspace = pool->release;
}

/* ---- calls ---- */

enum { DEVICE_CPU = 1, TYPE_TENSOR = 7 };

typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} data_type;

/* DLPack's DLTensor. */
typedef struct {
  void *data;
  int32_t device_type, device_id;
  int32_t rank;
  data_type type;
  const int64_t *shape, *strides;
  uint64_t byte_offset;
} tensor;

typedef struct {
  tensor tensors[LW_MAX_ARGUMENTS];
  lw_any arguments[LW_MAX_ARGUMENTS];
} frame;

static int pack(frame *f, const lw_function *function, void *const *pointers) {
  if (function->count < 0 || function->count > LW_MAX_ARGUMENTS) return LW_BAD_ARGUMENT;
  for (int i = 0; i < function->count; i++) {
    const lw_parameter *p = &function->parameters[i];
    data_type type = {p->code, p->bits, p->lanes};
    f->tensors[i] = (tensor){pointers[i], DEVICE_CPU, 0, 1, type, &p->elements, NULL, 0};
    f->arguments[i] = (lw_any){TYPE_TENSOR, 0, {&f->tensors[i]}};
  }
  return LW_OK;
}

/* TVM's kernels are built without checks: they fail, with -1, only where a workspace cannot be had.
 * Plans return a status. */
static int invoke(frame *f, const lw_function *function) {
  lw_any result = {0, 0, {NULL}};
  int status = function->kernel(NULL, f->arguments, function->count, &result);
  return status < 0 ? LW_OUT_OF_MEMORY : status;
}

int lw_call(const lw_function *function, void *const *pointers) {
  frame f;
  int status = pack(&f, function, pointers);
  return status ? status : invoke(&f, function);
}

static int call(const lw_function *function, void *const *pointers) {
  lw_begin();
  return lw_call(function, pointers);
}

/* Without an early end, so that compilers make vectors of it. */
#define WITHIN(type)                                              \
  for (int64_t i = 0; i < elements; i++) {                        \
    int64_t value = (int64_t)((const type *)values)[i];           \
    outside |= (value < -extent) | (value >= extent);             \
  }                                                               \
  break

int lw_within(const void *values, int64_t elements, int bits, int64_t extent) {
  int outside = 0;
  switch (bits) {
    case 8: WITHIN(int8_t);
    case 16: WITHIN(int16_t);
    case 32: WITHIN(int32_t);
    case 64: WITHIN(int64_t);
    case -8: WITHIN(uint8_t);
    case -16: WITHIN(uint16_t);
    case -32: WITHIN(uint32_t);
    default: WITHIN(uint64_t);
  }
  return !outside;
}

int lw_checked_call(const lw_function *function, void *const *pointers) {
  lw_array arrays[LW_MAX_ARGUMENTS];
  if (function->count < 0 || function->count > LW_MAX_ARGUMENTS) return LW_BAD_ARGUMENT;
  for (int i = 0; i < function->count; i++) {
    const lw_parameter *p = &function->parameters[i];
    uint64_t item = p->bits / 8u;
    arrays[i] = (lw_array){pointers[i], (uint64_t)p->elements * item, item, p->written != 0};
  }
  int status = lw_check(arrays, function->count);
  return status ? status : call(function, pointers);
}

static int64_t clock_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int repeat(const lw_function *function, void *const *pointers, int64_t times,
                  int64_t *elapsed, int64_t *cpu) {
  frame f;
  int status = pack(&f, function, pointers);
  int64_t cpu_start = clock_ns(CLOCK_PROCESS_CPUTIME_ID), start = clock_ns(CLOCK_MONOTONIC);
  for (int64_t i = 0; i < times && !status; i++) {
    lw_begin();
    status = invoke(&f, function);
  }
  *elapsed = clock_ns(CLOCK_MONOTONIC) - start;
  *cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_start;
  return status;
}

LW_PUBLIC const lw_table loopwright_runtime = {
    .abi = LW_ABI,
    .max_arguments = LW_MAX_ARGUMENTS,
    .main = __tvm_ffi_main,
    .prepare = __tvm_ffi_prepare,
    .call = call,
    .repeat = repeat,
    .set_threads = lw_set_threads,
    .threads = lw_threads,
    .pool = &own_pool,
    .borrow = borrow,
};
