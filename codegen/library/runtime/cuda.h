/* Launches the kernels of one library through NVIDIA's driver, which is looked for when it is first
 * needed: code that is linked with this loads, and says what is missing, on any machine. */
#ifndef LOOPWRIGHT_CUDA_H_
#define LOOPWRIGHT_CUDA_H_

#include <stdint.h>

#define LW_GPU_ABI 1
#define LW_GPU_MAX_ARGUMENTS 256

/* Results of a call: 0 is success. Those that base.h has are the same. */
enum {
  LW_OK = 0,
  LW_NULL_POINTER = 1,
  LW_MISALIGNED = 2,
  LW_OUT_OF_MEMORY = 3,
  LW_BAD_ARGUMENT = 4,
  LW_NO_DRIVER = 5,
  LW_NO_GPU = 6,
  LW_OTHER_GPU = 7,
  LW_LOST = 8,
  LW_OVERLAP = 9
};

/* One kernel: `arguments` are numbers of its function's pointers, and then of its workspaces. */
typedef struct {
  const char *kernel;
  int32_t grid, block, shared, count;
  const int32_t *arguments;
} lw_launch;

/* A function: its launches, one after the other, and the bytes of its workspaces. */
typedef struct {
  int32_t pointers, launches, workspaces;
  const lw_launch *launch;
  const uint64_t *bytes;
} lw_plan;

enum { LW_MAIN = 0, LW_PREPARE = 1, LW_FUNCTIONS = 2 };

/* A library: `image` is a cubin or a fat binary; `state` is the launcher's, null at first. */
typedef struct {
  const void *image;
  lw_plan functions[LW_FUNCTIONS];
  void *state;
} lw_gpu_library;

/* `device` is the number of a GPU; -1 is that of the thread's current context, or else 0. A stream
 * is a CUstream or cudaStream_t; null is the default stream. */
typedef struct {
  uint32_t abi;
  lw_gpu_library *own; /* the library that this file was exported as; else null */
  int (*call)(lw_gpu_library *, int device, int function, const uint64_t *pointers, void *stream);
  /* The same `times` times, waiting for the end; seconds by the GPU's clock. */
  int (*repeat)(lw_gpu_library *, int device, int function, const uint64_t *pointers,
                int64_t times, double *seconds);
  int (*load)(lw_gpu_library *, int device);
  void (*unload)(lw_gpu_library *);
  int (*allocate)(int device, uint64_t bytes, uint64_t *pointer);
  void (*release)(int device, uint64_t pointer);
  int (*upload)(int device, uint64_t to, const void *from, uint64_t bytes);
  int (*download)(int device, void *to, uint64_t from, uint64_t bytes);
  int (*erase)(int device, uint64_t pointer, uint64_t bytes);
  int (*finish)(int device);
  /* An attribute of a GPU, by its number in CUdevice_attribute. */
  int (*attribute)(int device, int number, int *value);
  int (*name)(int device, char *text, int size);
  const char *(*error)(int status);
  const char *(*detail)(void); /* what the driver said last in this thread */
} lw_gpu_table;

extern const lw_gpu_table loopwright_gpu;
/* What is asked of an argument. */
typedef struct {
  uint64_t bytes;
  int32_t alignment, written;
} lw_gpu_argument;

/* Calls a function after a look at its pointers: not null, aligned, and what is written apart from
 * all others. */
int lw_gpu_checked_call(int function, const uint64_t *pointers, const lw_gpu_argument *arguments,
                        void *stream);
int lw_gpu_allocate(uint64_t bytes, uint64_t *pointer, void *stream);
void lw_gpu_release(uint64_t pointer, void *stream);

#endif
