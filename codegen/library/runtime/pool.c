/* A thread pool for compiled kernels: libc and pthreads only. Part of base.c.
 *
 * The chunks of a launch are assigned in order, as many to each thread: what one launch leaves in
 * the caches of a processor, the next one finds there. Whoever has done its own steals others' last
 * ones, so that nobody waits for a thread that woke late, or has to share its processor.
 *
 * One launch at a time: a second application thread waits for its turn, so that every call gets
 * all of its threads. The caller is worker 0. The others watch one word, the ticket, which holds
 * a generation and how many of them may take part; they spin on it for a while, then sleep. Whoever
 * comes enters through the gate, which the caller shuts when no chunk is left: it waits for those
 * inside, not for those who have not even woken up.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base.h"

#define LINE 64
/* A worker that sleeps takes about 100 µs to come back. So one that was woken spins for twice as
 * long as it had waited, from then on; where that is more than the most, it sleeps soon. */
#define LEAST_SPIN_NS 40000
#define MOST_SPIN_NS 1000000
/* The caller has nothing else to do, and waking it costs tens of microseconds. */
#define CALLER_SPIN_NS 2000000
#define PARTIES_BITS 16
/* The gate: how many workers are inside, whether it is shut, and the generation it is for. */
#define GATE_INSIDE ((1u << PARTIES_BITS) - 1)
#define GATE_SHUT (UINT64_C(1) << PARTIES_BITS)
#define GATE_GENERATION (PARTIES_BITS + 1)

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  __asm__ volatile("yield");
#endif
}

/* Chunks that nobody has begun: the first of them in the lower half, the end in the upper one. */
typedef struct {
  _Alignas(LINE) _Atomic uint64_t left;
} chunk_queue;

static struct {
  /* Process that owns the threads below; 0 before the first use, RESETTING meanwhile. */
  _Atomic pid_t owner;
  atomic_int closed;
  pthread_mutex_t launching; /* guards `workers` and `threads`, held for a whole launch */
  int workers;
  atomic_int spins; /* 0: waits are slept through */
  pthread_t threads[LW_MAX_THREADS];
  /* The job: written before the ticket, read only by those whom the ticket names. */
  lw_task *task;
  void *data;
  lw_group group;
  int parties; /* that the chunks are assigned to, the caller among them */
  int home;    /* the processor that the caller is on */
  _Alignas(LINE) _Atomic uint64_t ticket;
  _Alignas(LINE) _Atomic uint64_t gate;
  atomic_int status;
  _Alignas(LINE) pthread_mutex_t sleeping; /* goes with both conditions */
  pthread_cond_t work, done;
  atomic_int sleepers;
  atomic_int caller_sleeps;
  chunk_queue queues[LW_MAX_THREADS];
} pool;

#define RESETTING ((pid_t)-1)

static _Thread_local int inside; /* this thread is running a task */

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int processors(void) {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n > 0 ? (int)n : 1;
}

static int processor(void) {
#ifdef __linux__
  return sched_getcpu();
#else
  return -1;
#endif
}

/* ---- workers ---- */

/* The scheduler may leave a worker on the caller's processor for whole seconds, at half the speed,
 * while another one idles. Moves it away, and leaves it free to be moved again. */
static void leave(int home) {
#ifdef __linux__
  cpu_set_t all, others;
  if (home < 0 || sched_getcpu() != home || sched_getaffinity(0, sizeof all, &all)) return;
  others = all;
  CPU_CLR(home, &others);
  if (CPU_COUNT(&others) && !sched_setaffinity(0, sizeof others, &others))
    sched_setaffinity(0, sizeof all, &all);
#else
  (void)home;
#endif
}

/* Waits for another ticket than the last one; `patience` is for how long it spins, from call to
 * call. */
