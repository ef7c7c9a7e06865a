// Softmax attention in bf16, summed in fp32 over blocks of keys with a running maximum and a running sum, as in
// FlashAttention. `build.py` compiles this together with `product.c`, `attention.py` calls it.
//
//     block of rows    ROWS query rows of a key-value head: all its query heads at a position, then at the next one
//     block of keys    the next KEYS keys that at least one of these rows sees
//     scores           [KEYS, ROWS]: a row keeps its lane, so maxima and sums need no sums across lanes
//     p                exp(score - row_max), of one key or, in bf16, of two keys in a word
//
// `words.h` says what a word is. Words of queries are made once for each block of rows, words of keys and values once
// for each pair of blocks. Threads take the next block of rows from one counter; each block is computed in the same
// order by whichever thread takes it, so the same inputs give the same bits.

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "counter.h"
#include "words.h"

#include "exponential.h"

enum {
    ROWS = 48,
    VECTORS = LANES == 16 ? 3 : 2,
    SCORED = LANES == 16 ? 8 : 6,  // keys whose scores stay in registers: with VECTORS, 24 sums, or 12 of 256 bits
    SUMMED = 6,                    // rows whose outputs stay in registers: with PANEL_VECTORS, as many sums
    PANEL_VECTORS = LANES / 4,
    KEYS = 8 * SCORED * IN_WORD,
    PANEL = 64,  // columns of values, whose words for a block of keys stay in an L1 cache
    MAX_HEAD = 512,
    MASKED = 64  // keys of a mask that are read at once
};

const char *attention_instructions(void) { return ATTENTION_INSTRUCTIONS; }
int64_t attention_is_in_bf16(void) { return IN_WORD == 2; }
int64_t attention_panel(void) { return PANEL; }
int64_t attention_max_head(void) { return MAX_HEAD; }

// Keys and values of the same positions; strides count numbers. Layouts as in Python: of `_Part`, then `_Attention`.
struct part {
    const uint16_t *keys, *values;  // bf16 [K, count, d]
    int64_t count, key_head, key_row, value_head, value_row;
};

struct attention {
    const uint16_t *q;    // bf16 [H, rows, d]
    uint16_t *out;        // bf16 [rows, H, d], contiguous
    const uint8_t *mask;  // bool [rows, T], true where a row sees a key, over the keys of both parts; null: all see all
    struct part parts[2];
    int64_t heads, kv_heads, rows, d, q_head, q_row, mask_row;
    int64_t next;  // the first block of rows that nobody has taken; 0 at first
};

// A block of rows, as a thread computes it.
struct block {
    word q[MAX_HEAD / IN_WORD][ROWS];
    word keys[SCORED][MAX_HEAD / IN_WORD];
    word p[KEYS / IN_WORD][ROWS];
    word values[KEYS / IN_WORD][PANEL];
    float out[ROWS][MAX_HEAD];  // before its division by row_sum
    float scores[KEYS][ROWS];
    float row_max[ROWS], row_sum[ROWS], alpha[ROWS];
    const uint16_t *key[KEYS], *value[KEYS];
    uint64_t seen[KEYS];  // a bit for each row
    int count;            // keys so far in this block of keys
    int rows;
    int64_t first_row, kv_head, group, d;
} __attribute__((aligned(64)));

