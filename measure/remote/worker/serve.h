/* The process that candidates run in: loads them, calls them, hands out their results.
 *
 * It may crash, hang or run out of memory; the worker, which forks it, tells the tuner so.
 */
#ifndef LOOPWRIGHT_SERVE_H_
#define LOOPWRIGHT_SERVE_H_

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "frames.h"
#include "runtime.h"

#define SLOTS 512
#define NAME_BYTES 32
#define MOST_INPUTS 4096
#define GONE 99 /* status of the process where what was shipped is not there any more */
#define HUGE_PAGES (4 << 20) /* bytes from which NumPy asks for huge pages, too */

typedef struct {
  unsigned char name[NAME_BYTES]; /* of the blob that an input has */
  uint64_t bytes;
  uint32_t role, fill;
} buffer;
enum { INPUT, SCRATCH, RESULT };

typedef struct {
  uint32_t buffer;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t elements;
} argument;

typedef struct {
  unsigned char name[NAME_BYTES];
  uint32_t threads, buffers, prepare, main;
} load_request;

typedef struct {
  uint32_t warm, reserved;
  int64_t times;
} call_request;

typedef struct {
  void *library;
  const lw_table *table;
  buffer *buffers;
  void **memory; /* of each buffer */
  lw_parameter *parameters;
  void **pointers; /* those of `prepare`, then those of `main` */
  lw_function main;
  uint32_t count, prepares;
} candidate;

static struct {
  const char *folder;
  int replies;
  const lw_pool *pool; /* of the first library, which stays for good */
  candidate slots[SLOTS];
  struct {
    unsigned char name[NAME_BYTES];
    void *memory;
    size_t size;
  } inputs[MOST_INPUTS];
  int input_count;
} run;

static void answer(uint32_t kind, uint32_t value, const void *data, size_t length) {
  if (!write_frame(run.replies, kind, value, data, length, -1)) _exit(1);
}

static void bad(const char *text, const char *more) {
  char all[1024];
  int n = snprintf(all, sizeof all, "%s%s", text, more ? more : "");
  answer(BAD, 0, all, n < (int)sizeof all ? (size_t)n : sizeof all - 1);
}

static void blob_path(char *path, size_t most, const char *folder, const unsigned char *name) {
  int n = snprintf(path, most, "%s/", folder);
  for (int i = 0; i < NAME_BYTES; i++) n += snprintf(path + n, most - (size_t)n, "%02x", name[i]);
}

static void *reserve(uint64_t bytes) {
  size_t size = (size_t)(bytes ? bytes : 1);
  void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
  if (size >= HUGE_PAGES) madvise(memory, size, MADV_HUGEPAGE);
#endif
  return memory;
}

/* An input in memory, shared by all candidates. */
static void *input(const buffer *b) {
  char path[512];
  for (int i = 0; i < run.input_count; i++)
    if (!memcmp(run.inputs[i].name, b->name, NAME_BYTES)) return run.inputs[i].memory;
  if (run.input_count == MOST_INPUTS) return NULL;
  blob_path(path, sizeof path, run.folder, b->name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) _exit(GONE);
  size_t size = (size_t)(b->bytes ? b->bytes : 1);
  char *memory = fd < 0 ? NULL : reserve(b->bytes);
  if (memory && !read_whole(fd, memory, (size_t)b->bytes, -1)) {
    munmap(memory, size);
    memory = NULL;
  }
  if (fd >= 0) close(fd);
  if (memory) {
    memcpy(run.inputs[run.input_count].name, b->name, NAME_BYTES);
    run.inputs[run.input_count].size = size;
    run.inputs[run.input_count++].memory = memory;
  }
  return memory;
}

static void forget(candidate *c) {
  for (uint32_t i = 0; c->memory && i < c->count; i++)
    if (c->memory[i] && c->buffers[i].role != INPUT)
      munmap(c->memory[i], (size_t)(c->buffers[i].bytes ? c->buffers[i].bytes : 1));
  free(c->buffers), free(c->memory), free(c->parameters), free(c->pointers);
  if (c->library && (!c->table || c->table->pool != run.pool)) dlclose(c->library);
  memset(c, 0, sizeof *c);
}

