/* Rows in order: what sorting and the greatest elements are made of. Part of base.c.
 *
 * Every element becomes an unsigned key, and a key with its place is an item. Zeros of both signs
 * have one key, and NaN has the greatest.
 */
#include "base.h"

#define ORDER_BLOCK 256 /* keys at a time */
#define ORDER_FEW 64    /* items for which counting bytes costs more than to insert one by one */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3") /* keys in vectors */
#endif

/* One loop for elements that are neighbours, in vectors, and one for others. */
#define ORDER_EACH(T, KEY_OF_BITS)                                                            \
  if (step == (ptrdiff_t)sizeof(T))                                                           \
    for (int i = 0; i < count; i++) {                                                         \
      T bits = ((const T *)row)[i];                                                           \
      keys[i] = KEY_OF_BITS;                                                                  \
    }                                                                                         \
  else                                                                                        \
    for (int i = 0; i < count; i++) {                                                         \
      T bits = *(const T *)(row + i * step);                                                  \
      keys[i] = KEY_OF_BITS;                                                                  \
    }                                                                                         \
  break;

#define ORDER_SIGN(T) ((T)1 << (8 * sizeof(T) - 1))
/* Negative numbers turn around below the others; `infinity` is the bits of that. */
#define ORDER_FLOAT(T, infinity)                                                              \
  ((T)(bits & (T)~ORDER_SIGN(T)) > (T)(infinity) ? (T)~(T)0                                   \
   : (T)(bits & (T)~ORDER_SIGN(T)) == 0          ? ORDER_SIGN(T)                              \
   : bits & ORDER_SIGN(T)                        ? (T)~bits                                   \
                                                 : (T)(bits | ORDER_SIGN(T)))

/* Kinds of elements, as `codegen/order.py` numbers them. */
#define KEY uint32_t
#define ITEM uint64_t
#define ORDER(name) order_narrow_##name
#define MAKE(key, place) ((uint64_t)(key) << 32 | (uint32_t)(place))
#define KEY_OF(item) ((uint32_t)((item) >> 32))
#define PLACE_OF(item) ((uint32_t)(item))
#define BEFORE(item, other) ((item) < (other))
#define ORDER_KINDS                                                                           \
  case 0: ORDER_EACH(uint8_t, bits)                                                           \
  case 1: ORDER_EACH(uint16_t, bits)                                                          \
  case 2: ORDER_EACH(uint32_t, bits)                                                          \
  case 3: ORDER_EACH(uint8_t, (uint8_t)(bits ^ ORDER_SIGN(uint8_t)))                          \
  case 4: ORDER_EACH(uint16_t, (uint16_t)(bits ^ ORDER_SIGN(uint16_t)))                       \
  case 5: ORDER_EACH(uint32_t, bits ^ ORDER_SIGN(uint32_t))                                   \
  case 6: ORDER_EACH(uint16_t, ORDER_FLOAT(uint16_t, 0x7c00))                                 \
  case 7: ORDER_EACH(uint16_t, ORDER_FLOAT(uint16_t, 0x7f80))                                 \
  case 8: ORDER_EACH(uint32_t, ORDER_FLOAT(uint32_t, 0x7f800000))
#include "order.h"

typedef struct {
  uint64_t key, place;
} order_item;

#define KEY uint64_t
#define ITEM order_item
#define ORDER(name) order_wide_##name
#define MAKE(key, place) ((order_item){key, (uint64_t)(place)})
#define KEY_OF(item) ((item).key)
#define PLACE_OF(item) ((item).place)
#define BEFORE(item, other)                                                                   \
  ((item).key < (other).key || ((item).key == (other).key && (item).place < (other).place))
#define ORDER_KINDS                                                                           \
  case 9: ORDER_EACH(uint64_t, bits)                                                          \
  case 10: ORDER_EACH(uint64_t, bits ^ ORDER_SIGN(uint64_t))                                  \
  case 11: ORDER_EACH(uint64_t, ORDER_FLOAT(uint64_t, 0x7ff0000000000000))
#include "order.h"

int lw_order(void *places, int places_step, int wanted, const void *row, int step, int extent,
             int kind, int greatest, void *items) {
  static const unsigned char bytes[] = {1, 2, 4, 1, 2, 4, 2, 2, 4, 8, 8, 8};
  ptrdiff_t apart = (ptrdiff_t)step * bytes[kind];
  if (bytes[kind] < 8)
    order_narrow_order(places, places_step, wanted, row, apart, extent, kind, greatest, items);
  else
    order_wide_order(places, places_step, wanted, row, apart, extent, kind, greatest, items);
  return 0;
}

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
