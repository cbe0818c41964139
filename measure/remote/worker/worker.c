/* The worker of a remote device: `worker FOLDER`, frames over its standard input and output.
 *
 * It is two processes. This one keeps what is shipped as files in a folder of its own, holds the
 * machine's lease, and watches the other one (serve.h), which runs candidates. It ends with its
 * input, or when the tuner has been silent for long; its lease and its folder end with it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "frames.h"

#include "facts.h"
#include "lease.h"
#include "serve.h"
#include "start.h"

#define IDLE_MS 120000    /* silence of the tuner after which the worker ends … */
#define HOLDING_MS 60000  /* … while it holds the lease */
#define WRITING_MS 60000
#define BEAT_MS 2000
#define LOOK_MS 10 /* between two tries to get the lease */
#define LATER 1000 /* milliseconds that a candidate which is late may take to be gone */
#define MOST_WRITTEN (1l << 30) /* bytes that a candidate may print */
#define STATUS 256 /* from it on an end is a status, below it a signal */
#define PREFIX "loopwright-run-"

static char folder[400];
static struct {
  pid_t pid; /* 0 for none */
  int requests, replies, printed;
} child;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the end ---- */

static void remove_folder(const char *path) {
  char file[900];
  DIR *entries = opendir(path);
  for (struct dirent *e; entries && (e = readdir(entries));)
    if (e->d_name[0] != '.') {
      snprintf(file, sizeof file, "%s/%s", path, e->d_name);
      unlink(file);
    }
  if (entries) closedir(entries);
  rmdir(path);
}

static void end_child(void) {
  if (!child.pid) return;
  kill(-child.pid, SIGKILL);
  kill(child.pid, SIGKILL);
  waitpid(child.pid, NULL, 0);
  close(child.requests), close(child.replies), close(child.printed);
  child.pid = 0;
}

static void finish(int status) {
  end_child();
  remove_folder(folder);
  exit(status);
}

/* Nothing that may wait for a lock of what it interrupts; the folder goes with the next worker. */
static void on_signal(int number) {
  (void)number;
  if (child.pid) kill(-child.pid, SIGKILL);
  _exit(1);
}

static void say(uint32_t kind, uint32_t value, const void *data, size_t length) {
  if (!write_frame(1, kind, value, data, length, WRITING_MS)) finish(1);
}

static void say_text(uint32_t kind, uint32_t value, const char *text) {
  say(kind, value, text, strlen(text));
}

static void leave(const char *why) {
  say_text(BYE, 0, why);
  finish(1);
}

/* Ends while the tuner is at something else, or gone; the next request starts another worker. */
static void leave_idle(void) {
  say_text(BYE, 1, "nothing was asked for long");
  finish(0);
}

static void fault(const char *what) {
  char text[700];
  snprintf(text, sizeof text, "%s: %s", what, strerror(errno));
  say_text(FAULT, (uint32_t)errno, text);
}

/* ---- its folder ---- */

/* A worker that is stopped cannot see that its tuner gave it up, and may hold the lease. */
static void end_stopped(const char *number) {
  long pid = 0;
  char text[600];
  for (; *number >= '0' && *number <= '9' && pid < 1l << 30; number++)
    pid = 10 * pid + *number - '0';
  const char *state = strrchr(text_of(text, sizeof text, "/proc/%ld/stat", pid), ')');
  if (pid > 1 && state && !strncmp(state, ") T", 3)) kill((pid_t)pid, SIGKILL);
}

/* A folder that is locked while its worker lives; those of others that were killed go. Machines may
 * share the root, and a network file system need not tell them of each other's locks. */
