// Rows of activations in int8 times quantized weights, which are read as they are stored: nf4 or int8 codes in groups of
// 64 along their input, and a bf16 scale for each group. `build.py` compiles this for the CPU that it is to run on,
// `library.py` calls it.
//
//     tile      LANES rows of a weight, one in each lane of a vector
//     levels    a group of a tile, decoded: 16 vectors, each with four inputs of every row
//     strip     up to STRIP rows of activations, whose sums for a group stay in registers
//
// The products of a group are summed as whole numbers, exactly. That sum is multiplied by both scales and added in fp32,
// group after group, so the same rows give the same bits however the work was shared out. Threads take the next block
// of tiles from one counter, and a core with less time takes fewer of them. Where there are tile registers, `tiles.c`
// computes the same for MIN_ROWS_OF_TILES rows or more.

#include <string.h>

#include "counter.h"
#include "product.h"
#include "tiles.h"

enum { STRIP = 8, BLOCK = 128, CHUNK = 8, MIN_ROWS_OF_TILES = 5 };

const char *instructions(void) { return INSTRUCTIONS; }
int64_t lanes(void) { return LANES; }
int64_t max_inputs(void) { return MAX_GROUPS * GROUP; }

// Rows to be quantized. The same layout as `_Rows` in Python.
struct rows {
    const void *x;         // [count, in], fp32 or bf16
    struct group *groups;  // [count, in / 64]
    int64_t count, in;
    int64_t is_bf16;
    int64_t is_nf4;  // whether they will be multiplied by nf4 codes, two in a byte
    int64_t next;    // the first chunk of CHUNK rows that nobody has taken; 0 at first
};

// The whole number nearest to a value within ±2^22, halves to even, by adding 1.5 · 2^23.
static inline int32_t rounded(float value) {
    const float moved = value + 12582912.0F;
    int32_t bits;
    memcpy(&bits, &moved, sizeof bits);
    return bits - 0x4b400000;
}

// A group as codes of -127 to 127 and their scale. If a value is not finite, the scale is NaN, and so are all products
// with the group.
static void quantize_group(const float values[GROUP], int is_nf4, struct group *to) {
    uint32_t peak_bits = 0;
    for (int k = 0; k < GROUP; ++k) {
        uint32_t bits;
        memcpy(&bits, &values[k], sizeof bits);
        bits &= 0x7fffffff;
        peak_bits = bits > peak_bits ? bits : peak_bits;
    }
    float peak;
    memcpy(&peak, &peak_bits, sizeof peak);
    const int is_finite = peak_bits < 0x7f800000;
    const float scale = peak / 127.0F, inverse = is_finite && scale > 0x1p-120F ? 1.0F / scale : 0.0F;
    int8_t codes[GROUP];
    int32_t sum = 0;
    for (int k = 0; k < GROUP; ++k) {
        const int32_t code = is_finite ? rounded(values[k] * inverse) : 0;
        sum += code;
        codes[k] = (int8_t)code;
    }
    to->scale = is_finite ? scale / (is_nf4 ? 127.0F : 1.0F) : __builtin_nanf("");
    to->offset = -SHIFT * sum;
    if (is_nf4) {  // a byte holds an even input in its high half and the next one in its low half
        int8_t apart[GROUP];
        for (int k = 0; k < GROUP / 2; ++k) {
            apart[k] = codes[2 * k];
            apart[GROUP / 2 + k] = codes[2 * k + 1];
        }
        memcpy(to->codes, apart, sizeof apart);
    } else {
        memcpy(to->codes, codes, sizeof codes);
    }
}

// Quantizes rows until none is left; any number of threads may run this for the same rows.
void quantize(struct rows *rows) {
    const int64_t groups = rows->in / GROUP;
    for (int64_t first; (first = CHUNK * taken_from(&rows->next)) < rows->count;) {
        const int64_t last = first + CHUNK < rows->count ? first + CHUNK : rows->count;
        for (int64_t at = first * groups; at < last * groups; ++at) {
            float values[GROUP];
            if (rows->is_bf16)
                for (int k = 0; k < GROUP; ++k) values[k] = from_bf16(((const uint16_t *)rows->x)[at * GROUP + k]);
            else
                memcpy(values, (const float *)rows->x + at * GROUP, sizeof values);
            quantize_group(values, rows->is_nf4 != 0, rows->groups + at);
        }
    }
}

static inline void decode_nf4(const uint8_t *codes, int64_t stride, whole table, level levels[QUADS],
                              whole *left_out) {
    whole bytes[8];
    transposed(codes, stride, bytes);
    for (int i = 0; i < 8; ++i) {
        levels[i] = level_of(looked_up(table, high_codes(bytes[i])), left_out);
        levels[8 + i] = level_of(looked_up(table, low_codes(bytes[i])), left_out);
    }
}

