// A measurement, not a part of the product: how fast the experts of a layer are when a processor's int8 instructions
// read NF4 codes themselves. `tests/bench/native_product.py` compiles, checks and times it; decision 0016 says why.
//
// One expert's weight [out, in] in groups of 64 along `in`: 32 bytes of codes, even columns in the high halves of the
// bytes, and a scale. A group becomes 64 unsigned bytes by one table look-up, level * 127 + 128, and meets up to 16 rows
// of signed bytes in one dot-product instruction each. What the 128 adds is taken off again by the sum of a row's group.

#include <immintrin.h>

#include <cstdint>

namespace {

constexpr int kGroup = 64;
constexpr int kRows = 16;

// One weight row times R activation rows. activations: [groups, R, 64] even columns first; sums: [groups, 16] fp32.
template <int R>
void row(const std::uint8_t* codes, const float* scales, const std::int8_t* activations, const float* sums,
         const __m512i table, int groups, float* out) {
    const __m256i low = _mm256_set1_epi8(15);
    __m512 total[R];
    for (int r = 0; r < R; ++r) total[r] = _mm512_setzero_ps();
    __m512 offset = _mm512_setzero_ps();
    for (int g = 0; g < groups; ++g) {
        const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + g * kGroup / 2));
        const __m256i even = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low);
        const __m256i odd = _mm256_and_si256(bytes, low);
        const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1);
        const __m512i levels = _mm512_shuffle_epi8(table, both);
        const __m512 scale = _mm512_set1_ps(scales[g]);
        const std::int8_t* group = activations + g * R * kGroup;
        for (int r = 0; r < R; ++r) {
            const __m512i dot = _mm512_dpbusd_epi32(_mm512_setzero_si512(), levels,
                                                    _mm512_loadu_si512(group + r * kGroup));
            total[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, total[r]);
        }
        offset = _mm512_fmadd_ps(_mm512_loadu_ps(sums + g * kRows), scale, offset);
    }
    alignas(64) float offsets[kRows];
    _mm512_store_ps(offsets, offset);
    for (int r = 0; r < R; ++r) out[r] = _mm512_reduce_add_ps(total[r]) - 128.0F * offsets[r];
}

}  // namespace

// All experts: codes [experts, out, in / 2], scales fp32 [experts, out, in / 64], activations [experts, in / 64, rows, 64],
// sums [experts, in / 64, 16], result [experts, out, rows]. rows is 4, 8 or 16; scales of the activation rows, and the
// 1 / 127 of the table, are left to the caller.
extern "C" int experts_product(const std::uint8_t* codes, const float* scales, const std::int8_t* activations,
                               const float* sums, const std::uint8_t* table, int experts, int out, int in, int rows,
                               float* result) {
    if (rows != 4 && rows != 8 && rows != 16) return 1;
    const int groups = in / kGroup;
    const __m512i levels = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
#pragma omp parallel for schedule(dynamic, 1)
    for (int expert = 0; expert < experts; ++expert) {
        const std::int8_t* own = activations + static_cast<long>(expert) * groups * rows * kGroup;
        const float* own_sums = sums + static_cast<long>(expert) * groups * kRows;
        for (int n = 0; n < out; ++n) {
            const long at = static_cast<long>(expert) * out + n;
            const auto* c = codes + at * (in / 2);
            const auto* s = scales + at * groups;
            float* to = result + at * rows;
            if (rows == 16) row<16>(c, s, own, own_sums, levels, groups, to);
            if (rows == 8) row<8>(c, s, own, own_sums, levels, groups, to);
            if (rows == 4) row<4>(c, s, own, own_sums, levels, groups, to);
        }
    }
    return 0;
}
