// Softmax attention in bf16: products of pairs, summed in fp32, over blocks of keys with a running maximum and a
// running sum, as in FlashAttention. For CPUs that multiply vectors of bf16 (AVX-512 BF16: Cooper Lake, Zen 4).
// `build.py` compiles this together with `product.c`, `attention.py` calls it.
//
//     block of rows    ROWS query rows of a key-value head: all its query heads at a position, then at the next one
//     block of keys    the next KEYS keys that at least one of these rows sees
//     scores           [KEYS, ROWS]: a row keeps its lane, so maxima and sums need no sums across lanes
//     p                exp(score - row_max) in bf16, a row's for two keys in a word
//
// A product takes two neighbours along its sum from one word. Queries and keys are stored like that; the values of two
// keys are interleaved, once for each block of rows. Threads take the next block of rows from one counter; each block
// is computed in the same order by whichever thread takes it, so the same inputs give the same bits.

#include <stdint.h>

#if defined(__AVX512BF16__) && defined(__AVX512BW__)

#include <float.h>
#include <math.h>
#include <string.h>

#include "avx512.h"
#include "exponential.h"

enum {
    VECTORS = 3,
    ROWS = VECTORS * LANES,
    KEYS = 128,
    SCORED = 8,  // keys whose scores stay in registers: with VECTORS, 24 sums
    SUMMED = 6,  // rows whose outputs do: with PANEL_VECTORS, as many
    PANEL_VECTORS = 4,
    PANEL = PANEL_VECTORS * LANES,
    MAX_HEAD = 512,
    MASKED = 64  // keys of a mask that are read at once
};

const char *attention_instructions(void) { return "AVX-512 BF16"; }
int64_t attention_panel(void) { return PANEL; }
int64_t attention_max_head(void) { return MAX_HEAD; }

// Keys and values that lie together; strides in numbers. The same layout as `_Part` in Python, and so below.
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
    uint32_t q[MAX_HEAD / 2][ROWS];        // pairs along d
    float out[ROWS][MAX_HEAD];             // before its division by row_sum
    float scores[KEYS][ROWS];
    uint32_t p[KEYS / 2][ROWS];            // pairs of keys
    uint32_t values[MAX_HEAD * KEYS / 2];  // [d / PANEL, KEYS / 2, PANEL], pairs of keys
    float row_max[ROWS], row_sum[ROWS], alpha[ROWS];
    const uint16_t *key[KEYS], *value[KEYS];
    uint64_t seen[KEYS];  // a bit for each row
    int keys;             // so far, of this block of keys
    int rows;
    int64_t first_row, kv_head, group, d;
} __attribute__((aligned(64)));

static inline __m512bh pair_of(const void *at) {  // the same pair in all lanes
    int32_t pair;
    memcpy(&pair, at, sizeof pair);
    return (__m512bh)_mm512_set1_epi32(pair);
}

static inline __m512bh pairs_at(const uint32_t *at) { return (__m512bh)_mm512_load_si512(at); }

// Scores of all rows with SCORED keys, -inf where a row does not see one.
static void score(struct block *b, int first) {
    const uint16_t *const *keys = b->key + first;
    __m512 sum[SCORED][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < SCORED; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; ++v) sum[i][v] = _mm512_setzero_ps();
    for (int64_t pair = 0; pair < b->d / 2; ++pair) {
        __m512bh q[VECTORS];
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; ++v) q[v] = pairs_at(&b->q[pair][v * LANES]);
#pragma GCC unroll 8
        for (int i = 0; i < SCORED; ++i) {
            const __m512bh key = pair_of(keys[i] + 2 * pair);
#pragma GCC unroll 3
            for (int v = 0; v < VECTORS; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], q[v], key);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < SCORED; ++i)
#pragma GCC unroll 3
        for (int v = 0; v < VECTORS; ++v) {
            const __mmask16 seen = (__mmask16)(b->seen[first + i] >> (v * LANES));
            const __m512 unseen = _mm512_set1_ps(-INFINITY);
            _mm512_store_ps(&b->scores[first + i][v * LANES], _mm512_mask_mov_ps(unseen, seen, sum[i][v]));
        }
}

// Updates row_max and row_sum; sets p, and alpha, the factor of what was summed before.
static void softmax(struct block *b) {
    const __m512i interleaved =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                         23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    for (int lane = 0; lane < ROWS; lane += LANES) {
        const __m512 before = _mm512_load_ps(b->row_max + lane);
        __m512 row_max = before;
        for (int key = 0; key < b->keys; ++key)
            row_max = _mm512_max_ps(row_max, _mm512_load_ps(&b->scores[key][lane]));
        const __m512 alpha = exponential(_mm512_sub_ps(before, row_max));
        __m512 row_sum = _mm512_mul_ps(_mm512_load_ps(b->row_sum + lane), alpha);
        for (int key = 0; key < b->keys; key += 2) {
            const __m512 even = exponential(_mm512_sub_ps(_mm512_load_ps(&b->scores[key][lane]), row_max));
            const __m512 odd = exponential(_mm512_sub_ps(_mm512_load_ps(&b->scores[key + 1][lane]), row_max));
            row_sum = _mm512_add_ps(row_sum, _mm512_add_ps(even, odd));
            const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
            _mm512_store_si512(&b->p[key / 2][lane], _mm512_permutexvar_epi16(interleaved, both));
        }
        _mm512_store_ps(b->row_max + lane, row_max);
        _mm512_store_ps(b->row_sum + lane, row_sum);
        _mm512_store_ps(b->alpha + lane, alpha);
    }
}

