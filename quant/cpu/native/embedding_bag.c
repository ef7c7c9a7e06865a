// Weighted sums of rows of a table of int8 codes: the soft embedding, of the ids that are probable enough to count. Rows
// are read as they are stored, and products are added in fp32, id after id.

#include "stored.h"

// The same layout as `_Bags` in Python.
struct bags {
    const int8_t *codes;     // [V, width]
    const uint16_t *scales;  // bf16 [V, width / 64]
    const int64_t *ids;      // [count, kept]
    const float *weights;    // [count, kept]
    float *sums;             // [count, width]
    int64_t count, kept, width;
    int64_t next;  // the first bag that nobody has taken; 0 at first
};

static void bag(const struct bags *b, int64_t number) {
    const int64_t groups = b->width / GROUP;
    float *restrict sums = b->sums + number * b->width;
    memset(sums, 0, b->width * sizeof *sums);
    for (int64_t at = number * b->kept; at < (number + 1) * b->kept; ++at) {
        const int8_t *restrict codes = b->codes + b->ids[at] * b->width;
        for (int64_t group = 0; group < groups; ++group) {
            const float factor = b->weights[at] * from_bf16(b->scales[b->ids[at] * groups + group]);
            for (int64_t k = group * GROUP; k < (group + 1) * GROUP; ++k) sums[k] += factor * codes[k];
        }
    }
}

// Sums bags until none is left; any number of threads may be in here for the same ones.
void embedding_bag(struct bags *bags) {
    for (;;) {
        const int64_t taken = __atomic_fetch_add(&bags->next, 1, __ATOMIC_RELAXED);
        if (taken >= bags->count) return;
        bag(bags, taken);
    }
}
