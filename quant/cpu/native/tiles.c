// Products through the tile registers of AMX (Sapphire Rapids and newer Xeons). The sums of a group are whole numbers,
// and are scaled and added as in `product.c`, so results have the same bits.
//
//     A    a group of sixteen rows of a weight: nf4 decoded, int8 as it is stored
//     B    the same group of up to sixteen rows of activations, a strip, four inputs of each row side by side
//     C    their sums, a row of the weight in each row of the tile
//
// While the sums of one group are being scaled, the next group is being multiplied.

#include "tiles.h"

#include <stddef.h>

#if defined(__AMX_INT8__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

// GCC's intrinsics for these do not tell it what memory they read and write.
#define CONFIGURE(shapes) __asm__ volatile("ldtilecfg %0" ::"m"(*(shapes)) : "memory")
#define SAVE_SHAPES(shapes) __asm__ volatile("sttilecfg %0" : "=m"(*(shapes))::"memory")
#define RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define LOAD(number, at, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #number ::"r"(at), "r"((int64_t)(stride)) : "memory")
#define STORE(number, at, stride) \
    __asm__ volatile("tilestored %%tmm" #number ", (%0,%1,1)" ::"r"(at), "r"((int64_t)(stride)) : "memory")
#define ADD_PRODUCT(sums, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #sums :::)
#define ZERO(number) __asm__ volatile("tilezero %%tmm" #number :::)

enum { SIDE = 16, MAX_STRIPS = MAX_ROWS / SIDE };  // rows of a tile; strips for which a weight is decoded once

// One group of a strip.
struct strip {
    whole codes[QUADS];  // the rows in its lanes
    real scale;
};

// The registers' shapes, as the CPU reads and writes them.
struct shapes {
    uint8_t palette, first_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

struct tiles {
    struct shapes before;   // of this thread, on which other code may rely
    int64_t weight, start;  // of the rows in the strips
    struct strip *strips;   // [in / 64, strips]
    float *scales;          // [16, in / 64], of a tile of the weight
};

static int are_allowed;

int64_t use_tiles(void) {
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };  // the system then saves 8 KB more for each thread
    are_allowed = syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
    return are_allowed;
}

struct tiles *begin_tiles(const struct product *p) {
    const int64_t groups = p->in / GROUP;
    struct tiles *tiles = are_allowed ? calloc(1, sizeof *tiles) : NULL;
    if (!tiles) return NULL;
    tiles->strips = aligned_alloc(64, (size_t)groups * MAX_STRIPS * sizeof *tiles->strips);
    tiles->scales = malloc((size_t)groups * SIDE * sizeof *tiles->scales);
    tiles->weight = -1;
    if (!tiles->strips || !tiles->scales) {
        free(tiles->strips);
        free(tiles->scales);
        free(tiles);
        return NULL;
    }
    struct shapes shapes = {.palette = 1};
    for (int i = 0; i < 3; ++i) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = SIDE;
    }
    SAVE_SHAPES(&tiles->before);
    CONFIGURE(&shapes);
    return tiles;
}

void end_tiles(struct tiles *tiles) {
    if (!tiles) return;
    if (tiles->before.palette)
        CONFIGURE(&tiles->before);
    else
        RELEASE();
    free(tiles->strips);
    free(tiles->scales);
    free(tiles);
}

// Transposes sixteen vectors of sixteen words.
static inline void transpose(whole v[SIDE]) {
    whole a[SIDE], b[SIDE];
    for (int i = 0; i < SIDE; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < SIDE; i += 4)
        for (int j = 0; j < 2; ++j) {
            b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + 2 + j]);
            b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + 2 + j]);
        }
    for (int half = 0; half < SIDE; half += 8)  // b[4 q + j] has words j, j + 4, j + 8, j + 12 of rows 4 q to 4 q + 3
        for (int j = 0; j < 4; ++j) {
            a[half + j] = _mm512_shuffle_i32x4(b[half + j], b[half + 4 + j], 0x88);
            a[half + 4 + j] = _mm512_shuffle_i32x4(b[half + j], b[half + 4 + j], 0xdd);
        }
    for (int j = 0; j < 4; ++j) {
        v[j] = _mm512_shuffle_i32x4(a[j], a[8 + j], 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(a[j], a[8 + j], 0xdd);
        v[4 + j] = _mm512_shuffle_i32x4(a[4 + j], a[12 + j], 0x88);
        v[12 + j] = _mm512_shuffle_i32x4(a[4 + j], a[12 + j], 0xdd);
    }
}

static int strips_of(int count) { return (count + SIDE - 1) / SIDE; }

// Packs `count` rows from `start` on into strips, unless they are there; lanes without a row get zeros.
static void pack(struct tiles *tiles, const struct product *p, int64_t weight, int64_t start, int count) {
    if (tiles->weight == weight && tiles->start == start) return;
    const int64_t groups = p->in / GROUP;
    const struct group *rows[MAX_ROWS];
    for (int m = 0; m < count; ++m) rows[m] = groups_of(p, start + m);
    struct strip *to = tiles->strips;
    for (int64_t group = 0; group < groups; ++group)
        for (int first = 0; first < count; first += SIDE, ++to) {
            float scales[SIDE] = {0};
            for (int lane = 0; lane < SIDE; ++lane) {
                const struct group *from = first + lane < count ? rows[first + lane] + group : NULL;
                to->codes[lane] = from ? _mm512_loadu_si512(from->codes) : _mm512_setzero_si512();
                if (from) scales[lane] = from->scale;
            }
            transpose(to->codes);
            to->scale = load_real(scales);
        }
    tiles->weight = weight;
    tiles->start = start;
}

