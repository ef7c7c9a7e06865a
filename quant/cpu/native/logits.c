// Statistics of logits, an id drawn from each row, and the logits as the next step is conditioned on them: capped,
// divided by the temperature and rounded. `logits.py` calls this.
//
//     score     softcap · tanh(logit / softcap) / temperature, or logit / temperature without a cap
//     weight    exp(score - peak), where the peak is the largest score of the row
//     chunk     CHUNK logits, whose weights are summed by lanes in fp32; sums of chunks are summed in fp64
//
// A row is read three times, by one thread, from a cache that holds it: for its peak, for the sums, and to be
// overwritten. The same inputs give the same bits.

#include <math.h>

#include "counter.h"
#include "stored.h"
#include "vectors.h"

#include "exponential.h"

enum { CHUNK = 256, MAX_CHUNKS = 1 << 12 };

int64_t logits_chunk(void) { return CHUNK; }
int64_t logits_max_chunks(void) { return MAX_CHUNKS; }

// The same layout as `_Reading` in Python.
struct reading {
    void *logits;           // [count, chunks * CHUNK], bf16 or fp32; scores afterwards
    const float *uniforms;  // [count] in [0, 1); null: the most probable ids are taken
    float *entropy, *argmax_prob, *log_normalizer;  // [count]
    int64_t *argmax, *sampled;                      // [count]
    int64_t count, chunks;
    int64_t is_bf16;
    double softcap, temperature;  // no cap if it is 0
    int64_t next;                 // the first row that nobody has taken; 0 at first
};

// tanh(x), NaN for NaN: a quotient of polynomials, with the coefficients of Eigen's `ptanh`. Beyond the limit, it is 1
// or -1 up to rounding.
static inline real hyperbolic_tangent(real x) {
    const real limit = real_of(7.90531110763549805F);
    x = larger(minus(real_of(0), limit), smaller(limit, x));
    const real square = times(x, x);
    real p = real_of(-2.76076847742355e-16F), q = real_of(1.19825839466702e-06F);
    p = plus_product(real_of(2.00018790482477e-13F), p, square);
    p = plus_product(real_of(-8.60467152213735e-11F), p, square);
    p = plus_product(real_of(5.12229709037114e-08F), p, square);
    p = plus_product(real_of(1.48572235717979e-05F), p, square);
    p = plus_product(real_of(6.37261928875436e-04F), p, square);
    p = plus_product(real_of(4.89352455891786e-03F), p, square);
    q = plus_product(real_of(1.18534705686654e-04F), q, square);
    q = plus_product(real_of(2.26843463243900e-03F), q, square);
    q = plus_product(real_of(4.89352518554385e-03F), q, square);
    return over(times(x, p), q);
}

// Logits of the row that a thread is reading.
struct row {
    void *logits;
    int64_t is_bf16, has_cap;
    real before, after;  // factors of a logit, and of its hyperbolic tangent
};

static inline real logits_at(const struct row *r, int64_t at) {
    return r->is_bf16 ? load_bf16((const uint16_t *)r->logits + at) : load_real((const float *)r->logits + at);
}

static inline real score_of(const struct row *r, real logits) {
    const real x = times(logits, r->before);
    return r->has_cap ? times(hyperbolic_tangent(x), r->after) : x;
}

// Writes scores in the type of the logits; returns them as they are stored.
static inline real stored(const struct row *r, void *at, real scores) {
    if (!r->is_bf16) {
        store_real(at, scores);
        return scores;
    }
    store_bf16(at, scores);
    return load_bf16(at);
}

static inline float sum_of(real value) {
    float lanes[LANES], sum = 0;
    store_real(lanes, value);
    for (int i = 0; i < LANES; ++i) sum += lanes[i];
    return sum;
}

// The index of the first of the largest logits; of any logit if one is NaN.
static int64_t find_largest(const struct row *r, int64_t chunks) {
    float largest = -INFINITY;
    int64_t best = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        float lanes[LANES];
        real peak = logits_at(r, chunk * CHUNK);
        for (int i = LANES; i < CHUNK; i += LANES) peak = larger(peak, logits_at(r, chunk * CHUNK + i));
        store_real(lanes, peak);
        for (int i = 0; i < LANES; ++i) {
            if (!(lanes[i] > largest)) continue;
            largest = lanes[i];
            best = chunk;
        }
    }
    for (int64_t at = best * CHUNK; at < (best + 1) * CHUNK; at += LANES) {
        float lanes[LANES];
        store_real(lanes, logits_at(r, at));
        for (int i = 0; i < LANES; ++i)
            if (lanes[i] == largest) return at + i;
    }
    return best * CHUNK;
}

