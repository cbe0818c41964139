/* What a generated wrapper and the Python side know of the run-time.
 *
 * Everything here is hidden in the finished shared object except the table `loopwright_runtime`,
 * which Python finds with dlsym in that one object; so any number of libraries can live in one
 * process without their names meeting.
 */
#ifndef LOOPWRIGHT_RUNTIME_H_
#define LOOPWRIGHT_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#define LW_HIDDEN __attribute__((visibility("hidden")))
#define LW_PUBLIC __attribute__((visibility("default")))

/* The layout of lw_table and the meaning of its members; Python refuses any other number. */
#define LW_ABI 1
/* The most arguments of one kernel. */
#define LW_MAX_ARGUMENTS 512
/* The most threads that work on one kernel, the caller included. */
#define LW_MAX_THREADS 256

/* Results of a call: 0 is success. */
enum {
  LW_OK = 0,
  LW_NULL_POINTER = 1,
  LW_MISALIGNED = 2,
  LW_OUT_OF_MEMORY = 3,
  LW_BAD_ARGUMENT = 4
};

/* One argument: `elements` values of a DLPack type (code 0 int, 1 uint, 2 float, 4 bfloat,
 * 6 bool; `bits` wide). */
typedef struct {
  int64_t elements;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  uint32_t reserved;
} lw_parameter;

/* The calling convention of TVM's compiled functions (tvm-ffi): a tagged 16-byte value. */
typedef struct {
  int32_t type_index;
  uint32_t padding;
  union {
    void *pointer;
    int64_t integer;
  } value;
} lw_any;

typedef int lw_kernel(void *self, const lw_any *arguments, int32_t count, lw_any *result);

/* A compiled function with its arguments. */
typedef struct {
  lw_kernel *kernel;
  const lw_parameter *parameters;
  int32_t count;
} lw_function;

/* The parallel loops of TVM's compiled functions. */
typedef struct {
  void *sync;
  int32_t num_task;
} lw_group;

typedef int lw_task(int task, lw_group *group, void *data);

/* A thread pool with its cache of workspaces: what one library may borrow of another. */
typedef struct {
  /* Runs task 0 … chunks-1, on as many threads at most. */
  int (*run)(lw_task *task, void *data, int threads, int chunks);
  void *(*allocate)(int device_type, int device_id, uint64_t bytes, int code, int bits);
  int (*release)(int device_type, int device_id, void *block);
} lw_pool;

typedef struct {
  uint32_t abi;
  uint32_t max_arguments;
  lw_kernel *main;    /* never null */
  lw_kernel *prepare; /* null where no constant is re-laid */
  /* Calls `function` on its pointers; returns one of the statuses above. */
  int (*call)(const lw_function *function, void *const *pointers);
  /* The same, `times` times; adds nothing but the loop. Times in nanoseconds: elapsed, and CPU
   * time of the whole process. Stops at the first failure. */
  int (*repeat)(const lw_function *function, void *const *pointers, int64_t times,
                int64_t *elapsed, int64_t *cpu);
  int (*set_threads)(int threads);
  int (*threads)(void);
  const lw_pool *pool;                /* this library's own pool */
  void (*borrow)(const lw_pool *pool); /* use another library's; before any call */
} lw_table;

LW_HIDDEN extern lw_kernel __tvm_ffi_main;
LW_HIDDEN extern lw_kernel __tvm_ffi_prepare __attribute__((weak));
/* Defined by the wrapper of an exported library; Python sets the number itself. */
LW_HIDDEN extern const int lw_default_threads __attribute__((weak));

/* Begins a call from outside; those below do, lw_call, which is for the steps of one, does not. */
LW_HIDDEN void lw_begin(void);
LW_HIDDEN int lw_call(const lw_function *function, void *const *pointers);
/* From outside, after a look at every pointer: not null, aligned to its element. */
LW_HIDDEN int lw_checked_call(const lw_function *function, void *const *pointers);
LW_HIDDEN const char *lw_error(int status);
LW_HIDDEN int lw_set_threads(int threads);
LW_HIDDEN int lw_threads(void);
LW_HIDDEN void *lw_allocate(uint64_t bytes);
LW_HIDDEN void lw_release(void *block);

#endif
