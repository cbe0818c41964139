/* The programs of a library of open sizes, one of which a call runs.
 *
 * The first argument of all is an array: the number of the program, then the value of every dim. A
 * library of fixed sizes has a `main` of its own, which takes the place of the one here. This is an
 * object by itself, so that the linker may put another `main` around (`--wrap`).
 */
#include "runtime.h"

#define EVERY_VARIANT(X) \
  X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) \
  X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)

#define DECLARE(n) LW_HIDDEN extern lw_kernel __tvm_ffi_main##n __attribute__((weak));
EVERY_VARIANT(DECLARE)

#define ADDRESS(n) __tvm_ffi_main##n,
static lw_kernel *const variants[] = {EVERY_VARIANT(ADDRESS)};

LW_HIDDEN __attribute__((weak)) int __tvm_ffi_main(void *self, const lw_any *arguments,
                                                   int32_t count, lw_any *result) {
  const void *const *sizes = arguments[0].value.pointer; /* whose first member is its data */
  int64_t number = *(const int64_t *)*sizes;
  if (number < 0 || number >= (int64_t)(sizeof variants / sizeof *variants)) return -1;
  return variants[number] ? variants[number](self, arguments, count, result) : -1;
}
