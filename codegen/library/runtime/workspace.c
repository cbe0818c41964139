/* A cache of workspaces for compiled kernels. Part of base.c.
 *
 * Free blocks are kept for the next call, since fresh pages cost more than many a kernel: some in
 * slots, and the last one that is too large for those. They are emptied and filled by atomic
 * exchange: there is no lock, so a fork can at worst lose a block.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "base.h"

#define ALIGNMENT 64
#define SLOTS 32
#define MOST_KEPT ((uint64_t)512 << 20)
#define MOST_BYTES ((uint64_t)1 << 48)

typedef struct {
  uint64_t bytes;
} block; /* the header; what the kernel sees begins ALIGNMENT bytes later */

static _Atomic(block *) slots[SLOTS];
static _Atomic(block *) large; /* of more than MOST_KEPT bytes */
static _Atomic uint64_t kept;
static _Atomic unsigned oldest;

static block *take(unsigned slot) {
  if (!atomic_load_explicit(&slots[slot], memory_order_relaxed)) return NULL;
  block *b = atomic_exchange(&slots[slot], NULL);
  if (b) atomic_fetch_sub(&kept, b->bytes);
  return b;
}

static void evict(void) { free(take(atomic_fetch_add(&oldest, 1) % SLOTS)); }

static int place(block *b) {
  for (unsigned i = 0; i < SLOTS; i++) {
    block *empty = NULL;
    if (!atomic_load_explicit(&slots[i], memory_order_relaxed) &&
        atomic_compare_exchange_strong(&slots[i], &empty, b))
      return 1;
  }
  return 0;
}

/* Keeps a free block, at the expense of others where they are too many or too large. */
static void keep(block *b) {
  if (b->bytes > MOST_KEPT) {
    free(atomic_exchange(&large, b));
    return;
  }
  uint64_t total = atomic_fetch_add(&kept, b->bytes) + b->bytes;
  for (int tries = 0; tries < SLOTS && total > MOST_KEPT; tries++) {
    evict();
    total = atomic_load(&kept);
  }
  if (total <= MOST_KEPT) {
    if (place(b)) return;
    evict();
    if (place(b)) return;
  }
  atomic_fetch_sub(&kept, b->bytes);
  free(b);
}

static block *reuse(uint64_t bytes) {
  if (bytes > MOST_KEPT) {
    block *b = atomic_exchange(&large, NULL);
    if (b && b->bytes == bytes) return b;
    free(b);
    return NULL;
  }
  for (unsigned i = 0; i < SLOTS; i++) {
    block *b = take(i);
    if (b && b->bytes == bytes) return b;
    if (b) keep(b);
  }
  return NULL;
}

/* Rounded up by less than an eighth, so that nearly equal requests share a block. */
static uint64_t rounded(uint64_t bytes) {
  uint64_t step = ALIGNMENT;
  while (step * 16 < bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

static void *allocate(int device_type, int device_id, uint64_t bytes, int code, int bits) {
  (void)device_type, (void)device_id, (void)code, (void)bits;
  if (bytes > MOST_BYTES) return NULL;
  bytes = rounded(bytes ? bytes : 1);
  block *b = reuse(bytes);
  if (!b && !(b = aligned_alloc(ALIGNMENT, (size_t)(bytes + ALIGNMENT)))) return NULL;
  b->bytes = bytes;
  return (char *)b + ALIGNMENT;
}

static int release(int device_type, int device_id, void *pointer) {
  (void)device_type, (void)device_id;
  if (pointer) keep((block *)((char *)pointer - ALIGNMENT));
  return 0;
}

__attribute__((destructor)) static void empty_cache(void) {
  for (unsigned i = 0; i < SLOTS; i++) free(take(i));
  free(atomic_exchange(&large, NULL));
}
