/* Threads, memory and checks: the run-time of generated code, in one compilation unit. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "base.h"

#include "workspace.c"
#include "order.c"

static int run_serially(lw_task *task, void *data, int count) {
  lw_group group = {NULL, count};
  int status = 0;
  for (int i = 0; i < count && !status; i++) status = task(i, &group, data);
  return status;
}

#ifdef LW_ONE_THREAD
static int run(lw_task *task, void *data, int threads, int chunks) {
  (void)threads;
  return run_serially(task, data, chunks);
}
#else
#include "pool.c"
#endif

/* ---- threads ---- */

static const lw_pool own_pool = {run, allocate, release};
static const lw_pool *active_pool = &own_pool;
#ifdef LW_ONE_THREAD
int lw_threads(void) { return 1; }

int lw_set_threads(int threads) { return threads == 1 ? LW_OK : LW_BAD_ARGUMENT; }
#else
static atomic_int thread_count; /* 0: not decided yet */

int lw_threads(void) {
  int n = atomic_load_explicit(&thread_count, memory_order_relaxed);
  if (n) return n;
  n = processors();
  if (&lw_default_threads && lw_default_threads < n) n = lw_default_threads;
  if (n > LW_MAX_THREADS) n = LW_MAX_THREADS;
  int undecided = 0; /* another thread may decide meanwhile */
  atomic_compare_exchange_strong(&thread_count, &undecided, n);
  return atomic_load(&thread_count);
}

int lw_set_threads(int threads) {
  if (threads < 1 || threads > LW_MAX_THREADS) return LW_BAD_ARGUMENT;
  atomic_store(&thread_count, threads);
  return LW_OK;
}
#endif

/* More chunks than threads: one that starts late, or has to share its processor, holds nobody
 * up. Fewer would leave a thread more idle where the iterations do not divide. */
#define CHUNKS 32

int lw_parallel(lw_task *task, void *data, int64_t iterations) {
  int threads = lw_threads();
  int chunks = threads > 1 ? threads * CHUNKS : 1;
  return active_pool->run(task, data, threads, iterations < chunks ? (int)iterations : chunks);
}

void *lw_allocate(uint64_t bytes) { return active_pool->allocate(1, 0, bytes, 0, 8); }

void lw_release(void *block) { active_pool->release(1, 0, block); }

/* ---- checks ---- */

static int overlap(const lw_array *one, const lw_array *other) {
  uintptr_t a = (uintptr_t)one->start, b = (uintptr_t)other->start;
  return a < b ? b - a < one->bytes && other->bytes : a - b < other->bytes && one->bytes;
}

int lw_check(const lw_array *arrays, int count) {
  for (int i = 0; i < count; i++) {
    if (!arrays[i].start && arrays[i].bytes) return LW_NULL_POINTER;
    if ((uintptr_t)arrays[i].start % arrays[i].alignment) return LW_MISALIGNED;
  }
  for (int i = 0; i < count; i++)
    for (int j = 0; arrays[i].written && j < count; j++)
      if (j != i && overlap(&arrays[i], &arrays[j])) return LW_OVERLAP;
  return LW_OK;
}

const char *lw_error(int status) {
  switch (status) {
    case LW_OK: return "no error";
    case LW_NULL_POINTER: return "a pointer is null";
    case LW_MISALIGNED: return "a pointer is not aligned to the size of its element type";
    case LW_OUT_OF_MEMORY: return "no memory for the temporary arrays of the kernel";
    case LW_BAD_ARGUMENT: return "a number is out of range";
    case LW_OVERLAP: return "an output overlaps an input or another output";
    case LW_OUTSIDE: return "an input has an index that is outside of what it indexes";
    default: return "unknown status";
  }
}