// Interleaves the values of each two keys, one panel after another.
static void interleave_values(struct block *b) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,  //
                                         39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(LANES));
    for (int key = 0; key < b->keys; key += 2)
        for (int64_t at = 0; at < b->d; at += 2 * LANES) {
            const __m512i even = _mm512_loadu_si512(b->value[key] + at);
            const __m512i odd = _mm512_loadu_si512(b->value[key + 1] + at);
            uint32_t *to = b->values + (at / PANEL * (KEYS / 2) + key / 2) * PANEL + at % PANEL;
            _mm512_store_si512(to, _mm512_permutex2var_epi16(even, low, odd));
            _mm512_store_si512(to + LANES, _mm512_permutex2var_epi16(even, high, odd));
        }
}

// Adds p times the values of a panel to the outputs of SUMMED rows.
static void add_values(struct block *b, int row, int64_t at) {
    const uint32_t *panel = b->values + at * (KEYS / 2);
    __m512 sum[SUMMED][PANEL_VECTORS];
#pragma GCC unroll 6
    for (int i = 0; i < SUMMED; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; ++v)
            sum[i][v] = _mm512_mul_ps(_mm512_load_ps(&b->out[row + i][at + v * LANES]),
                                      _mm512_set1_ps(b->alpha[row + i]));
    for (int pair = 0; pair < b->keys / 2; ++pair) {
        __m512bh values[PANEL_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; ++v) values[v] = pairs_at(panel + pair * PANEL + v * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < SUMMED; ++i) {
            const __m512bh p = pair_of(&b->p[pair][row + i]);
#pragma GCC unroll 4
            for (int v = 0; v < PANEL_VECTORS; ++v) sum[i][v] = _mm512_dpbf16_ps(sum[i][v], p, values[v]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < SUMMED; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; ++v) _mm512_store_ps(&b->out[row + i][at + v * LANES], sum[i][v]);
}

// Attends to the keys that have been taken into the block, and empties it of them.
static void attend_keys(struct block *b) {
    if (!b->keys) return;
    for (; b->keys % SCORED; ++b->keys) {  // the last one again, which no row sees
        b->key[b->keys] = b->key[b->keys - 1];
        b->value[b->keys] = b->value[b->keys - 1];
        b->seen[b->keys] = 0;
    }
    for (int key = 0; key < b->keys; key += SCORED) score(b, key);
    softmax(b);
    interleave_values(b);
    for (int64_t at = 0; at < b->d; at += PANEL)
        for (int row = 0; row < b->rows; row += SUMMED) add_values(b, row, at);
    b->keys = 0;
}

static void take_key(struct block *b, const struct part *part, int64_t key, uint64_t seen) {
    b->key[b->keys] = part->keys + b->kv_head * part->key_head + key * part->key_row;
    b->value[b->keys] = part->values + b->kv_head * part->value_head + key * part->value_row;
    b->seen[b->keys] = seen;
    if (++b->keys == KEYS) attend_keys(b);
}

// Takes those of the next MASKED keys of a part that a row sees; `mask` points to the first of them.
static void take_seen(struct block *b, const struct attention *a, const struct part *part, int64_t first,
                      const uint8_t *mask) {
    const int64_t left = part->count - first;
    const __mmask64 inside = left < MASKED ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0;
    __mmask64 by_row[ROWS], any = 0, all = inside;
    for (int row = 0; row < b->rows; ++row) {
        const __m512i bytes = _mm512_maskz_loadu_epi8(inside, mask + (b->first_row + row) / b->group * a->mask_row);
        by_row[row] = _mm512_test_epi8_mask(bytes, bytes);
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
        const int64_t head = head_of(b, row < b->rows ? row : 0, &position);  // rows that are missing: the first again
        const uint16_t *q = a->q + head * a->q_head + position * a->q_row;
        for (int64_t pair = 0; pair < b->d / 2; ++pair) memcpy(&b->q[pair][row], q + 2 * pair, sizeof(uint32_t));
        memset(b->out[row], 0, (size_t)b->d * sizeof(float));
        b->row_max[row] = -FLT_MAX;  // not -inf, whose difference from itself is no number
        b->row_sum[row] = 0;
    }
    b->keys = 0;
}

static void end(const struct block *b, const struct attention *a) {
    for (int row = 0; row < b->rows; ++row) {
        int64_t position;
        const int64_t head = head_of(b, row, &position);
        uint16_t *out = a->out + (position * a->heads + head) * b->d;
        const float sum = b->row_sum[row];
        const __m512 factor = _mm512_set1_ps(sum == 0 ? 0 : 1 / sum);  // 0: it sees no key
        for (int64_t at = 0; at < b->d; at += LANES) {
            const __m512 value = _mm512_mul_ps(_mm512_load_ps(&b->out[row][at]), factor);
            _mm256_storeu_si256((__m256i *)(out + at), (__m256i)_mm512_cvtneps_pbh(value));
        }
    }
}

// Computes blocks of rows until none is left; any number of threads may be in here for the same attention.
void attend(struct attention *a) {
    struct block b;
    b.group = a->heads / a->kv_heads;
    b.d = a->d;
    const int64_t rows = a->rows * b.group, blocks = (rows + ROWS - 1) / ROWS;
    if (!blocks) return;
    for (;;) {
        const int64_t taken = __atomic_fetch_add(&a->next, 1, __ATOMIC_RELAXED);
        b.kv_head = taken / blocks;
        b.first_row = taken % blocks * ROWS;
        if (b.kv_head >= a->kv_heads) return;
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

#else  // other CPUs, where torch attends

const char *attention_instructions(void) { return ""; }
int64_t attention_panel(void) { return 1; }
int64_t attention_max_head(void) { return 0; }
void attend(void *attention) { (void)attention; }

#endif