static inline void decode_int8(const uint8_t *codes, int64_t stride, level levels[QUADS], whole *left_out) {
    for (int half = 0; half < 2; ++half) {
        whole bytes[8];
        transposed(codes + 32 * half, stride, bytes);
        for (int i = 0; i < 8; ++i) levels[8 * half + i] = level_of(shifted(bytes[i]), left_out);
    }
}

// Adds a group of a tile times `count` rows to their sums; `count` is a constant wherever this is inlined.
static inline __attribute__((always_inline)) void strip(const level levels[QUADS], whole left_out, real scale,
                                                        const struct group *const *rows, int64_t group, real *sums,
                                                        const int count) {
    const struct group *x[STRIP];
    whole sum[STRIP];
#pragma GCC unroll 8
    for (int m = 0; m < count; ++m) {
        x[m] = rows[m] + group;
        sum[m] = whole_of(SHIFT ? x[m]->offset : 0);
    }
#pragma GCC unroll UNROLLED
    for (int quad = 0; quad < QUADS; ++quad) {
        const level four = levels[quad];
#pragma GCC unroll 8
        for (int m = 0; m < count; ++m) sum[m] = dot(sum[m], four, &x[m]->codes[quad]);
    }
#pragma GCC unroll 8
    for (int m = 0; m < count; ++m)
        sums[m] = plus_product(sums[m], times(to_real(completed(sum[m], left_out)), scale), real_of(x[m]->scale));
}

#define STRIP_OF(count)                                                   \
    case count:                                                           \
        strip(levels, left_out, scale, rows + m, group, sums + m, count); \
        break

// A tile times up to MAX_ROWS rows.
static void tile(const struct product *p, const uint8_t *codes, const float *scales, const struct group *const *rows,
                 int count, real *sums) {
    const int64_t groups = p->in / GROUP, group_bytes = code_bytes(p, GROUP), stride = groups * group_bytes;
    const uint8_t *next_tile = codes + LANES * stride;
    const whole table = p->levels ? table_of(p->levels) : whole_of(0);
    const int strips = (count + STRIP - 1) / STRIP, most = (count + strips - 1) / strips;  // rows of a strip
    for (int m = 0; m < count; ++m) sums[m] = real_of(0.0F);
    for (int64_t group = 0; group < groups; ++group) {
        prefetch(next_tile + group * LANES * group_bytes, LANES * group_bytes);
        level levels[QUADS];
        whole left_out = whole_of(0);
        if (p->levels)
            decode_nf4(codes + group * group_bytes, stride, table, levels, &left_out);
        else
            decode_int8(codes + group * group_bytes, stride, levels, &left_out);
        const real scale = load_real(scales + group * LANES);
        for (int m = 0; m < count; m += most) {
            switch (count - m < most ? count - m : most) {
                STRIP_OF(1);
                STRIP_OF(2);
                STRIP_OF(3);
                STRIP_OF(4);
                STRIP_OF(5);
                STRIP_OF(6);
                STRIP_OF(7);
                STRIP_OF(8);
            }
        }
    }
}

// Rows `first` up to `last` of a weight, a tile at a time.
static void block(const struct product *p, int64_t weight, int64_t first, int64_t last) {
    const int64_t groups = p->in / GROUP, end = p->starts[weight + 1];
    float scales[MAX_GROUPS * LANES] __attribute__((aligned(64)));
    real sums[MAX_ROWS];
    const struct group *rows[MAX_ROWS];
    for (int64_t start = p->starts[weight]; start < end; start += MAX_ROWS) {
        const int count = (int)(end - start < MAX_ROWS ? end - start : MAX_ROWS);
        for (int m = 0; m < count; ++m) rows[m] = groups_of(p, start + m);
        for (int64_t n = first; n < last; n += LANES) {
            const int64_t row = weight * p->out + n;
            for (int lane = 0; lane < LANES; ++lane)
                for (int64_t group = 0; group < groups; ++group)
                    scales[group * LANES + lane] = from_bf16(p->scales[(row + lane) * groups + group]);
            tile(p, p->codes + row * code_bytes(p, p->in), scales, rows, count, sums);
            for (int m = 0; m < count; ++m) store(p, (start + m) * p->out + n, sums[m]);
        }
    }
}

// Computes blocks of a product until none is left; any number of threads may run this for the same product.
void multiply(struct product *p) {
    const int64_t blocks = (p->out + BLOCK - 1) / BLOCK;
    struct tiles *tiles = begin_tiles(p);
    for (int64_t taken; (taken = taken_from(&p->next)) < p->weights * blocks;) {
        const int64_t weight = taken / blocks, first = taken % blocks * BLOCK;
        const int64_t last = first + BLOCK < p->out ? first + BLOCK : p->out;
        if (tiles && p->starts[weight + 1] - p->starts[weight] >= MIN_ROWS_OF_TILES)
            block_of_tiles(tiles, p, weight, first, last);
        else
            block(p, weight, first, last);
    }
    end_tiles(tiles);
}
