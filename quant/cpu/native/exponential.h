// exp(x) for x <= 87; 0 below -87.3, where it is less than the smallest normal float; NaN for NaN. Range reduction and
// polynomial are those of `expf` in Moshier's Cephes library, which states a relative error of at most 1.7e-7.
static inline real exponential(real x) {
    const real least = real_of(-87.3F);
    const real inside = larger(least, x);  // NaN if x is
    const real n = nearest(times(inside, real_of(1.44269504088896341F)));
    const real r = plus_product(plus_product(inside, n, real_of(-0.693359375F)), n, real_of(2.12194440e-4F));
    real y = real_of(1.9875691500e-4F);
    y = plus_product(real_of(1.3981999507e-3F), y, r);
    y = plus_product(real_of(8.3334519073e-3F), y, r);
    y = plus_product(real_of(4.1665795894e-2F), y, r);
    y = plus_product(real_of(1.6666665459e-1F), y, r);
    y = plus_product(real_of(5.0000001201e-1F), y, r);
    y = plus_product(plus(r, real_of(1.0F)), y, times(r, r));
    return where_less(x, least, real_of(0), times_power_of_two(y, n));
}
