// The widest vectors of this CPU whose products of int8 are exact.

#pragma once

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include "avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "avx2.h"
#else
#error "no instructions for products of int8"
#endif
