/* CUDA C on the processor: what a kernel's text needs to be compiled by a C++ compiler, and blocks
 * whose threads take turns. A thread runs until it waits for the others of its block (a barrier)
 * or of its warp (a matrix instruction). Threads that wait for different things are an error. */
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

using std::max;
using std::min;

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)

struct alignas(8) uint2 { unsigned lanes[2]; };
struct alignas(16) uint4 { unsigned lanes[4]; };

static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
template <typename To, typename From>
static To bits_as(From x) { To y; memcpy(&y, &x, sizeof y); return y; }
#define __int_as_float(x) bits_as<float>(int(x))
#define __uint_as_float(x) bits_as<float>(unsigned(x))
#define __float_as_uint(x) bits_as<unsigned>(float(x))
#define __longlong_as_double(x) bits_as<double>((long long)(x))

/* ---- threads that take turns ---- */

struct index_ { int x; };
static index_ threadIdx, blockIdx;
enum { RUNS, AT_BARRIER, IN_WARP, DONE };
struct fiber { ucontext_t context; int state; std::vector<char> stack; };
static std::vector<fiber> fibers;
static ucontext_t scheduler;
static void (*body)(void **);
static void **arguments;

static void enter_() {
  body(arguments);
  fibers[threadIdx.x].state = DONE;
}

static void wait_(int state) {
  int self = threadIdx.x;
  fibers[self].state = state;
  swapcontext(&fibers[self].context, &scheduler);
}

static void fail_(const char *what) {
  fprintf(stderr, "emulation: %s\n", what);
  abort();
}

/* Lets all go that wait for the same thing; whether any did. */
static bool release_(size_t first, size_t last, int state) {
  for (size_t t = first; t < last; t++)
    if (fibers[t].state != state) return false;
  for (size_t t = first; t < last; t++) fibers[t].state = RUNS;
  return true;
}

static void run_block_() {
  size_t n = fibers.size(), done = 0;
  for (size_t t = 0; t < n; t++) {
    fiber &f = fibers[t];
    getcontext(&f.context);
    f.stack.resize(1 << 16);
    f.context.uc_stack.ss_sp = f.stack.data();
    f.context.uc_stack.ss_size = f.stack.size();
    f.context.uc_link = &scheduler;
    f.state = RUNS;
    makecontext(&f.context, enter_, 0);
  }
  while (done < n) {
    bool ran = false;
    for (size_t t = 0; t < n; t++) {
      if (fibers[t].state != RUNS) continue;
      ran = true;
      threadIdx.x = (int)t;
      swapcontext(&scheduler, &fibers[t].context);
      done += fibers[t].state == DONE;
    }
    bool freed = release_(0, n, AT_BARRIER);
    for (size_t w = 0; w + 32 <= n; w += 32) freed |= release_(w, w + 32, IN_WARP);
    if (!ran && !freed && done < n) fail_("threads wait for different things");
  }
}

extern "C" void lw_emulate(void (*kernel)(void **), int grid, int block, void **given) {
  fibers.clear();
  fibers.resize((size_t)block);
  body = kernel;
  arguments = given;
  for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) run_block_();
}

static inline void __syncthreads() { wait_(AT_BARRIER); }

/* ---- the instructions of prelude/cuda_ptx.cu, as the PTX ISA describes them ---- */

#define uint unsigned int
#define uchar unsigned char
#define ushort unsigned short
#define int64_t long long
#define uint64_t unsigned long long
#define CUDART_INF_F __int_as_float(0x7f800000)
#define CUDART_NAN_F __int_as_float(0x7fffffff)
#define CUDART_INF __longlong_as_double(0x7ff0000000000000ll)
#define CUDART_NAN __longlong_as_double(0x7ff8000000000000ll)
#define lw_barrier() __syncthreads()
#define LW_DEVICE static inline
#define LW_ALIGNED(pointer, bytes) \
  if ((uintptr_t)(pointer) % (bytes)) fail_("a misaligned access")

