/* The lease of a machine: a lock on a file, which ends with the process that holds it.
 *
 * `measure.lease` does the same in Python: both lock the same two files. Waiters hold the
 * second one, so the last holder cannot overtake them.
 */
#ifndef LOOPWRIGHT_LEASE_H_
#define LOOPWRIGHT_LEASE_H_

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#define LEASE_VARIABLE "LOOPWRIGHT_LEASE"
#define MOST_HOLDER 200

static int lease = -1;

/* Files of other users in /tmp may be opened, but not with O_CREAT. */
static int open_lease(const char *end) {
  char path[512];
  const char *set = getenv(LEASE_VARIABLE);
  snprintf(path, sizeof path, "%s%s", set && *set ? set : "/tmp/loopwright.lease", end);
  for (int tries = 0; tries < 3; tries++) {
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 || errno != ENOENT) return fd;
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd >= 0) {
      fchmod(fd, 0666);
      return fd;
    }
  }
  return -1;
}

/* Returns whether there is a name. */
static int read_holder(int fd, char *text) {
  ssize_t n = pread(fd, text, MOST_HOLDER, 0);
  text[n > 0 ? n : 0] = 0;
  return n > 0;
}

/* On a full disk nobody learns the name. */
static void write_holder(int fd, const char *name, size_t length) {
  if (ftruncate(fd, 0) || pwrite(fd, name, length, 0) < 0) errno = 0;
}

#endif
