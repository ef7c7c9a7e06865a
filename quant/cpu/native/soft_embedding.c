// Soft embeddings: means of the rows of an int8 table under the softmax of logits, over the nucleus of each canvas row,
// that is, all ids but the least probable ones, whose probabilities sum to less than a tail. `soft_embedding.py` calls
// this.
//
//     key      the upper 16 bits of a logit, reordered so that a larger key is a larger logit; all of a bf16 logit
//     panel    PANEL columns of the table, whose sums for a row stay in registers
//     tile     a panel of TILE consecutive rows of the table, of which those in a nucleus are decoded to fp32
//
// Most rows of a canvas need other ids than their neighbours, but many of them together need most of the table. So the
// table is read tile by tile, once for all rows of a canvas, or once for each part of them where threads would be idle
// otherwise. A row adds up its ids in ascending order, whichever thread does it: the same inputs give the same
// bits. A thread needs about half a megabyte of stack.

#include <math.h>

#include "counter.h"
#include "stored.h"
#include "vectors.h"

enum {
    KEYS = 1 << 16,
    CHUNK = 64,             // logits whose keys are read at once
    PANEL_VECTORS = LANES,  // the sums of a row, which stay in half of the registers
    PANEL = PANEL_VECTORS * LANES,
    TILE = 256,
    ROWS = 256,
    AHEAD = 8  // rows of the table that are fetched before they are needed
};

int64_t soft_panel(void) { return PANEL; }
int64_t soft_rows(void) { return ROWS; }

// Logits, and the nucleus of each of their rows. The same layout as `_Nuclei` in Python, and so below.
struct nuclei {
    const void *logits;           // [count, vocabulary], bf16 or fp32
    const float *log_normalizer;  // [count], log-sum-exp of a row
    uint16_t *least;              // [count], the key of the least probable ids inside
    int64_t *sizes;               // [count]
    const int64_t *starts;        // [count + 1], where the ids of each row begin; a row without any is left out
    int32_t *ids;                 // [starts[count]], ascending within a row
    float *log_probs;             // [starts[count]]
    int64_t count, vocabulary;
    int64_t is_bf16;
    double tail;
    int64_t next;  // the first row that nobody has taken; 0 at first
};

// Rows of a table to be added up.
struct sums {
    const int8_t *codes;     // [V, width]
    const uint16_t *scales;  // bf16 [V, width / 64]
    const int64_t *starts;   // [count + 1]
    const int32_t *ids;      // [starts[count]], ascending within a row
    const float *weights;    // [starts[count]]
    float *sums;             // [count, width]
    int64_t count, width;
    int64_t part;  // rows, up to ROWS, for which a panel is computed at a time
    int64_t next;  // the first panel of a part that nobody has taken; 0 at first
};

static inline uint16_t key_of(uint16_t bits) { return bits ^ (bits & 0x8000 ? 0xffff : 0x8000); }

// The largest logit with this key.
static inline double logit_of(const struct nuclei *n, int64_t key) {
    const int is_negative = key < KEYS / 2;
    const uint32_t upper = (uint32_t)(is_negative ? ~key & (KEYS - 1) : key ^ (KEYS / 2));
    const uint32_t bits = upper << 16 | (n->is_bf16 || is_negative ? 0 : 0xffff);
    float logit;
    memcpy(&logit, &bits, sizeof logit);
    return logit;
}

// Keys of up to CHUNK logits of a row from `first` on; returns their number.
static inline int64_t read_keys(const struct nuclei *n, int64_t row, int64_t first, uint16_t keys[CHUNK]) {
    const int64_t left = n->vocabulary - first, count = left < CHUNK ? left : CHUNK, at = row * n->vocabulary + first;
    if (n->is_bf16) {
        const uint16_t *bits = (const uint16_t *)n->logits + at;
        for (int64_t k = 0; k < count; ++k) keys[k] = key_of(bits[k]);
    } else {
        const uint32_t *bits = (const uint32_t *)n->logits + at;
        for (int64_t k = 0; k < count; ++k) keys[k] = key_of((uint16_t)(bits[k] >> 16));
    }
    return count;
}

static void measure(const struct nuclei *n, int64_t row, uint32_t counts[KEYS]) {
    memset(counts, 0, KEYS * sizeof *counts);
    for (int64_t first = 0; first < n->vocabulary; first += CHUNK) {
        uint16_t keys[CHUNK];
        const int64_t count = read_keys(n, row, first, keys);
        for (int64_t k = 0; k < count; ++k) ++counts[keys[k]];
    }
    double left_out = 0;
    int64_t size = n->vocabulary, key = 0;
    for (; key < KEYS - 1; ++key) {
        if (!counts[key]) continue;
        const double with = left_out + counts[key] * exp(logit_of(n, key) - n->log_normalizer[row]);
        if (!(with < n->tail)) break;  // also if it is NaN
        left_out = with;
        size -= counts[key];
    }
    n->least[row] = (uint16_t)key;
    n->sizes[row] = size;
}

// Finds the nuclei of rows until none is left; any number of threads may run this, and those below, for the same rows.
void measure_nuclei(struct nuclei *n) {
    uint32_t counts[KEYS];
    for (int64_t row; (row = taken_from(&n->next)) < n->count;) measure(n, row, counts);
}