static uint64_t await_ticket(uint64_t seen, int64_t *patience) {
  uint64_t ticket;
  int64_t start = now();
  while (atomic_load_explicit(&pool.spins, memory_order_relaxed) && now() < start + *patience) {
    for (int i = 0; i < 32; i++, relax())
      if ((ticket = atomic_load_explicit(&pool.ticket, memory_order_acquire)) != seen)
        return ticket;
    sched_yield(); /* on a busy machine the others may be waiting for this very processor */
  }
  pthread_mutex_lock(&pool.sleeping);
  /* Counted before the ticket is read again, as the launcher writes the ticket before it reads
   * the count: one of the two sees the other. */
  atomic_fetch_add(&pool.sleepers, 1);
  while ((ticket = atomic_load(&pool.ticket)) == seen)
    pthread_cond_wait(&pool.work, &pool.sleeping);
  atomic_fetch_sub(&pool.sleepers, 1);
  pthread_mutex_unlock(&pool.sleeping);
  int64_t enough = 2 * (now() - start);
  *patience = enough > LEAST_SPIN_NS && enough <= MOST_SPIN_NS ? enough : LEAST_SPIN_NS;
  return ticket;
}

/* Whether this worker got in before the launch of its ticket was over. */
static int enter(uint64_t ticket) {
  uint64_t gate = atomic_load(&pool.gate);
  do {
    if (gate >> GATE_GENERATION != ticket >> PARTIES_BITS || gate & GATE_SHUT) return 0;
  } while (!atomic_compare_exchange_weak(&pool.gate, &gate, gate + 1));
  return 1;
}

static void finish(void) {
  uint64_t gate = atomic_fetch_sub(&pool.gate, 1) - 1;
  if (gate & GATE_INSIDE || !atomic_load(&pool.caller_sleeps)) return;
  pthread_mutex_lock(&pool.sleeping);
  pthread_cond_signal(&pool.done);
  pthread_mutex_unlock(&pool.sleeping);
}

static void assign(int count, int parties) {
  pool.parties = parties;
  for (int64_t i = 0; i < parties; i++) {
    uint64_t first = (uint64_t)(count * i / parties), end = (uint64_t)(count * (i + 1) / parties);
    atomic_store_explicit(&pool.queues[i].left, first | end << 32, memory_order_relaxed);
  }
}

/* The first chunk that is left in a queue, or its last one; -1 if it is empty. */
static int take_chunk(chunk_queue *from, int last) {
  uint64_t left = atomic_load_explicit(&from->left, memory_order_relaxed), first, end, rest;
  do {
    first = left & UINT32_MAX, end = left >> 32;
    if (first >= end) return -1;
    rest = last ? first | (end - 1) << 32 : (first + 1) | end << 32;
  } while (!atomic_compare_exchange_weak_explicit(&from->left, &left, rest, memory_order_relaxed,
                                                  memory_order_relaxed));
  return (int)(last ? end - 1 : first);
}

static void run_chunks(int me) {
  for (int i = 0; i < pool.parties; i++) {
    chunk_queue *from = &pool.queues[(me + i) % pool.parties];
    for (int chunk; (chunk = take_chunk(from, i > 0)) >= 0;) {
      int status = pool.task(chunk, &pool.group, pool.data);
      if (status) atomic_store_explicit(&pool.status, status, memory_order_relaxed);
    }
  }
}

typedef struct {
  uint64_t ticket;
  int index;
} birth;

static void *work(void *argument) {
  birth me = *(birth *)argument;
  free(argument);
  inside = 1;
  int64_t patience = LEAST_SPIN_NS;
  for (uint64_t seen = me.ticket;;) {
    seen = await_ticket(seen, &patience);
    if (atomic_load(&pool.closed)) return NULL;
    if (me.index > (int)(seen & ((1u << PARTIES_BITS) - 1))) {
      patience = LEAST_SPIN_NS; /* nobody waits for this one */
    } else if (enter(seen)) {
      leave(pool.home);
      run_chunks(me.index);
      finish();
    }
  }
}

/* Makes workers until there are `wanted`, or no more can be had. Signals stay with the
 * application's own threads. */
