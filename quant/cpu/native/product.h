// Products of rows in int8 with quantized weights, as `library.py` passes them on.

#pragma once

#include "stored.h"
#include "vectors.h"

enum { QUADS = GROUP / 4 };

// A row's activations in one group, four codes a word, in the order of `levels`.
struct group {
    int32_t codes[QUADS];
    float scale;
    int32_t offset;  // undoes the SHIFT of all levels: -SHIFT times the sum of the codes
};

// Rows times the weights that they are routed to. The same layout as `_Product` in Python.
struct product {
    const uint8_t *codes;        // nf4 [weights, out, in / 2], or int8 [weights, out, in]
    const uint16_t *scales;      // bf16 [weights, out, in / 64]
    const int8_t *levels;        // [16], those of nf4 in steps of 1/127; null for int8
    const struct group *groups;  // [R, in / 64]
    const int64_t *chosen;       // [P], the row of each product; null where each has its own
    const int64_t *starts;       // [weights + 1], the first product of each weight
    void *result;                // [P, out], fp32 or bf16
    int64_t weights, out, in;
    int64_t is_bf16;
    int64_t next;  // the first block of a weight that nobody has taken; 0 at first
};

// Bytes of the codes of `inputs` inputs.
static inline int64_t code_bytes(const struct product *p, int64_t inputs) { return p->levels ? inputs / 2 : inputs; }

// The groups of the row of a product.
static inline const struct group *groups_of(const struct product *p, int64_t product) {
    return p->groups + (p->chosen ? p->chosen[product] : product) * (p->in / GROUP);
}

// Fetches codes into the L2 cache.
static inline void prefetch(const uint8_t *codes, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(codes + at, 0, 2);
}

// Stores LANES results from `at` on.
static inline void store(const struct product *p, int64_t at, real value) {
    if (p->is_bf16)
        store_bf16((uint16_t *)p->result + at, value);
    else
        store_real((float *)p->result + at, value);
}
