/* What generated code knows of the run-time: statuses, threads, memory.
 *
 * With LW_ONE_THREAD it needs no threads of the system's. LW_PREFIX, a name, stands before its
 * functions, where several libraries with a run-time of their own become one program.
 */
#ifndef LOOPWRIGHT_BASE_H_
#define LOOPWRIGHT_BASE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LW_HIDDEN __attribute__((visibility("hidden")))
#define LW_PUBLIC __attribute__((visibility("default")))
#else
#define LW_HIDDEN
#define LW_PUBLIC
#endif

#ifdef LW_PREFIX
#define LW_JOINED(prefix, name) prefix##_##name
#define LW_JOIN(prefix, name) LW_JOINED(prefix, name)
#define lw_allocate LW_JOIN(LW_PREFIX, lw_allocate)
#define lw_release LW_JOIN(LW_PREFIX, lw_release)
#define lw_parallel LW_JOIN(LW_PREFIX, lw_parallel)
#define lw_check LW_JOIN(LW_PREFIX, lw_check)
#define lw_order LW_JOIN(LW_PREFIX, lw_order)
#define lw_error LW_JOIN(LW_PREFIX, lw_error)
#define lw_set_threads LW_JOIN(LW_PREFIX, lw_set_threads)
#define lw_threads LW_JOIN(LW_PREFIX, lw_threads)
#define lw_default_threads LW_JOIN(LW_PREFIX, lw_default_threads)
#endif

/* The most threads that work on one kernel, the caller included. */
#define LW_MAX_THREADS 256

/* Results of a call: 0 is success. */
enum {
  LW_OK = 0,
  LW_NULL_POINTER = 1,
  LW_MISALIGNED = 2,
  LW_OUT_OF_MEMORY = 3,
  LW_BAD_ARGUMENT = 4,
  LW_OVERLAP = 9, /* those between are of GPUs alone, see cuda.h */
  LW_OUTSIDE = 10
};

/* A part of a parallel loop: task 0 … num_task-1. */
typedef struct {
  void *sync;
  int32_t num_task;
} lw_group;

typedef int lw_task(int task, lw_group *group, void *data);

/* The first of `total` iterations that a chunk has. */
static inline ptrdiff_t lw_first(int64_t total, int chunk, const lw_group *group) {
  return (ptrdiff_t)(total * chunk / group->num_task);
}

/* Runs the chunks of a loop of so many iterations, on threads. Returns a status. */
LW_HIDDEN int lw_parallel(lw_task *task, void *data, int64_t iterations);

/* Memory aligned to 64 bytes, kept for the next call when it is released; null if there is none. */
LW_HIDDEN void *lw_allocate(uint64_t bytes);
LW_HIDDEN void lw_release(void *block);

/* The places of a row's first `wanted` elements in order, the greatest or the least first. Equal
 * ones stay in theirs, and NaN is greater than all numbers. Steps are in elements; `kind` says of
 * which type these are, see order.c. There is room for twice as many items as elements, of 8
 * bytes, or of 16 where elements have 8. Returns 0. */
LW_HIDDEN int lw_order(void *places, int places_step, int wanted, const void *row, int step,
                       int extent, int kind, int greatest, void *items);

/* One array of a call. */
typedef struct {
  const void *start;
  uint64_t bytes, alignment;
  int written;
} lw_array;

/* Looks at the arrays of a call: not null, aligned, and those written overlap no other. */
LW_HIDDEN int lw_check(const lw_array *arrays, int count);

/* A thread pool with its cache of workspaces: what one library may borrow of another. */
typedef struct {
  /* Runs task 0 … chunks-1, on as many threads at most. */
  int (*run)(lw_task *task, void *data, int threads, int chunks);
  void *(*allocate)(int device_type, int device_id, uint64_t bytes, int code, int bits);
  int (*release)(int device_type, int device_id, void *block);
} lw_pool;

/* Defined by the wrapper of an exported library; Python sets the number itself. */
LW_HIDDEN extern const int lw_default_threads __attribute__((weak));

LW_HIDDEN const char *lw_error(int status);
LW_HIDDEN int lw_set_threads(int threads);
LW_HIDDEN int lw_threads(void);

#endif