static inline void load_nf4(const uint8_t *codes, int64_t stride, whole table) {
    const whole halves = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_setzero_si256(), 1);
    whole levels[SIDE];
    for (int n = 0; n < SIDE; ++n) {  // 32 high codes, then the 32 low ones of the same bytes
        const whole twice = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)(codes + n * stride)));
        levels[n] = looked_up(table, low_codes(_mm512_srlv_epi16(twice, halves)));
    }
    LOAD(1, levels, 64);
}

// Adds the sums of a group, times both scales, to those of the groups before it.
static inline __attribute__((always_inline)) void add(const whole of_group[SIDE], const float *scales, int64_t groups,
                                                      real scale, real sums[SIDE]) {
#pragma GCC unroll 16
    for (int n = 0; n < SIDE; ++n)
        sums[n] = plus_product(sums[n], times(to_real(of_group[n]), real_of(scales[n * groups])), scale);
}

// Sixteen rows of a weight times `strips` strips, which is a constant wherever this is inlined.
static inline __attribute__((always_inline)) void tile(const struct tiles *tiles, const struct product *p,
                                                       const uint8_t *codes, real sums[][SIDE], const int strips) {
    const int64_t groups = p->in / GROUP, group_bytes = code_bytes(p, GROUP), stride = groups * group_bytes;
    const uint8_t *next_tile = codes + SIDE * stride;
    const whole table = p->levels ? shifted(table_of(p->levels)) : whole_of(0);
    whole of_groups[2][MAX_STRIPS][SIDE];
    for (int s = 0; s < strips; ++s)
        for (int n = 0; n < SIDE; ++n) sums[s][n] = real_of(0.0F);
    for (int64_t group = 0; group <= groups; ++group) {
        if (group < groups) {
            prefetch(next_tile + group * SIDE * group_bytes, SIDE * group_bytes);
            if (p->levels)
                load_nf4(codes + group * group_bytes, stride, table);
            else
                LOAD(1, codes + group * group_bytes, stride);
            for (int s = 0; s < strips; ++s) {
                ZERO(0);
                LOAD(2, tiles->strips[group * strips + s].codes, 64);
                ADD_PRODUCT(0, 1, 2);
                STORE(0, of_groups[group & 1][s], 64);
            }
        }
        if (group)
            for (int s = 0; s < strips; ++s)
                add(of_groups[(group - 1) & 1][s], tiles->scales + group - 1, groups,
                    tiles->strips[(group - 1) * strips + s].scale, sums[s]);
    }
}

// Stores results [count, 16] from sums with a row in each lane.
static void store_all(const struct product *p, int64_t at, int count, real sums[SIDE]) {
    whole words[SIDE];
    for (int n = 0; n < SIDE; ++n) words[n] = _mm512_castps_si512(sums[n]);
    transpose(words);
    for (int m = 0; m < count; ++m) store(p, at + m * p->out, _mm512_castsi512_ps(words[m]));
}

#define STRIPS_OF(count)                      \
    case count:                               \
        tile(tiles, p, codes, sums, count);   \
        break

void block_of_tiles(struct tiles *tiles, const struct product *p, int64_t weight, int64_t first, int64_t last) {
    const int64_t groups = p->in / GROUP, end = p->starts[weight + 1];
    real sums[MAX_STRIPS][SIDE];
    for (int64_t start = p->starts[weight]; start < end; start += MAX_ROWS) {
        const int count = (int)(end - start < MAX_ROWS ? end - start : MAX_ROWS);
        pack(tiles, p, weight, start, count);
        for (int64_t n = first; n < last; n += SIDE) {
            const int64_t row = weight * p->out + n;
            for (int64_t at = 0; at < SIDE * groups; ++at) tiles->scales[at] = from_bf16(p->scales[row * groups + at]);
            const uint8_t *codes = p->codes + row * code_bytes(p, p->in);
            switch (strips_of(count)) {
                STRIPS_OF(1);
                STRIPS_OF(2);
                STRIPS_OF(3);
                STRIPS_OF(4);
                STRIPS_OF(5);
                STRIPS_OF(6);
                STRIPS_OF(7);
                STRIPS_OF(8);
            }
            for (int m = 0; m < count; m += SIDE)
                store_all(p, (start + m) * p->out + n, count - m < SIDE ? count - m : SIDE, sums[m / SIDE]);
        }
    }
}

#else

int64_t use_tiles(void) { return 0; }
struct tiles *begin_tiles(const struct product *p) { return (void)p, NULL; }
void end_tiles(struct tiles *tiles) { (void)tiles; }
void block_of_tiles(struct tiles *tiles, const struct product *p, int64_t weight, int64_t first, int64_t last) {
    (void)tiles, (void)p, (void)weight, (void)first, (void)last;
}

#endif
