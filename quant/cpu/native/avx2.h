// Vectors of 256 bits: eight rows of a weight side by side, products by VNNI if available (Alder Lake and newer
// Core CPUs), else by multiplications of bytes (Haswell and Zen, and newer).

#include <immintrin.h>

#define FMA_INSTRUCTIONS "AVX2 FMA"

enum { LANES = 8 };

typedef __m256i whole;  // LANES sums, or LANES times four bytes
typedef __m256 real;

// A `level` is four bytes of each row as `dot` takes them. `dot` leaves an amount out of sums that does not depend on
// x: `level_of` adds it up in `left_out`, and `completed` adds it to the sum.
#ifdef __AVXVNNI__
#define INSTRUCTIONS "AVX-VNNI"
enum { SHIFT = 128, MAX_ROWS = 128, UNROLLED = 16 };  // SHIFT: added to the levels, which are unsigned
typedef whole level;
static inline level level_of(whole bytes, whole *left_out) { return (void)left_out, bytes; }
static inline whole completed(whole sum, whole left_out) { return (void)left_out, sum; }
static inline whole dot(whole sum, level four, const int32_t *x) {
    return _mm256_dpbusd_avx_epi32(sum, four, _mm256_set1_epi32(*x));
}
#else
#define INSTRUCTIONS "AVX2"
enum { SHIFT = 0, MAX_ROWS = 64, UNROLLED = 8 };  // 64 rows of 2,816 codes leave room in an L2 cache of 512 KB
// The first factor of `maddubs` is unsigned, so the level's sign goes to the other one. Where a level is negative, all
// bits of x are inverted. That gives -x - 1 and so leaves out the level's magnitude; `sign` would give -x, but competes
// with the products for execution units (on Zen 3, for both). Sums of two products stay within 16 bits: no level is
// beyond 128, and no activation beyond 127, or -128 where it is inverted.
typedef struct {
    whole magnitude, is_negative;
} level;
static inline level level_of(whole bytes, whole *left_out) {
    const level four = {_mm256_abs_epi8(bytes), _mm256_cmpgt_epi8(_mm256_setzero_si256(), bytes)};
    *left_out = _mm256_sub_epi16(*left_out, _mm256_maddubs_epi16(four.magnitude, four.is_negative));
    return four;
}
static inline whole completed(whole sum, whole left_out) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(left_out, _mm256_set1_epi16(1)));
}
// If GCC were free to reorder the additions, it would keep more products for later than fit into registers; so an empty
// instruction claims to change the sum here.
static inline whole dot(whole sum, level four, const int32_t *x) {
    const whole turned = _mm256_xor_si256(_mm256_set1_epi32(*x), four.is_negative);
    const whole pairs = _mm256_maddubs_epi16(four.magnitude, turned);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    __asm__("" : "+x"(sum));
    return sum;
}
#endif

static inline whole whole_of(int32_t number) { return _mm256_set1_epi32(number); }

static inline real real_of(float number) { return _mm256_set1_ps(number); }
static inline real load_real(const float *at) { return _mm256_loadu_ps(at); }
static inline real load_bf16(const uint16_t *at) {
    const whole upper = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)at));
    return _mm256_castsi256_ps(_mm256_slli_epi32(upper, 16));
}
static inline void store_real(float *at, real value) { _mm256_storeu_ps(at, value); }
static inline void store_bf16(uint16_t *at, real value) {  // to the nearest, halves to even
    const whole bits = _mm256_castps_si256(value), last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), whole_of(1));
    const whole rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, whole_of(0x7fff)), last), 16);
    const whole is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const whole upper = _mm256_blendv_epi8(rounded, whole_of(0x7fc0), is_nan);
    _mm_storeu_si128((__m128i *)at, _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1)));
}
static inline real to_real(whole value) { return _mm256_cvtepi32_ps(value); }
static inline real plus(real a, real b) { return _mm256_add_ps(a, b); }
static inline real minus(real a, real b) { return _mm256_sub_ps(a, b); }
static inline real times(real a, real b) { return _mm256_mul_ps(a, b); }
static inline real over(real a, real b) { return _mm256_div_ps(a, b); }
static inline real plus_product(real sum, real a, real b) { return _mm256_fmadd_ps(a, b, sum); }
static inline real larger(real a, real b) { return _mm256_max_ps(a, b); }   // b if either is NaN
static inline real smaller(real a, real b) { return _mm256_min_ps(a, b); }  // the same
static inline real where_less(real a, real b, real then, real otherwise) {
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline real where_bit(uint32_t bits, real then, real otherwise) {
    const whole of_lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const whole is_set = _mm256_cmpeq_epi32(_mm256_and_si256(whole_of((int32_t)bits), of_lane), of_lane);
    return _mm256_blendv_ps(otherwise, then, _mm256_castsi256_ps(is_set));
}
static inline real nearest(real value) { return _mm256_round_ps(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline real times_power_of_two(real value, real n) {  // n from -126 to 127
    const whole exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), whole_of(127)), 23);
    return times(value, _mm256_castsi256_ps(exponent));
}

static inline whole low_codes(whole bytes) { return _mm256_and_si256(bytes, _mm256_set1_epi8(15)); }
static inline whole high_codes(whole bytes) {
    return _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
}
static inline whole shifted(whole codes) { return _mm256_xor_si256(codes, _mm256_set1_epi8((char)SHIFT)); }
static inline whole table_of(const int8_t *levels) {
    return shifted(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)levels)));
}
static inline whole looked_up(whole table, whole codes) { return _mm256_shuffle_epi8(table, codes); }

// 32 bytes of each of eight rows, `stride` bytes apart, to eight vectors: four bytes of every row each.
static inline void transposed(const uint8_t *rows, int64_t stride, whole out[8]) {
    whole row[8], two[8], four[8];
    for (int i = 0; i < 8; ++i) row[i] = _mm256_loadu_si256((const __m256i *)(rows + i * stride));
    for (int i = 0; i < 8; i += 2) {
        two[i] = _mm256_unpacklo_epi32(row[i], row[i + 1]);
        two[i + 1] = _mm256_unpackhi_epi32(row[i], row[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int j = 0; j < 2; ++j) {
            four[i + 2 * j] = _mm256_unpacklo_epi64(two[i + j], two[i + 2 + j]);
            four[i + 2 * j + 1] = _mm256_unpackhi_epi64(two[i + j], two[i + 2 + j]);
        }
    }
    for (int j = 0; j < 4; ++j) {
        out[j] = _mm256_permute2x128_si256(four[j], four[4 + j], 0x20);
        out[4 + j] = _mm256_permute2x128_si256(four[j], four[4 + j], 0x31);
    }
}