static int make_folder(const char *root) {
  struct utsname system;
  if (uname(&system)) return 0;
  DIR *entries = opendir(root);
  char path[900];
  for (struct dirent *e; entries && (e = readdir(entries));) {
    const char *host = strchr(e->d_name, '@');
    if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) || !host || strcmp(host + 1, system.nodename))
      continue;
    snprintf(path, sizeof path, "%s/%s", root, e->d_name);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB))
      remove_folder(path);
    else if (fd >= 0)
      end_stopped(e->d_name + strlen(PREFIX));
    if (fd >= 0) close(fd);
  }
  if (entries) closedir(entries);
  for (int tries = 0; tries < 100; tries++) {
    snprintf(folder, sizeof folder, "%s/" PREFIX "%ld-%d@%s", root, (long)getpid(), tries,
             system.nodename);
    if (mkdir(folder, 0700)) {
      if (errno != EEXIST) return 0;
      continue;
    }
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Another worker that starts now may have found it before it was locked. */
    if (fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !access(folder, W_OK)) return 1;
    if (fd >= 0) close(fd);
    rmdir(folder);
  }
  return 0;
}

/* Takes a blob from the stream straight to its file, so that no length costs memory. Beats tell
 * that it comes, however slowly. */
static void put(const header *h) {
  static char chunk[CHUNK];
  unsigned char name[NAME_BYTES];
  char path[512], part[512];
  if (h->length > memory_bytes()) leave("a blob that is larger than this machine's memory");
  if (h->length < NAME_BYTES || !read_whole(0, name, NAME_BYTES, IDLE_MS)) leave("a cut frame");
  uint32_t crc = crc_of(0, name, NAME_BYTES);
  int64_t beat = now_ms() + BEAT_MS;
  blob_path(path, sizeof path, folder, name);
  snprintf(part, sizeof part, "%s/part", folder);
  int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700), failed = fd < 0 ? errno : 0;
  for (uint64_t left = h->length - NAME_BYTES; left;) {
    size_t n = left < CHUNK ? (size_t)left : CHUNK;
    if (!read_whole(0, chunk, n, IDLE_MS)) leave("a cut frame");
    crc = crc_of(crc, chunk, n);
    /* What cannot be kept is read on, so that the next frame is found. */
    if (!failed && !write_whole(fd, chunk, n, -1)) failed = errno ? errno : EIO;
    left -= n;
    if (now_ms() >= beat) {
      say(BEAT, 0, NULL, 0);
      beat = now_ms() + BEAT_MS;
    }
  }
  if (fd >= 0 && close(fd) && !failed) failed = errno;
  if (crc != h->payload_crc) leave("a frame whose checksum is wrong");
  if (!failed && rename(part, path)) failed = errno;
  if (failed) unlink(part);
  errno = failed;
  if (failed == ENOENT) leave("its files were removed");
  if (failed) return fault("what was shipped cannot be kept");
  say(DONE, 0, NULL, 0);
}

static void drop(const char *data, size_t length) {
  char path[512];
  for (; length >= NAME_BYTES; data += NAME_BYTES, length -= NAME_BYTES) {
    blob_path(path, sizeof path, folder, (const unsigned char *)data);
    unlink(path);
  }
  say(DONE, 0, NULL, 0);
}

/* ---- the lease ---- */

static int tuner_is_gone(void) {
  struct pollfd p = {0, POLLRDHUP, 0};
  return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR | POLLRDHUP);
}

/* Locks a file, at most to `end`; 0 where it is too late. Beats tell for whom it waits. */
static int lock_by(int fd, int shown, int64_t end, int64_t *beat) {
  char text[MOST_HOLDER + 1];
  while (flock(fd, LOCK_EX | LOCK_NB)) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fault("the lease cannot be locked"), -1;
    if (now_ms() >= end) return 0;
    if (tuner_is_gone()) finish(1);
    if (now_ms() >= *beat) {
      if (!read_holder(shown, text)) read_holder(fd, text);
      say_text(BEAT, 1, text);
      *beat = now_ms() + BEAT_MS;
    }
    poll(NULL, 0, LOOK_MS);
  }
  return 1;
}

