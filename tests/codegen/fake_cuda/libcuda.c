/* A stand-in for NVIDIA's driver, as far as the launcher uses it. The memory of its GPU is the
 * processor's; an image is the path of a shared object that `emulation.py` made of CUDA source. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OUT_OF_MEMORY 2
#define INVALID_VALUE 1
#define NO_BINARY 209
#define ILLEGAL_ADDRESS 700
#define MOST_BYTES ((size_t)128 << 20)

typedef struct { void *library; void (*kernel)(void **); int most_dynamic, lost; } function;
static int lost, depth, blocks;
static size_t held;
static void *current[16];
static int a_context;

#define ALIVE if (lost) return ILLEGAL_ADDRESS

int cuInit(unsigned flags) { (void)flags; return getenv("FAKE_CUDA_NO_GPU") ? 100 : 0; }
int cuGetErrorName(int r, const char **s) { *s = r == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR"; return 0; }
int cuGetErrorString(int r, const char **s) { (void)r; *s = "a fake failure"; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return i < 2 ? 0 : 101; }
int cuDeviceGetName(char *s, int n, int d) { (void)d; snprintf(s, (size_t)n, "Fake H100"); return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) {
  (void)d;
  switch (a) {
    case 16: *v = 132; break;
    case 38: *v = 4 << 20; break;
    case 39: *v = 2048; break;
    case 75: *v = getenv("FAKE_CUDA_MAJOR") ? atoi(getenv("FAKE_CUDA_MAJOR")) : 9; break;
    case 76: *v = 0; break;
    case 81: *v = 228 << 10; break;
    case 82: *v = 65536; break;
    case 97: *v = 227 << 10; break;
    case 115: *v = getenv("FAKE_CUDA_NO_POOLS") == NULL; break;
    default: return INVALID_VALUE;
  }
  return 0;
}
int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = &a_context; return 0; }
int cuCtxGetCurrent(void **c) { *c = depth ? current[depth - 1] : NULL; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuCtxPushCurrent_v2(void *c) { current[depth++] = c; return 0; }
int cuCtxPopCurrent_v2(void **c) { *c = current[--depth]; return 0; }
int cuCtxSynchronize(void) { ALIVE; return 0; }
int cuModuleLoadData(void **m, const void *image) {
  ALIVE;
  if (strncmp(image, "emulated:", 9)) return NO_BINARY;
  *m = dlopen((const char *)image + 9, RTLD_NOW | RTLD_LOCAL);
  return *m ? 0 : NO_BINARY;
}
int cuModuleUnload(void *m) { dlclose(m); return 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) {
  char symbol[256];
  snprintf(symbol, sizeof symbol, "emulated_%s", name);
  function *made = calloc(1, sizeof *made);
  made->library = m;
  *(void **)&made->kernel = dlsym(m, symbol);
  *f = made;
  return made->kernel ? 0 : 500;
}
int cuFuncSetAttribute(function *f, int a, int v) {
  if (a != 8 || v > 227 << 10) return INVALID_VALUE;
  f->most_dynamic = v;
  return 0;
}
int cuLaunchKernel(function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
  (void)stream, (void)extra;
  ALIVE;
  if (gy * gz * by * bz != 1 || bx > 1024 || !gx || (shared > 48 << 10 && (int)shared > f->most_dynamic))
    return INVALID_VALUE;
  if (getenv("FAKE_CUDA_FAULT")) lost = 1; /* seen later, as on a GPU */
  void (*emulate)(void (*)(void **), int, int, void **);
  *(void **)&emulate = dlsym(f->library, "lw_emulate");
  emulate(f->kernel, (int)gx, (int)bx, parameters);
  return 0;
}
static int allocate(uint64_t *p, size_t n) {
  ALIVE;
  if (held + n > MOST_BYTES) return OUT_OF_MEMORY;
  size_t *block = aligned_alloc(256, (n + 256 + 255) / 256 * 256);
  block[0] = n;
  held += n;
  blocks++;
  *p = (uint64_t)(uintptr_t)block + 256;
  memset((void *)(uintptr_t)*p, 0xff, n);
  return 0;
}
static int release(uint64_t p) {
  size_t *block = (size_t *)(uintptr_t)(p - 256);
  held -= block[0];
  blocks--;
  free(block);
  return 0;
}
int cuMemAlloc_v2(uint64_t *p, size_t n) { return allocate(p, n); }
int cuMemFree_v2(uint64_t p) { return release(p); }
int cuMemAllocAsync(uint64_t *p, size_t n, void *s) { (void)s; return allocate(p, n); }
int cuMemFreeAsync(uint64_t p, void *s) { (void)s; return release(p); }
int cuDeviceGetDefaultMemPool(void **p, int d) { (void)d; *p = &a_context; return 0; }
int cuMemPoolSetAttribute(void *p, int a, void *v) { (void)p, (void)a, (void)v; return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) { ALIVE; memcpy((void *)(uintptr_t)to, from, n); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) { ALIVE; memcpy(to, (void *)(uintptr_t)from, n); return 0; }
int cuMemsetD8Async(uint64_t p, unsigned char v, size_t n, void *s) { (void)s; ALIVE; memset((void *)(uintptr_t)p, v, n); return 0; }
int cuStreamSynchronize(void *s) { (void)s; ALIVE; return 0; }
int cuEventCreate(void **e, unsigned f) { (void)f; *e = calloc(1, sizeof(struct timespec)); return 0; }
int cuEventRecord(void *e, void *s) { (void)s; ALIVE; clock_gettime(CLOCK_MONOTONIC, e); return 0; }
int cuEventSynchronize(void *e) { (void)e; ALIVE; return 0; }
int cuEventElapsedTime(float *ms, struct timespec *a, struct timespec *b) {
  *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
  return 0;
}
int cuEventDestroy_v2(void *e) { free(e); return 0; }
/* For the tests: blocks of memory that are held. */
int fake_blocks(void) { return blocks; }

/* What TVM's CUDA run-time is linked with, beside the above. */
int cuLaunchKernelEx(void) { return INVALID_VALUE; }
int cuTensorMapEncodeTiled(void) { return INVALID_VALUE; }
