/* The clock that waits and payments go by. */
#ifndef ALIQUOT_CLOCK_H
#define ALIQUOT_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MS 1000000ULL

static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 * MS + (uint64_t)now.tv_nsec;
}

#endif