static void lock(const header *h, const char *holder, size_t length) {
  if (lease >= 0) return say(DONE, 0, NULL, 0);
  int machine = open_lease(""), next = open_lease(".next");
  if (machine < 0 || next < 0) {
    fault("the lease of this machine cannot be opened; set " LEASE_VARIABLE
          " there to a file that can be written");
    if (machine >= 0) close(machine);
    if (next >= 0) close(next);
    return;
  }
  if (length > MOST_HOLDER) length = MOST_HOLDER;
  int64_t limit = now_ms() + h->limit, beat = now_ms() + BEAT_MS;
  int got = lock_by(next, machine, limit, &beat);
  if (got > 0) {
    write_holder(next, holder, length);
    got = lock_by(machine, machine, limit, &beat);
  }
  close(next);
  if (got > 0) {
    lease = machine;
    write_holder(machine, holder, length);
    return say(DONE, 0, NULL, 0);
  }
  char text[MOST_HOLDER + 1];
  read_holder(machine, text);
  close(machine);
  if (!got) say_text(LATE, 0, text);
}

static void unlock(void) {
  if (lease >= 0) {
    write_holder(lease, "", 0);
    close(lease);
  }
  lease = -1;
  say(DONE, 0, NULL, 0);
}

/* ---- the process that runs ---- */

static void limit_to(int what, uint64_t value) {
  struct rlimit limit;
  if (getrlimit(what, &limit)) return;
  if (limit.rlim_max == RLIM_INFINITY || value < limit.rlim_max) limit.rlim_max = value;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(what, &limit);
}

static void become_child(int requests, int replies) {
  setsid(); /* all that a candidate starts can be ended at once */
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, 0), dup2(child.printed, 1), dup2(child.printed, 2);
  if (nothing > 2) close(nothing);
  if (lease >= 0) close(lease);
  limit_to(RLIMIT_AS, memory_bytes() / 4 * 3);
  limit_to(RLIMIT_FSIZE, MOST_WRITTEN);
  limit_to(RLIMIT_CORE, 0);
  static const int caught[] = {SIGTERM, SIGHUP, SIGINT, SIGPIPE, SIGXFSZ};
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) signal(caught[i], SIG_DFL);
  serve(folder, requests, replies);
  _exit(0);
}

static int start_child(void) {
  int in[2], out[2];
  char path[512];
  snprintf(path, sizeof path, "%s/printed", folder);
  child.printed = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (child.printed < 0) return 0;
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) return 0;
  child.pid = fork();
  if (child.pid < 0) return child.pid = 0, 0;
  if (!child.pid) {
    close(in[1]), close(out[0]);
    become_child(in[0], out[1]);
  }
  close(in[0]), close(out[1]);
  child.requests = in[1], child.replies = out[0];
  fcntl(child.requests, F_SETFL, O_NONBLOCK);
  return 1;
}

/* What a candidate printed last. */
static size_t last_words(char *text, size_t most) {
  off_t size = lseek(child.printed, 0, SEEK_END), start = size > (off_t)most ? size - (off_t)most : 0;
  ssize_t n = pread(child.printed, text, most, start);
  return n > 0 ? (size_t)n : 0;
}

/* Tells how it ended, `how` if that is known: by a signal, or STATUS more than its status. The next
 * request starts another. */
static void tell_end(uint32_t kind, uint32_t how) {
  char words[2048];
  siginfo_t end = {0}; /* it is waited for by end_child: before that its number is no other's */
  for (int tries = 0; tries < LATER && !end.si_pid; tries++) {
    if (tries) poll(NULL, 0, 1);
    waitid(P_PID, (id_t)child.pid, &end, WEXITED | WNOHANG | WNOWAIT);
  }
  int exited = !end.si_pid || end.si_code == CLD_EXITED;
  int status = end.si_pid ? end.si_status : 1;
  if (exited && status == GONE) leave("its files were removed");
  if (!how) how = exited ? STATUS + (uint32_t)status : (uint32_t)status;
  size_t n = last_words(words, sizeof words);
  end_child();
  say(kind, kind == DIED ? how : 0, words, n);
}

/* Hands on an answer, with the time since `began`; what a candidate did to the pipe harms no more
 * than itself. */
