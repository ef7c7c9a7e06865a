// How quantized weights are stored: in groups along their input, with a bf16 scale for each.

#pragma once

#include <stdint.h>
#include <string.h>

enum { GROUP = 64, MAX_GROUPS = 1024 };

static inline float from_bf16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