// Scores of all rows with SCORED keys.
static void score(struct block *b, int first) {
    const word *keys[SCORED];
    for (int i = 0; i < SCORED; ++i) keys[i] = words_of(b->key[first + i], b->d, b->keys[i]);
    for (int lane = 0; lane < ROWS; lane += VECTORS * LANES) {
        real sum[SCORED][VECTORS];
#pragma GCC unroll 8
        for (int i = 0; i < SCORED; ++i)
#pragma GCC unroll 3
            for (int v = 0; v < VECTORS; ++v) sum[i][v] = real_of(0);
        for (int64_t at = 0; at < b->d / IN_WORD; ++at) {
            words q[VECTORS];
#pragma GCC unroll 3
            for (int v = 0; v < VECTORS; ++v) q[v] = words_at(&b->q[at][lane + v * LANES]);
#pragma GCC unroll 8
            for (int i = 0; i < SCORED; ++i) {
                const words key = everywhere(keys[i] + at);
#pragma GCC unroll 3
                for (int v = 0; v < VECTORS; ++v) sum[i][v] = plus_words(sum[i][v], q[v], key);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < SCORED; ++i)
#pragma GCC unroll 3
            for (int v = 0; v < VECTORS; ++v) store_real(&b->scores[first + i][lane + v * LANES], sum[i][v]);
    }
}

// Updates row_max and row_sum; sets p, and alpha, the factor of what was summed before.
static void softmax(struct block *b) {
    for (int lane = 0; lane < ROWS; lane += LANES) {
        const real before = load_real(b->row_max + lane);
        real row_max = before;
        for (int key = 0; key < b->count; ++key) {
            float *at = &b->scores[key][lane];
            const real seen = where_bit((uint32_t)(b->seen[key] >> lane), load_real(at), real_of(-INFINITY));
            store_real(at, seen);
            row_max = larger(row_max, seen);
        }
        const real alpha = exponential(minus(before, row_max));
        real row_sum = times(load_real(b->row_sum + lane), alpha);
        for (int key = 0; key < b->count; key += 2) {
            const real even = exponential(minus(load_real(&b->scores[key][lane]), row_max));
            const real odd = exponential(minus(load_real(&b->scores[key + 1][lane]), row_max));
            row_sum = plus(row_sum, plus(even, odd));
            store_words(&b->p[key / IN_WORD][lane], ROWS, even, odd);
        }
        store_real(b->row_max + lane, row_max);
        store_real(b->row_sum + lane, row_sum);
        store_real(b->alpha + lane, alpha);
    }
}

// Adds p times columns of a panel of values to the outputs of SUMMED rows; `out` points to the first of these outputs.
static void add_values(const struct block *b, int row, int column, float *out) {
    real sum[SUMMED][PANEL_VECTORS];
#pragma GCC unroll 6
    for (int i = 0; i < SUMMED; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; ++v)
            sum[i][v] = times(load_real(out + i * MAX_HEAD + v * LANES), real_of(b->alpha[row + i]));
    for (int at = 0; at < b->count / IN_WORD; ++at) {
        words values[PANEL_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; ++v) values[v] = words_at(&b->values[at][column + v * LANES]);
#pragma GCC unroll 6
        for (int i = 0; i < SUMMED; ++i) {
            const words p = everywhere(&b->p[at][row + i]);
#pragma GCC unroll 4
            for (int v = 0; v < PANEL_VECTORS; ++v) sum[i][v] = plus_words(sum[i][v], p, values[v]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < SUMMED; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; ++v) store_real(out + i * MAX_HEAD + v * LANES, sum[i][v]);
}

// Attends to the keys in the block, and removes them from it.
static void attend_keys(struct block *b) {
    if (!b->count) return;
    for (; b->count % SCORED; ++b->count) {  // the last key again, seen by no row
        b->key[b->count] = b->key[b->count - 1];
        b->value[b->count] = b->value[b->count - 1];
        b->seen[b->count] = 0;
    }
    for (int key = 0; key < b->count; key += SCORED) score(b, key);
    softmax(b);
    for (int64_t panel = 0; panel < b->d; panel += PANEL) {
        for (int key = 0; key < b->count; key += 2)
            copy_words(b->values[key / IN_WORD], PANEL, b->value[key] + panel, b->value[key + 1] + panel);
        for (int column = 0; column < PANEL; column += PANEL_VECTORS * LANES)
            for (int row = 0; row < b->rows; row += SUMMED) add_values(b, row, column, &b->out[row][panel + column]);
    }
    b->count = 0;
}

static void take_key(struct block *b, const struct part *part, int64_t key, uint64_t seen) {
    b->key[b->count] = part->keys + b->kv_head * part->key_head + key * part->key_row;
    b->value[b->count] = part->values + b->kv_head * part->value_head + key * part->value_row;
    b->seen[b->count] = seen;
    if (++b->count == KEYS) attend_keys(b);
}

// A bit for each of up to MASKED keys, from their bytes.
static inline uint64_t bits_of(const uint8_t *mask, int64_t count) {
    uint8_t inside[MASKED] = {0};
    if (count < MASKED) mask = memcpy(inside, mask, (size_t)count);
    uint64_t bits = 0;
    for (int half = 0; half < 2; ++half) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(mask + 32 * half));
        const __m256i is_zero = _mm256_cmpeq_epi8(bytes, _mm256_setzero_si256());
        bits |= (uint64_t)~(uint32_t)_mm256_movemask_epi8(is_zero) << 32 * half;
    }
    return bits;
}

// Takes the keys that any row sees of the next MASKED keys of a part; `mask` points to the first of the MASKED.
static void take_seen(struct block *b, const struct attention *a, const struct part *part, int64_t first,
                      const uint8_t *mask) {
    uint64_t by_row[ROWS], any = 0, all = ~(uint64_t)0;
    for (int row = 0; row < b->rows; ++row) {
        by_row[row] = bits_of(mask + (b->first_row + row) / b->group * a->mask_row, part->count - first);
        any |= by_row[row];
        all &= by_row[row];
    }
    for (; any; any &= any - 1) {
        const int bit = __builtin_ctzll(any);
        uint64_t seen = all >> bit & 1 ? ~(uint64_t)0 : 0;
        if (!seen)
            for (int row = 0; row < b->rows; ++row) seen |= (by_row[row] >> bit & 1) << row;
        take_key(b, part, first + bit, seen);
    }
}

// The query head of a block's row, and in `position` its place among the rows of `attention`.
static inline int64_t head_of(const struct block *b, int row, int64_t *position) {
    *position = (b->first_row + row) / b->group;
    return b->kv_head * b->group + (b->first_row + row) % b->group;
}

static void begin(struct block *b, const struct attention *a) {
    for (int row = 0; row < ROWS; ++row) {
        int64_t position;
        const int64_t head = head_of(b, row < b->rows ? row : 0, &position);  // missing rows repeat the first
        const uint16_t *q = a->q + head * a->q_head + position * a->q_row;
        for (int64_t at = 0; at < b->d / IN_WORD; ++at) b->q[at][row] = word_of(q + at * IN_WORD);
        memset(b->out[row], 0, (size_t)b->d * sizeof(float));
        b->row_max[row] = -FLT_MAX;  // not -inf, whose difference from itself is NaN
        b->row_sum[row] = 0;
    }
    b->count = 0;
}

static void end(const struct block *b, const struct attention *a) {
    for (int row = 0; row < b->rows; ++row) {
        int64_t position;
        const int64_t head = head_of(b, row, &position);
        uint16_t *out = a->out + (position * a->heads + head) * b->d;
        const float sum = b->row_sum[row];
        const real factor = real_of(sum == 0 ? 0 : 1 / sum);  // 0: the row sees no key
        for (int64_t at = 0; at < b->d; at += LANES) store_bf16(out + at, times(load_real(&b->out[row][at]), factor));
    }
}

// Computes blocks of rows until none is left; any number of threads may run this for the same attention.
void attend(struct attention *a) {
    struct block b;
    b.group = a->heads / a->kv_heads;
    b.d = a->d;
    const int64_t rows = a->rows * b.group, blocks = (rows + ROWS - 1) / ROWS;
    for (int64_t taken; (taken = taken_from(&a->next)) < a->kv_heads * blocks;) {
        b.kv_head = taken / blocks;
        b.first_row = taken % blocks * ROWS;
        b.rows = (int)(rows - b.first_row < ROWS ? rows - b.first_row : ROWS);
        begin(&b, a);
        const uint8_t *mask = a->mask;
        for (const struct part *part = a->parts; part < a->parts + 2; ++part) {
            if (mask)
                for (int64_t key = 0; key < part->count; key += MASKED) take_seen(&b, a, part, key, mask + key);
            else
                for (int64_t key = 0; key < part->count; ++key) take_key(&b, part, key, ~(uint64_t)0);
            if (mask) mask += part->count;
        }
        attend_keys(&b);
        end(&b, a);
    }
}