static void relay(int64_t began) {
  static char chunk[CHUNK];
  header h;
  if (!read_whole(child.replies, &h, sizeof h, LATER)) return tell_end(DIED, 0);
  if (!is_header(&h) || (h.kind != DONE && h.kind != BAD)) {
    kill(child.pid, SIGKILL);
    return tell_end(DIED, STATUS + 1);
  }
  h.limit = (uint32_t)(now_ms() - began);
  h.crc = crc_of(0, &h, offsetof(header, crc));
  size_t n = h.length < CHUNK ? (size_t)h.length : CHUNK;
  if (!read_whole(child.replies, chunk, n, LATER)) return tell_end(DIED, 0);
  if (!write_both(1, &h, chunk, n, WRITING_MS)) finish(1);
  for (uint64_t left = h.length - n; left; left -= n) {
    n = left < CHUNK ? (size_t)left : CHUNK;
    /* A frame that is begun cannot be taken back. */
    if (!read_whole(child.replies, chunk, n, LATER) || !write_whole(1, chunk, n, WRITING_MS))
      finish(1);
  }
}

static void ask(const header *h, const char *data) {
  if (!child.pid && !start_child()) return fault("no process can be started");
  if (lseek(child.printed, 0, SEEK_END) > CHUNK && ftruncate(child.printed, 0)) errno = 0;
  int64_t began = now_ms(), limit = began + h->limit, beat = began + BEAT_MS;
  if (!write_both(child.requests, h, data, (size_t)h->length, (int)h->limit)) {
    if (errno != EAGAIN) return tell_end(DIED, 0);
    kill(child.pid, SIGKILL); /* it was stopped */
    return tell_end(LATE, 0);
  }
  for (;;) {
    int64_t first = limit < beat ? limit : beat, left = first - now_ms();
    struct pollfd files[2] = {{child.replies, POLLIN, 0}, {0, POLLRDHUP, 0}};
    int n = poll(files, 2, left > 0 ? (int)left : 0);
    if (n > 0 && files[0].revents) return relay(began);
    if (n > 0 && files[1].revents) finish(1);
    if (now_ms() >= limit) return kill(child.pid, SIGKILL), tell_end(LATE, 0);
    if (now_ms() >= beat) {
      say(BEAT, 0, NULL, 0);
      beat = now_ms() + BEAT_MS;
    }
  }
}

/* ---- frames ---- */

static void answer_frame(const header *h) {
  static char data[MOST_ASKED];
  if (h->kind == PUT) return put(h);
  if (h->length > MOST_ASKED) leave("a frame that is too long");
  if (!read_whole(0, data, (size_t)h->length, IDLE_MS)) leave("a cut frame");
  if (crc_of(0, data, (size_t)h->length) != h->payload_crc) leave("a frame whose checksum is wrong");
  switch (h->kind) {
    case DROP: drop(data, (size_t)h->length); break;
    case LOCK: lock(h, data, (size_t)h->length); break;
    case UNLOCK: unlock(); break;
    case RESTART: end_child(), say(DONE, 0, NULL, 0); break;
    default:
      if (h->kind < PLACE || h->kind >= LAST_ASKED) leave("a frame of an unknown kind");
      ask(h, data);
  }
}

__attribute__((used)) int main(int count, char **words) {
  header h;
  make_crc_table();
  signal(SIGPIPE, SIG_IGN), signal(SIGXFSZ, SIG_IGN);
  signal(SIGTERM, on_signal), signal(SIGHUP, on_signal), signal(SIGINT, on_signal);
  fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
  if (count != 2 || !make_folder(words[1])) {
    dprintf(2, "loopwright: cannot make a folder in %s: %s\n", count == 2 ? words[1] : "FOLDER",
            strerror(errno));
    return 1;
  }
  /* It speaks first: nothing is sent before the shell that started it has gone. */
  tell_facts();
  say(FACTS, PROTOCOL, facts, facts_length);
  for (;;) {
    if (!await_file(0, POLLIN, lease >= 0 ? HOLDING_MS : IDLE_MS)) leave_idle();
    if (!read_whole(0, &h, sizeof h, IDLE_MS)) finish(0);
    if (!is_header(&h)) leave("bytes that are no frame");
    answer_frame(&h);
  }
}