LW_DEVICE float lw_of_float16(ushort bits) { return (float)bits_as<_Float16>(bits); }
LW_DEVICE ushort lw_to_float16(float x) { return bits_as<ushort>((_Float16)x); }
LW_DEVICE float lw_of_bfloat16(ushort bits) { return __uint_as_float((uint)bits << 16); }
LW_DEVICE ushort lw_to_bfloat16(float x) {
  uint bits = __float_as_uint(x);
  if (x != x) return 0x7fff;
  return (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A copy is done when its group is waited for, and no earlier: what reads too soon reads NaN. */
struct copy_ { char *to; const char *from; int bytes, group; };
static std::vector<copy_> copies_[1024];
static int group_[1024];

template <int BYTES>
LW_DEVICE void lw_async_copy(void *to, const void *from) {
  if ((uintptr_t)to % BYTES || (uintptr_t)from % BYTES) fail_("a misaligned copy");
  memset(to, 0xff, BYTES);
  copies_[threadIdx.x].push_back({(char *)to, (const char *)from, BYTES, group_[threadIdx.x]});
}
LW_DEVICE void lw_async_commit() { group_[threadIdx.x]++; }
template <int PENDING>
LW_DEVICE void lw_async_wait() {
  std::vector<copy_> later;
  for (const copy_ &c : copies_[threadIdx.x]) {
    if (c.group < group_[threadIdx.x] - PENDING)
      memcpy(c.to, c.from, (size_t)c.bytes);
    else
      later.push_back(c);
  }
  copies_[threadIdx.x] = later;
}

static const ushort *rows_[1024];
static uint words_[1024][6];

/* ldmatrix .x4: thread 8i + r gives row r of matrix i; thread l gets elements 2(l % 4) and
 * 2(l % 4) + 1 of row l / 4 of each matrix, or with .trans of its transpose. */
static void ldmatrix_(uint *tile, const ushort *row, bool transposed) {
  int self = threadIdx.x, warp = self / 32 * 32, lane = self % 32;
  if ((uintptr_t)row % 16) fail_("a row of a matrix is misaligned");
  rows_[self] = row;
  wait_(IN_WARP);
  for (int i = 0; i < 4; i++) {
    ushort pair[2];
    for (int e = 0; e < 2; e++) {
      int r = lane / 4, c = lane % 4 * 2 + e;
      pair[e] = transposed ? rows_[warp + i * 8 + c][r] : rows_[warp + i * 8 + r][c];
    }
    tile[i] = pair[0] | (uint)pair[1] << 16;
  }
  wait_(IN_WARP);
}
LW_DEVICE void lw_ldmatrix(uint *tile, const ushort *row) { ldmatrix_(tile, row, false); }
LW_DEVICE void lw_ldmatrix_transposed(uint *tile, const ushort *row) { ldmatrix_(tile, row, true); }

/* mma.m16n8k16: with g = lane / 4 and t = lane % 4, words 0 … 3 of A are rows g, g+8, g, g+8 and
 * columns 2t, 2t, 2t+8, 2t+8 (and the next one); words 0, 1 of B are rows 2t, 2t+8, column g. */
template <float (*OF)(ushort)>
static void mma_(float *d, const uint *a, const uint *b) {
  int self = threadIdx.x, warp = self / 32 * 32, lane = self % 32;
  memcpy(words_[self], a, 16);
  memcpy(words_[self] + 4, b, 8);
  wait_(IN_WARP);
  for (int i = 0; i < 4; i++) {
    int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    float sum = 0;
    for (int k = 0; k < 16; k++) {
      uint x = words_[warp + row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
      uint y = words_[warp + column * 4 + k % 8 / 2][4 + k / 8];
      sum += OF((ushort)(x >> k % 2 * 16)) * OF((ushort)(y >> k % 2 * 16));
    }
    d[i] += sum;
  }
  wait_(IN_WARP);
}
LW_DEVICE void lw_mma_float16(float *d, const uint *a, const uint *b) {
  mma_<lw_of_float16>(d, a, b);
}
LW_DEVICE void lw_mma_bfloat16(float *d, const uint *a, const uint *b) {
  mma_<lw_of_bfloat16>(d, a, b);
}