static void collect(const struct nuclei *n, int64_t row) {
    const int64_t end = n->starts[row + 1];
    int64_t at = n->starts[row];
    for (int64_t first = 0; first < n->vocabulary && at < end; first += CHUNK) {
        uint16_t keys[CHUNK];
        const int64_t count = read_keys(n, row, first, keys);
        int any = 0;
        for (int64_t k = 0; k < count; ++k) any |= keys[k] >= n->least[row];
        if (!any) continue;
        for (int64_t k = 0; k < count && at < end; ++k) {
            if (keys[k] < n->least[row]) continue;
            const int64_t place = row * n->vocabulary + first + k;
            const uint16_t *in_bf16 = n->logits;
            const float *in_fp32 = n->logits;
            const float logit = n->is_bf16 ? from_bf16(in_bf16[place]) : in_fp32[place];
            n->ids[at] = (int32_t)(first + k);
            n->log_probs[at++] = logit - n->log_normalizer[row];
        }
    }
}

// Lists the ids of nuclei, after they were measured.
void collect_nuclei(struct nuclei *n) {
    for (int64_t row; (row = taken_from(&n->next)) < n->count;) collect(n, row);
}

// A panel for some rows, as a thread computes it.
struct panel {
    float tile[TILE][PANEL], sums[ROWS][PANEL];
    int64_t taken[ROWS];   // of each row, the place in `ids` of the first id that is not added yet
    int64_t inside[ROWS];  // and how many from there on are in the tile
    int64_t column, columns, first_row, rows;
} __attribute__((aligned(64)));

static void decode_row(const struct sums *s, int64_t id, int64_t column, int64_t columns, float *restrict to) {
    const int8_t *restrict codes = s->codes + id * s->width + column;
    const uint16_t *scales = s->scales + (id * s->width + column) / GROUP;
    for (int64_t k = 0; k < columns; k += GROUP) {
        const float scale = from_bf16(scales[k / GROUP]);
        for (int64_t i = 0; i < GROUP; ++i) to[k + i] = scale * codes[k + i];
    }
}

// Fills the tile with the rows of the table, from `first` on, that ids name; returns the number of these ids.
static int64_t fill_tile(const struct sums *s, struct panel *p, int64_t first) {
    uint8_t is_named[TILE] = {0};
    int64_t sum = 0;
    for (int64_t row = 0; row < p->rows; ++row) {
        const int64_t end = s->starts[p->first_row + row + 1];
        int64_t at = p->taken[row];
        for (; at < end && s->ids[at] < first + TILE; ++at) is_named[s->ids[at] - first] = 1;
        p->inside[row] = at - p->taken[row];
        sum += p->inside[row];
    }
    for (int64_t k = 0; k < TILE; ++k) {
        const int64_t later = k + AHEAD;
        if (later < TILE && is_named[later])
            for (int64_t at = 0; at < p->columns; at += 64)
                __builtin_prefetch(s->codes + (first + later) * s->width + p->column + at);
        if (is_named[k]) decode_row(s, first + k, p->column, p->columns, p->tile[k]);
    }
    return sum;
}

// Adds rows of the tile, each times its weight, to a row's sums.
static void add_tile(const struct sums *s, struct panel *p, int64_t first, int64_t row) {
    real sum[PANEL_VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) sum[v] = load_real(p->sums[row] + v * LANES);
    for (int64_t at = p->taken[row]; at < p->taken[row] + p->inside[row]; ++at) {
        const float *values = p->tile[s->ids[at] - first];
        const real weight = real_of(s->weights[at]);
#pragma GCC unroll 16
        for (int v = 0; v < PANEL_VECTORS; ++v) sum[v] = plus_product(sum[v], weight, load_real(values + v * LANES));
    }
#pragma GCC unroll 16
    for (int v = 0; v < PANEL_VECTORS; ++v) store_real(p->sums[row] + v * LANES, sum[v]);
    p->taken[row] += p->inside[row];
}

static void add_panel(const struct sums *s, struct panel *p) {
    const int64_t last_row = p->first_row + p->rows;
    memcpy(p->taken, s->starts + p->first_row, (size_t)p->rows * sizeof *p->taken);
    memset(p->sums, 0, (size_t)p->rows * sizeof *p->sums);
    int64_t left = s->starts[last_row] - s->starts[p->first_row];
    for (int64_t first = 0; left; first += TILE) {
        left -= fill_tile(s, p, first);
        for (int64_t row = 0; row < p->rows; ++row)
            if (p->inside[row]) add_tile(s, p, first, row);
    }
    for (int64_t row = 0; row < p->rows; ++row) {
        float *sums = s->sums + (p->first_row + row) * s->width + p->column;
        memcpy(sums, p->sums[row], (size_t)p->columns * sizeof *sums);
    }
}

// Adds up panels until none is left.
void add_rows(struct sums *s) {
    struct panel p;
    const int64_t panels = (s->width + PANEL - 1) / PANEL, parts = (s->count + s->part - 1) / s->part;
    memset(p.tile, 0, sizeof p.tile);  // in a panel that is not full, the rest stays 0
    for (int64_t taken; (taken = taken_from(&s->next)) < parts * panels;) {
        p.column = taken % panels * PANEL;
        p.columns = s->width - p.column < PANEL ? s->width - p.column : PANEL;
        p.first_row = taken / panels * s->part;
        p.rows = s->count - p.first_row < s->part ? s->count - p.first_row : s->part;
        add_panel(s, &p);
    }
}
