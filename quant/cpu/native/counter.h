// Work that threads share: each thread takes the next part, until none is left.

#pragma once

#include <stdint.h>

// Returns `counter`, which is 0 at first, and increments it: each number is returned once, over all threads.
static inline int64_t taken_from(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
