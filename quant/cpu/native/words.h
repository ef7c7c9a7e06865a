// What attention multiplies: words of 32 bits in the lanes of vectors. A word is two numbers in bf16 that are
// neighbours along the sum, where one instruction multiplies both pairs and adds them up (AVX-512 BF16), or else one
// number in fp32. `build.py` defines BF16_IS_SLOW where these instructions take four times as long as those for fp32.

#pragma once

#ifdef __AVX512BW__  // int8 products would need more than that, but there are none here
#include "avx512.h"
#else
#include "vectors.h"
#endif

#include "stored.h"

#if defined(__AVX512BF16__) && !defined(BF16_IS_SLOW)

#define ATTENTION_INSTRUCTIONS "AVX-512 BF16"
enum { IN_WORD = 2 };
typedef uint32_t word;
typedef __m512bh words;

static inline words words_at(const word *at) { return (words)_mm512_load_si512(at); }
static inline word word_of(const void *numbers) {
    word pair;
    memcpy(&pair, numbers, sizeof pair);
    return pair;
}
static inline words everywhere(const void *at) { return (words)_mm512_set1_epi32((int32_t)word_of(at)); }
static inline real plus_words(real sum, words a, words b) { return _mm512_dpbf16_ps(sum, a, b); }

// The words of a row of `d` numbers: in place, or made in `scratch`.
static inline const void *words_of(const uint16_t *row, int64_t d, word *scratch) {
    (void)d, (void)scratch;
    return row;
}

// Stores the numbers of two keys as LANES words, or as LANES words for each key, `next` words apart.
static inline void store_words(word *to, int64_t next, real even, real odd) {
    const __m512i interleaved =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,  //
                         23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(odd, even);
    (void)next;
    _mm512_store_si512(to, _mm512_permutexvar_epi16(interleaved, both));
}

// The same for `next` numbers of each key that are stored in bf16.
static inline void copy_words(word *to, int64_t next, const uint16_t *even, const uint16_t *odd) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,  //
                                         39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(LANES));
    for (int64_t at = 0; at < next; at += 2 * LANES) {
        const __m512i first = _mm512_loadu_si512(even + at), second = _mm512_loadu_si512(odd + at);
        _mm512_store_si512(to + at, _mm512_permutex2var_epi16(first, low, second));
        _mm512_store_si512(to + at + LANES, _mm512_permutex2var_epi16(first, high, second));
    }
}

#else

#define ATTENTION_INSTRUCTIONS FMA_INSTRUCTIONS
enum { IN_WORD = 1 };
typedef float word;
typedef real words;

static inline words words_at(const word *at) { return load_real(at); }
static inline word word_of(const uint16_t *number) { return from_bf16(*number); }
static inline words everywhere(const word *at) { return real_of(*at); }
static inline real plus_words(real sum, words a, words b) { return plus_product(sum, a, b); }

static inline const word *words_of(const uint16_t *row, int64_t d, word *scratch) {
    for (int64_t at = 0; at < d; at += LANES) store_real(scratch + at, load_bf16(row + at));
    return scratch;
}

static inline void store_words(word *to, int64_t next, real even, real odd) {
    store_real(to, even);
    store_real(to + next, odd);
}

static inline void copy_words(word *to, int64_t next, const uint16_t *even, const uint16_t *odd) {
    words_of(even, next, to);
    words_of(odd, next, to + next);
}

#endif
