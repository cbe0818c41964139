/* What a generated wrapper and the Python side know of the run-time.
 *
 * Everything here is hidden in the finished shared object except the table `loopwright_runtime`,
 * which Python finds with dlsym in that one object; so any number of libraries can live in one
 * process without their names meeting.
 */
#ifndef LOOPWRIGHT_RUNTIME_H_
#define LOOPWRIGHT_RUNTIME_H_

#include "base.h"

/* The layout of lw_table and the meaning of its members; Python refuses any other number. */
#define LW_ABI 1
/* The most arguments of one kernel. */
#define LW_MAX_ARGUMENTS 512
/* One argument: `elements` values of a DLPack type (code 0 int, 1 uint, 2 float, 4 bfloat,
 * 6 bool; `bits` wide). */
typedef struct {
  int64_t elements;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  uint32_t written; /* 1 for what a call writes */
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

/* What a caller may ask of the `main` of a plan, in place of a closure: a part of its steps, over
 * an arena of the caller's. Steps of one loop are not to be parted. */
typedef struct {
  int64_t *times;      /* gets the nanoseconds of every step added; may be null */
  char *arena;         /* where arrays lie between steps; where null, the call has its own */
  int64_t first, stop; /* the steps to run */
  const char *held;    /* gets the weights for another device that the library holds, or null */
} lw_part;

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
/* Begins a call from outside; those below do, lw_call, which is for the steps of one, does not. */
LW_HIDDEN void lw_begin(void);
LW_HIDDEN int lw_call(const lw_function *function, void *const *pointers);
/* Whether integers index an axis of such an extent, counted from its beginning or its end. They
 * have so many bits, and a sign if the number of bits is positive. */
LW_HIDDEN int lw_within(const void *values, int64_t elements, int bits, int64_t extent);
/* From outside, after a look at every pointer. */
LW_HIDDEN int lw_checked_call(const lw_function *function, void *const *pointers);

#endif