// The id at which the running sum of weights first exceeds `target`. A running sum may round to less than the chunk's
// sum by lanes: then it is the last id of the chunk with any weight.
static int64_t draw(const struct row *r, const float *sums, int64_t chunks, real peak, double target) {
    double before = 0;
    int64_t found = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        if (!(before + sums[chunk] > target) && chunk + 1 < chunks) {
            before += sums[chunk];
            continue;
        }
        for (int64_t at = chunk * CHUNK; at < (chunk + 1) * CHUNK; at += LANES) {
            float weights[LANES];
            store_real(weights, exponential(minus(score_of(r, logits_at(r, at)), peak)));
            for (int i = 0; i < LANES; ++i) {
                if (!(weights[i] > 0)) continue;
                found = at + i;
                before += weights[i];
                if (before > target) return found;
            }
        }
        return found;
    }
    return found;
}

// Overwrites the logits of a row with their scores; returns the log-sum-exp of the scores as stored.
static double store_scores(const struct row *r, int64_t chunks, float top) {
    float place[LANES], lanes[LANES];
    const real peak = stored(r, place, real_of(top));  // the largest of them: rounding does not change the order
    const int64_t width = r->is_bf16 ? sizeof(uint16_t) : sizeof(float);
    double total = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        real sum = real_of(0);
        for (int64_t at = chunk * CHUNK; at < (chunk + 1) * CHUNK; at += LANES) {
            const real scores = stored(r, (char *)r->logits + at * width, score_of(r, logits_at(r, at)));
            sum = plus(sum, exponential(minus(scores, peak)));
        }
        total += sum_of(sum);
    }
    store_real(lanes, peak);
    return log(total) + lanes[0];
}

static void read_row(const struct reading *g, const struct row *r, int64_t number) {
    float sums[MAX_CHUNKS], lanes[LANES];
    const int64_t largest = find_largest(r, g->chunks);
    store_real(lanes, score_of(r, logits_at(r, largest / LANES * LANES)));
    const float top = lanes[largest % LANES];
    const real peak = real_of(top);
    double total = 0, weighted = 0;
    for (int64_t chunk = 0; chunk < g->chunks; ++chunk) {
        real sum = real_of(0), products = real_of(0);
        for (int64_t at = chunk * CHUNK; at < (chunk + 1) * CHUNK; at += LANES) {
            const real shifted = minus(score_of(r, logits_at(r, at)), peak), weight = exponential(shifted);
            sum = plus(sum, weight);
            products = plus_product(products, weight, shifted);
        }
        sums[chunk] = sum_of(sum);
        total += sums[chunk];
        weighted += sum_of(products);
    }
    const double entropy = log(total) - weighted / total;
    g->entropy[number] = (float)(entropy < 0 ? 0 : entropy);
    g->argmax[number] = largest;
    g->argmax_prob[number] = (float)(1 / total);
    g->sampled[number] = g->uniforms ? draw(r, sums, g->chunks, peak, g->uniforms[number] * total) : largest;
    g->log_normalizer[number] = (float)store_scores(r, g->chunks, top);
}

// Reads rows until none is left; any number of threads may run this for the same rows.
void read_logits(struct reading *g) {
    const double cap = g->softcap;
    const int64_t size = g->chunks * CHUNK * (g->is_bf16 ? sizeof(uint16_t) : sizeof(float));
    for (int64_t number; (number = taken_from(&g->next)) < g->count;) {
        const struct row row = {
            .logits = (char *)g->logits + number * size,
            .is_bf16 = g->is_bf16,
            .has_cap = cap != 0,
            .before = real_of((float)(1 / (cap != 0 ? cap : g->temperature))),
            .after = real_of((float)(cap / g->temperature)),
        };
        read_row(g, &row, number);
    }
}