static void hire(int wanted) {
  sigset_t all, before;
  if (wanted > LW_MAX_THREADS - 1) wanted = LW_MAX_THREADS - 1;
  if (pool.workers >= wanted) return;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (pool.workers < wanted) {
    birth *b = malloc(sizeof *b);
    if (!b) break;
    *b = (birth){atomic_load(&pool.ticket), pool.workers + 1};
    if (pthread_create(&pool.threads[pool.workers + 1], NULL, work, b)) {
      free(b);
      break;
    }
    pool.workers++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- launching ---- */

static void publish(int parties) {
  uint64_t generation = (atomic_load(&pool.ticket) >> PARTIES_BITS) + 1;
  atomic_store(&pool.gate, generation << GATE_GENERATION);
  atomic_store(&pool.ticket, generation << PARTIES_BITS | (uint64_t)parties);
  if (!atomic_load(&pool.sleepers)) return;
  pthread_mutex_lock(&pool.sleeping);
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.sleeping);
}

static int nobody_inside(void) { return !(atomic_load(&pool.gate) & GATE_INSIDE); }

static void await_tasks(void) {
  atomic_fetch_or(&pool.gate, GATE_SHUT);
  int64_t limit = atomic_load(&pool.spins) ? now() + CALLER_SPIN_NS : 0;
  do {
    for (int i = 0; i < 32; i++, relax())
      if (nobody_inside()) return;
    sched_yield();
  } while (limit && now() < limit);
  pthread_mutex_lock(&pool.sleeping);
  atomic_store(&pool.caller_sleeps, 1);
  while (!nobody_inside()) pthread_cond_wait(&pool.done, &pool.sleeping);
  atomic_store(&pool.caller_sleeps, 0);
  pthread_mutex_unlock(&pool.sleeping);
}

/* The first use, and the first use in the child of a fork, which has none of the threads and
 * may have inherited locks that nobody will release. */
static void own(void) {
  pid_t me = getpid(), owner = atomic_load_explicit(&pool.owner, memory_order_acquire);
  while (owner != me) {
    if (owner != RESETTING && atomic_compare_exchange_weak(&pool.owner, &owner, RESETTING)) {
      pthread_mutex_init(&pool.launching, NULL);
      pthread_mutex_init(&pool.sleeping, NULL);
      pthread_cond_init(&pool.work, NULL);
      pthread_cond_init(&pool.done, NULL);
      pool.workers = 0;
      atomic_store(&pool.gate, GATE_SHUT);
      atomic_store(&pool.sleepers, 0);
      atomic_store(&pool.caller_sleeps, 0);
      atomic_store(&pool.owner, me);
    }
    owner = atomic_load(&pool.owner);
  }
}

static int run(lw_task *task, void *data, int threads, int chunks) {
  if (threads <= 1 || inside || atomic_load(&pool.closed)) return run_serially(task, data, chunks);
  own();
  pthread_mutex_lock(&pool.launching);
  if (pool.workers < threads - 1) {
    hire(threads - 1);
    /* Spinning takes a processor from the others where there are too few. */
    atomic_store(&pool.spins, processors() > pool.workers);
  }
  int parties = threads - 1 < pool.workers ? threads - 1 : pool.workers;
  pool.task = task;
  pool.data = data;
  pool.group = (lw_group){NULL, chunks};
  pool.home = processor();
  assign(chunks, parties + 1);
  atomic_store_explicit(&pool.status, 0, memory_order_relaxed);
  publish(parties);
  inside = 1;
  run_chunks(0);
  inside = 0;
  await_tasks();
  int status = atomic_load_explicit(&pool.status, memory_order_relaxed);
  pthread_mutex_unlock(&pool.launching);
  return status;
}

/* ---- the end ---- */

/* At exit or dlclose. Leaves everything alone in the child of a fork, and where a launch is
 * still under way in another thread of a process that exits. */
__attribute__((destructor)) static void shut_down(void) {
  if (atomic_load(&pool.owner) == getpid() && !inside &&
      pthread_mutex_trylock(&pool.launching) == 0) {
    atomic_store(&pool.closed, 1);
    publish(0);
    for (int i = 1; i <= pool.workers; i++) pthread_join(pool.threads[i], NULL);
    pool.workers = 0;
    pthread_mutex_unlock(&pool.launching);
  }
}
