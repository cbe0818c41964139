/* Orders of keys of one width. Part of order.c, which includes it for each: with the types KEY and
 * ITEM, and ORDER(name), MAKE(key, place), KEY_OF(item), PLACE_OF(item), BEFORE(item, other).
 *
 * An item is a key and its place. No two are equal, so every order of them is stable.
 */

/* Keys of `count` elements: the less one comes first. */
static void ORDER(keys)(KEY *keys, const char *row, ptrdiff_t step, int count, int kind,
                        int greatest) {
  switch (kind) {
    ORDER_KINDS
    default: break;
  }
  if (greatest)
    for (int i = 0; i < count; i++) keys[i] = (KEY)~keys[i];
}

/* The first items in order, the others lost. */
static void ORDER(insert)(ITEM *items, int wanted, int count) {
  for (int i = 1; i < count; i++) {
    ITEM item = items[i];
    int at = i;
    if (i >= wanted && BEFORE(items[at = wanted - 1], item)) continue;
    for (; at > 0 && BEFORE(item, items[at - 1]); at--) items[at] = items[at - 1];
    items[at] = item;
  }
}

/* By one byte of the keys after the other, the lowest first, each time in stable order; bytes that
 * all keys share are left out. Returns where the items are: `items` or `others`. */
static ITEM *ORDER(by_bytes)(ITEM *items, ITEM *others, int count) {
  uint32_t counts[sizeof(KEY)][256] = {{0}};
  for (int i = 0; i < count; i++)
    for (unsigned byte = 0; byte < sizeof(KEY); byte++)
      counts[byte][KEY_OF(items[i]) >> 8 * byte & 255]++;
  for (unsigned byte = 0; byte < sizeof(KEY); byte++) {
    uint32_t *begin = counts[byte], total = 0;
    if (begin[KEY_OF(items[0]) >> 8 * byte & 255] == (uint32_t)count) continue;
    for (int digit = 0; digit < 256; digit++) {
      uint32_t own = begin[digit];
      begin[digit] = total;
      total += own;
    }
    for (int i = 0; i < count; i++)
      others[begin[KEY_OF(items[i]) >> 8 * byte & 255]++] = items[i];
    ITEM *swapped = items;
    items = others;
    others = swapped;
  }
  return items;
}

/* Puts an item in the place of a heap's first one, which comes behind all others of it. */
static void ORDER(sift)(ITEM *heap, int count, ITEM item) {
  int at = 0;
  for (int below; (below = 2 * at + 1) < count; at = below) {
    if (below + 1 < count && BEFORE(heap[below], heap[below + 1])) below++;
    if (!BEFORE(item, heap[below])) break;
    heap[at] = heap[below];
  }
  heap[at] = item;
}

/* The first items of a row, in order: a heap of the best so far, which few elements enter unless
 * the row is mostly in the opposite order. Then it gives up, and returns 0. */
static int ORDER(select)(ITEM *heap, int wanted, const char *row, ptrdiff_t step, int extent,
                         int kind, int greatest) {
  KEY keys[ORDER_BLOCK];
  int held = 0, entered = 0;
  for (int first = 0; first < extent; first += ORDER_BLOCK) {
    int count = extent - first < ORDER_BLOCK ? extent - first : ORDER_BLOCK, i = 0;
    ORDER(keys)(keys, row + first * step, step, count, kind, greatest);
    for (; held < wanted && i < count; i++) {
      ITEM item = MAKE(keys[i], first + i);
      int at = held++;
      for (int above; at > 0 && BEFORE(heap[above = (at - 1) / 2], item); at = above)
        heap[at] = heap[above];
      heap[at] = item;
    }
    if (held < wanted) continue;
    for (KEY last = KEY_OF(heap[0]); i < count; i++) {
      if (keys[i] >= last) continue; /* an equal one comes later */
      ORDER(sift)(heap, wanted, MAKE(keys[i], first + i));
      last = KEY_OF(heap[0]);
      entered++;
    }
    if (entered > extent / 4) return 0;
  }
  for (int last = wanted - 1; last > 0; last--) {
    ITEM item = heap[last];
    heap[last] = heap[0];
    ORDER(sift)(heap, last, item);
  }
  return 1;
}

static void ORDER(order)(int32_t *places, ptrdiff_t places_step, int wanted, const char *row,
                         ptrdiff_t step, int extent, int kind, int greatest, ITEM *items) {
  if (extent <= ORDER_FEW || wanted > extent / 16 ||
      !ORDER(select)(items, wanted, row, step, extent, kind, greatest)) {
    KEY keys[ORDER_BLOCK];
    for (int first = 0; first < extent; first += ORDER_BLOCK) {
      int count = extent - first < ORDER_BLOCK ? extent - first : ORDER_BLOCK;
      ORDER(keys)(keys, row + first * step, step, count, kind, greatest);
      for (int i = 0; i < count; i++) items[first + i] = MAKE(keys[i], first + i);
    }
    if (extent <= ORDER_FEW)
      ORDER(insert)(items, wanted, extent);
    else
      items = ORDER(by_bytes)(items, items + extent, extent);
  }
  for (int i = 0; i < wanted; i++) places[i * places_step] = (int32_t)PLACE_OF(items[i]);
}

#undef KEY
#undef ITEM
#undef ORDER
#undef MAKE
#undef KEY_OF
#undef PLACE_OF
#undef BEFORE
#undef ORDER_KINDS