static void clear(void) {
  for (int i = 0; i < SLOTS; i++) forget(&run.slots[i]);
}

/* For other data: no candidate stays, and no input. */
static void forget_all(void) {
  clear();
  for (; run.input_count; run.input_count--)
    munmap(run.inputs[run.input_count - 1].memory, run.inputs[run.input_count - 1].size);
}

/* A function's parameters and pointers, from place `at` of the candidate's arrays on. */
static int bind_arguments(candidate *c, const argument *given, uint32_t count, lw_kernel *kernel,
                          uint32_t at, lw_function *function) {
  for (uint32_t i = 0; i < count; i++) {
    const argument *a = &given[i];
    if (a->buffer >= c->count) return 0;
    c->parameters[at + i] = (lw_parameter){a->elements, a->code, a->bits, a->lanes, 0};
    c->pointers[at + i] = c->memory[a->buffer];
  }
  *function = (lw_function){kernel, c->parameters + at, (int32_t)count};
  return 1;
}

static int open_library(candidate *c, const load_request *asked) {
  char path[512];
  blob_path(path, sizeof path, run.folder, asked->name);
  if (access(path, R_OK) && errno == ENOENT) _exit(GONE);
  c->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!c->library) return bad("the system cannot load it: ", dlerror()), 0;
  const lw_table *table = dlsym(c->library, "loopwright_runtime");
  if (!table || table->abi != LW_ABI)
    return bad("its run-time has another version than this worker", NULL), 0;
  c->table = table;
  if (table->set_threads((int)asked->threads)) return bad("so many threads cannot be had", NULL), 0;
  if (!run.pool)
    run.pool = table->pool;
  else if (table->pool != run.pool)
    table->borrow(run.pool);
  return 1;
}

static int make_buffers(candidate *c, const char *data) {
  for (uint32_t i = 0; i < c->count; i++) {
    memcpy(&c->buffers[i], data + i * sizeof(buffer), sizeof(buffer));
    const buffer *b = &c->buffers[i];
    c->memory[i] = b->role == INPUT ? input(b) : reserve(b->bytes);
    if (!c->memory[i]) return 0;
    if (b->role == RESULT) memset(c->memory[i], (int)b->fill, (size_t)b->bytes);
  }
  return 1;
}

static void load(uint32_t slot, const char *data, size_t length) {
  load_request asked;
  if (slot >= SLOTS || length < sizeof asked) return bad("a request that is no candidate", NULL);
  memcpy(&asked, data, sizeof asked);
  uint64_t arguments = (uint64_t)asked.prepare + asked.main;
  if (arguments > 2 * LW_MAX_ARGUMENTS || asked.buffers > 2 * LW_MAX_ARGUMENTS ||
      length != sizeof asked + asked.buffers * sizeof(buffer) + arguments * sizeof(argument))
    return bad("a request whose sizes do not fit", NULL);
  candidate *c = &run.slots[slot];
  forget(c);
  c->count = asked.buffers;
  c->prepares = asked.prepare;
  c->buffers = calloc(c->count + 1, sizeof *c->buffers);
  c->memory = calloc(c->count + 1, sizeof *c->memory);
  c->parameters = calloc(arguments + 1, sizeof *c->parameters);
  c->pointers = calloc(arguments + 1, sizeof *c->pointers);
  if (!c->buffers || !c->memory || !c->parameters || !c->pointers ||
      !make_buffers(c, data + sizeof asked))
    return answer(DONE, LW_OUT_OF_MEMORY, NULL, 0); /* an input may be too large, too */
  if (!open_library(c, &asked)) return;
  static argument given[2 * LW_MAX_ARGUMENTS];
  memcpy(given, data + sizeof asked + asked.buffers * sizeof(buffer), arguments * sizeof *given);
  lw_function prepare;
  if (!bind_arguments(c, given, asked.prepare, c->table->prepare, 0, &prepare) ||
      !bind_arguments(c, given + asked.prepare, asked.main, c->table->main, asked.prepare, &c->main) ||
      (asked.prepare && !c->table->prepare))
    return bad("a request whose arguments do not fit", NULL);
  answer(DONE, asked.prepare ? (uint32_t)c->table->call(&prepare, c->pointers) : LW_OK, NULL, 0);
}

