/* Frames between the tuner and a worker on another machine; see `measure.remote.frames`.
 *
 * Numbers are little-endian, as on every processor that the worker is made for.
 */
#ifndef LOOPWRIGHT_FRAMES_H_
#define LOOPWRIGHT_FRAMES_H_

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define PROTOCOL 1
#define MAGIC "\0LWrun\n\xff"
#define MOST_ASKED (64 << 10) /* bytes of a frame that asks for something, but for PUT */
#define CHUNK (64 << 10)

enum { PUT = 1, DROP, LOCK, UNLOCK, RESTART };                     /* for the worker itself */
enum { PLACE = 16, LOAD, CALL, OUTPUT, CLEAR, FLUSH, LAST_ASKED }; /* for the process that runs */
enum { FACTS = 32, DONE, BEAT, DIED, LATE, FAULT, BAD, BYE };

typedef struct {
  char magic[8];
  uint32_t kind, value;
  uint64_t length;
  uint32_t limit; /* milliseconds that the answer may take; that it took, in an answer */
  uint32_t payload_crc;
  uint32_t reserved;
  uint32_t crc; /* of all that stands before it */
} header;

_Static_assert(sizeof(header) == 40, "the header has no padding");

/* CRC-32 as zlib has it, four bytes at a time. */
static uint32_t crc_table[4][256];

static void make_crc_table(void) {
  for (uint32_t i = 0; i < 256; i++) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; bit++) c = c & 1 ? 0xEDB88320u ^ c >> 1 : c >> 1;
    crc_table[0][i] = c;
  }
  for (int i = 0; i < 256; i++)
    for (int k = 1; k < 4; k++)
      crc_table[k][i] = crc_table[k - 1][i] >> 8 ^ crc_table[0][crc_table[k - 1][i] & 255];
}

static uint32_t crc_of(uint32_t crc, const void *data, size_t length) {
  const unsigned char *p = data;
  crc = ~crc;
  for (; length >= 4; length -= 4, p += 4) {
    uint32_t word;
    memcpy(&word, p, 4);
    crc ^= word;
    crc = crc_table[3][crc & 255] ^ crc_table[2][crc >> 8 & 255] ^ crc_table[1][crc >> 16 & 255] ^
          crc_table[0][crc >> 24];
  }
  for (; length; length--) crc = crc_table[0][(crc ^ *p++) & 255] ^ crc >> 8;
  return ~crc;
}

/* Waits until a descriptor can be read or written; 0 where `ms` have passed. */
static int await_file(int fd, short events, int ms) {
  struct pollfd p = {fd, events, 0};
  int n;
  while ((n = poll(&p, 1, ms)) < 0 && errno == EINTR) continue;
  return n > 0;
}

/* Read whole, each part within `ms`. 1, or 0 at the end, in an error, or when it is late. */
static int read_whole(int fd, void *data, size_t length, int ms) {
  for (char *p = data; length;) {
    if (!await_file(fd, POLLIN, ms)) return 0;
    ssize_t n = read(fd, p, length);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return 0;
    p += n, length -= (size_t)n;
  }
  return 1;
}

static int write_whole(int fd, const void *data, size_t length, int ms) {
  for (const char *p = data; length;) {
    ssize_t n = write(fd, p, length);
    if (n < 0 && errno == EAGAIN && await_file(fd, POLLOUT, ms)) continue;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    p += n, length -= (size_t)n;
  }
  return 1;
}

/* A header with its payload, in one go where that is short: so whoever reads wakes once. */
static int write_both(int fd, const header *h, const void *data, size_t length, int ms) {
  char both[sizeof *h + 1024];
  if (length > 1024)
    return write_whole(fd, h, sizeof *h, ms) && write_whole(fd, data, length, ms);
  memcpy(both, h, sizeof *h);
  if (length) memcpy(both + sizeof *h, data, length);
  return write_whole(fd, both, sizeof *h + length, ms);
}

static int write_frame(int fd, uint32_t kind, uint32_t value, const void *data, size_t length,
                       int ms) {
  header h = {.magic = MAGIC, .kind = kind, .value = value, .length = length};
  h.payload_crc = crc_of(0, data, length);
  h.crc = crc_of(0, &h, offsetof(header, crc));
  return write_both(fd, &h, data, length, ms);
}

static int is_header(const header *h) {
  return !memcmp(h->magic, MAGIC, 8) && h->crc == crc_of(0, h, offsetof(header, crc));
}

#endif
