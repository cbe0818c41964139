/* A stand-in for TVM's object file, and a program that puts the run-time under stress. It prints
 * nothing and returns 0 if all is well; else it says what is not. Usage: runtime_check MODE. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime.h"

extern const lw_table loopwright_runtime;
extern int lw_deal(int iterations, int threads);
extern int (*__TVMBackendParallelLaunch)(lw_task *, void *, int);
extern void *(*__TVMBackendAllocWorkspace)(int, int, uint64_t, int, int);
extern int (*__TVMBackendFreeWorkspace)(int, int, void *);

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "line %d: %s is false\n", __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

#define N 512
#define SHARES 32 /* as in runtime.c */
typedef struct {
  int hits[N];
  int tasks;
} record;

static int mark(int task, lw_group *group, void *data) {
  record *r = data;
  CHECK(task >= 0 && task < group->num_task && group->num_task <= N);
  r->hits[task]++;
  if (task == 0) r->tasks = group->num_task;
  return 0;
}

static void launch(int count, int expected) {
  record r;
  memset(&r, 0, sizeof r);
  CHECK(__TVMBackendParallelLaunch(mark, &r, count) == 0);
  CHECK(r.tasks == expected);
  for (int i = 0; i < N; i++) CHECK(r.hits[i] == (i < expected));
}

static int nest(int task, lw_group *group, void *data) {
  (void)task, (void)group, (void)data;
  int threads = loopwright_runtime.threads();
  launch(0, threads > 1 ? threads * SHARES : 1);
  launch(5, 5);
  return 0;
}

static int fail(int task, lw_group *group, void *data) {
  (void)group, (void)data;
  return task == 1 ? -1 : 0;
}

static atomic_int met;
static _Thread_local int first;

/* The first share of every thread, each of which waits for the others. */
static int meet(int task, lw_group *group, void *data) {
  (void)group;
  if (first) return 0;
  first = 1;
  ((int *)data)[task] = 1;
  atomic_fetch_add(&met, 1);
  for (int waited = 0; atomic_load(&met) < 3; waited++, usleep(10)) CHECK(waited < 1000000);
  return 0;
}

static void deal(void) {
  int begun[3 * SHARES] = {0};
  CHECK(__TVMBackendParallelLaunch(meet, begun, 0) == 0);
  for (int i = 0; i < 3 * SHARES; i++) CHECK(begun[i] == (i % SHARES == 0));
}

/* The kernel: a workspace of so many bytes as *arguments[0] says. */
int __tvm_ffi_main(void *self, const lw_any *arguments, int32_t count, lw_any *result) {
  (void)self, (void)count, (void)result;
  uint64_t bytes = **(uint64_t *const *)arguments[0].value.pointer;
  char *block = __TVMBackendAllocWorkspace(1, 0, bytes, 2, 32);
  if (!block) return -1;
  CHECK((uintptr_t)block % 64 == 0);
  memset(block, 1, bytes);
  return __TVMBackendFreeWorkspace(1, 0, block);
}

static const lw_parameter one[] = {{1, 1, 64, 1, 0}};
static const lw_function kernel = {__tvm_ffi_main, one, 1};

static int call(uint64_t bytes) {
  void *pointers[] = {&bytes};
  return loopwright_runtime.call(&kernel, pointers);
}

static void *application(void *rounds) {
  for (int i = 0; i < *(int *)rounds; i++) {
    launch(i % 9 + 1, i % 9 + 1);
    CHECK(call((uint64_t)(i % 50) * 1000 + 1) == LW_OK);
    if (i % 100 == 0) CHECK(__TVMBackendParallelLaunch(nest, NULL, 4) == 0);
    if (i % 100 == 50) usleep(200); /* lets the workers fall asleep */
  }
  return NULL;
}

static void stress(int threads, int rounds) {
  pthread_t ids[8];
  for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, application, &rounds);
  for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
}

static void limits(void) {
  CHECK(loopwright_runtime.abi == LW_ABI && !loopwright_runtime.prepare);
  CHECK(loopwright_runtime.threads() >= 1);
  CHECK(loopwright_runtime.set_threads(0) && loopwright_runtime.set_threads(100000));
  CHECK(loopwright_runtime.set_threads(3) == 0);
  launch(0, 3 * SHARES);
  lw_deal(5, 3);
  launch(0, 6);
  launch(0, 3 * SHARES); /* it was for the next launch alone */
  lw_deal(4, 2);
  launch(0, 3 * SHARES); /* made for another number of threads */
  deal();
  CHECK(__TVMBackendParallelLaunch(fail, NULL, 4) == -1);
  CHECK(__TVMBackendParallelLaunch(fail, NULL, 1) == 0);
  CHECK(call((uint64_t)1 << 60) == LW_OUT_OF_MEMORY);
  CHECK(call(0) == LW_OK);
  for (int i = 0; i < 200; i++) CHECK(call((uint64_t)(i + 1) << 14) == LW_OK);
  int64_t elapsed = -1, cpu = -1;
  uint64_t bytes = 100;
  void *pointers[] = {&bytes};
  CHECK(loopwright_runtime.repeat(&kernel, pointers, 10, &elapsed, &cpu) == LW_OK);
  CHECK(elapsed >= 0 && cpu >= 0);
}

/* Forks while another thread is in the middle of launches. */
static void forks(void) {
  pthread_t id;
  int rounds = 2000;
  launch(4, 4);
  pthread_create(&id, NULL, application, &rounds);
  for (int i = 0; i < 20; i++) {
    pid_t child = fork();
    if (!child) {
      stress(2, 50);
      exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
  }
  pthread_join(id, NULL);
}

int main(int count, char **arguments) {
  const char *mode = count > 1 ? arguments[1] : "";
  if (!strcmp(mode, "limits")) limits();
  else if (!strcmp(mode, "stress")) stress(4, 1000);
  else if (!strcmp(mode, "fork")) forks();
  else return 2;
  return 0;
}