static candidate *loaded(uint32_t slot) {
  return slot < SLOTS && run.slots[slot].main.kernel ? &run.slots[slot] : NULL;
}

static void call(uint32_t slot, const char *data, size_t length) {
  call_request asked;
  candidate *c = loaded(slot);
  if (!c || length != sizeof asked) return bad("nothing is loaded there", NULL);
  memcpy(&asked, data, sizeof asked);
  void **pointers = c->pointers + c->prepares;
  int64_t ns[2] = {0, 0}; /* elapsed, and of the processors */
  int status = asked.warm ? c->table->call(&c->main, pointers) : LW_OK;
  if (!status) status = c->table->repeat(&c->main, pointers, asked.times, &ns[0], &ns[1]);
  answer(DONE, (uint32_t)status, ns, sizeof ns);
}

static void output(uint32_t slot, const char *data, size_t length) {
  uint32_t which;
  candidate *c = loaded(slot);
  if (!c || length != sizeof which) return bad("nothing is loaded there", NULL);
  memcpy(&which, data, sizeof which);
  if (which >= c->count || c->buffers[which].role != RESULT) return bad("no output", NULL);
  answer(DONE, LW_OK, c->memory[which], (size_t)c->buffers[which].bytes);
}

static void set_affinity(const uint32_t *cpus, size_t count) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t i = 0; i < count; i++)
    if (cpus[i] < CPU_SETSIZE) CPU_SET(cpus[i], &set);
  sched_setaffinity(0, sizeof set, &set);
}

/* Each processor writes an array of its own that is larger than its caches. */
static void flush(const char *data, size_t length) {
  static unsigned char *pieces[CPU_SETSIZE];
  struct {
    uint32_t cpu, reserved;
    uint64_t bytes;
  } piece;
  cpu_set_t before;
  int status = LW_OK, known = !sched_getaffinity(0, sizeof before, &before);
  for (; length >= sizeof piece; data += sizeof piece, length -= sizeof piece) {
    memcpy(&piece, data, sizeof piece);
    if (piece.cpu >= CPU_SETSIZE) continue;
    if (!pieces[piece.cpu]) pieces[piece.cpu] = reserve(piece.bytes);
    if (!pieces[piece.cpu]) status = LW_OUT_OF_MEMORY;
    set_affinity(&piece.cpu, 1);
    volatile unsigned char *line = pieces[piece.cpu];
    for (uint64_t i = 0; line && i < piece.bytes; i += 64) line[i]++;
  }
  if (known) sched_setaffinity(0, sizeof before, &before);
  answer(DONE, (uint32_t)status, NULL, 0);
}

/* Serves until the pipe of requests ends. */
static void serve(const char *folder, int requests, int replies) {
  static char data[MOST_ASKED];
  header h;
  run.folder = folder;
  run.replies = replies;
  while (read_whole(requests, &h, sizeof h, -1) && read_whole(requests, data, (size_t)h.length, -1)) {
    size_t length = (size_t)h.length;
    switch (h.kind) {
      case PLACE:
        forget_all();
        set_affinity((uint32_t *)data, length / 4);
        answer(DONE, LW_OK, NULL, 0);
        break;
      case LOAD: load(h.value, data, length); break;
      case CALL: call(h.value, data, length); break;
      case OUTPUT: output(h.value, data, length); break;
      case CLEAR: clear(), answer(DONE, LW_OK, NULL, 0); break;
      case FLUSH: flush(data, length); break;
      default: bad("a request of an unknown kind", NULL);
    }
  }
}

#endif
