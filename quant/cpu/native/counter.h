// Work that threads share: each of them takes the next part of it, until there is none.

#pragma once

#include <stdint.h>

// What `counter`, which is 0 at first, says before it is raised by one: every number once, whatever thread asks.
static inline int64_t taken_from(int64_t *counter) { return __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED); }
