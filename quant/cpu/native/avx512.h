// Vectors of 512 bits: sixteen rows of a weight side by side, products by VNNI (Cascade Lake, Ice Lake, Zen 4).

#include <immintrin.h>

#define FMA_INSTRUCTIONS "AVX-512 FMA"

#define INSTRUCTIONS "AVX-512 VNNI"
enum { LANES = 16, SHIFT = 128, MAX_ROWS = 128, UNROLLED = 16 };  // SHIFT: added to the levels, which are unsigned

typedef __m512i whole;  // LANES sums, or LANES times four bytes
typedef __m512 real;

static inline whole whole_of(int32_t number) { return _mm512_set1_epi32(number); }
// As in `avx2.h`.
typedef whole level;
static inline level level_of(whole bytes, whole *left_out) { return (void)left_out, bytes; }
static inline whole completed(whole sum, whole left_out) { return (void)left_out, sum; }
#ifdef __AVX512VNNI__
// GCC would load and broadcast x in a separate instruction, and a product would take about a tenth longer.
static inline whole dot(whole sum, level four, const int32_t *x) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(four), "m"(*x));
    return sum;
}
#endif

static inline real real_of(float number) { return _mm512_set1_ps(number); }
static inline real load_real(const float *at) { return _mm512_loadu_ps(at); }
static inline real load_bf16(const uint16_t *at) {
    const whole upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(upper, 16));
}
static inline void store_real(float *at, real value) { _mm512_storeu_ps(at, value); }
static inline void store_bf16(uint16_t *at, real value) {  // to the nearest, halves to even
    const whole bits = _mm512_castps_si512(value), last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), whole_of(1));
    const whole rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, whole_of(0x7fff)), last), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const whole upper = _mm512_mask_mov_epi32(rounded, is_nan, whole_of(0x7fc0));
    _mm256_storeu_si256((__m256i *)at, _mm512_cvtepi32_epi16(upper));
}
static inline real to_real(whole value) { return _mm512_cvtepi32_ps(value); }
static inline real plus(real a, real b) { return _mm512_add_ps(a, b); }
static inline real minus(real a, real b) { return _mm512_sub_ps(a, b); }
static inline real times(real a, real b) { return _mm512_mul_ps(a, b); }
static inline real over(real a, real b) { return _mm512_div_ps(a, b); }
static inline real plus_product(real sum, real a, real b) { return _mm512_fmadd_ps(a, b, sum); }
static inline real larger(real a, real b) { return _mm512_max_ps(a, b); }   // b if either is NaN
static inline real smaller(real a, real b) { return _mm512_min_ps(a, b); }  // the same
static inline real where_less(real a, real b, real then, real otherwise) {
    return _mm512_mask_mov_ps(otherwise, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), then);
}
static inline real where_bit(uint32_t bits, real then, real otherwise) {
    return _mm512_mask_mov_ps(otherwise, (__mmask16)bits, then);
}
static inline real nearest(real value) { return _mm512_roundscale_ps(value, 0); }  // to the nearest whole number
static inline real times_power_of_two(real value, real n) { return _mm512_scalef_ps(value, n); }  // n from -126 to 127

static inline whole low_codes(whole bytes) { return _mm512_and_si512(bytes, _mm512_set1_epi8(15)); }
static inline whole high_codes(whole bytes) {
    return _mm512_and_si512(_mm512_srli_epi16(bytes, 4), _mm512_set1_epi8(15));
}
static inline whole shifted(whole codes) { return _mm512_xor_si512(codes, _mm512_set1_epi8((char)SHIFT)); }
static inline whole table_of(const int8_t *levels) {
    return shifted(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)levels)));
}
static inline whole looked_up(whole table, whole codes) { return _mm512_shuffle_epi8(table, codes); }

// 32 bytes of each of sixteen rows, `stride` bytes apart, to eight vectors: four bytes of every row each.
static inline void transposed(const uint8_t *rows, int64_t stride, whole out[8]) {
    whole pair[8], two[8], four[8];
    for (int i = 0; i < 8; ++i) {
        const uint8_t *row = rows + (i / 4 * 8 + i % 4) * stride;
        pair[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)row)),
                                     _mm256_loadu_si256((const __m256i *)(row + 4 * stride)), 1);
    }
    for (int i = 0; i < 8; i += 2) {
        two[i] = _mm512_unpacklo_epi32(pair[i], pair[i + 1]);
        two[i + 1] = _mm512_unpackhi_epi32(pair[i], pair[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; ++j) {
            four[i + 2 * j] = _mm512_unpacklo_epi64(two[i + j], two[i + 2 + j]);
            four[i + 2 * j + 1] = _mm512_unpackhi_epi64(two[i + j], two[i + 2 + j]);
        }
    }
    for (int j = 0; j < 4; ++j) {
        out[j] = _mm512_shuffle_i32x4(four[j], four[4 + j], 0x88);
        out[4 + j] = _mm512_shuffle_i32x4(four[j], four[4 + j], 0xdd);
    }
}
