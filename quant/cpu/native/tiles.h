// The products of `product.c` through AMX, where the CPU and the system have it.

#include "product.h"

struct tiles;  // what a thread needs for them

// Asks the system for the registers, once for all threads of the process; returns whether they are used from now on.
int64_t use_tiles(void);

// State for one thread and one product; null if there are no tiles or no memory.
struct tiles *begin_tiles(const struct product *p);

// Rows `first` up to `last` of a weight, sixteen at a time.
void block_of_tiles(struct tiles *tiles, const struct product *p, int64_t weight, int64_t first, int64_t last);

void end_tiles(struct tiles *tiles);
