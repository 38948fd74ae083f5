/* The two codes that zstd packs by (RFC 8878, sections 4.1 and 4.2): finite states, and Huffman's. */
#ifndef ALIQUOT_ENTROPY_H
#define ALIQUOT_ENTROPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_STATES 512U
#define MOST_CODES 2048U
#define MOST_SYMBOLS 256U

/* Bits that are read from the last to the first. `left` may fall below 0: what lies there reads as zeros, and whoever
 * reads says whether that is an error. */
struct bits {
    const unsigned char *from;
    int64_t left;
};

/* False if the last byte has no mark of where they begin. */
bool bits_open(struct bits *bits, const unsigned char *from, size_t bytes);
uint64_t bits_take(struct bits *bits, unsigned count); /* 32 at most */

struct state { uint16_t base; uint8_t symbol, bits; };

struct states {
    struct state of[MOST_STATES];
    unsigned log; /* how many there are: 1 << log */
};

/* From how often each symbol comes (-1: less than once); `false` if that is no sum of 1 << log. */
bool states_build(struct states *states, const int16_t *often, unsigned symbols, unsigned log);
/* From their description, of which `read` tells how many bytes it takes. */
bool states_read(struct states *states, unsigned symbols, unsigned most_log, const unsigned char *from, size_t bytes,
                 size_t *read);

struct code { uint8_t symbol, bits; };

struct codes {
    struct code of[MOST_CODES];
    unsigned log; /* 0: none yet */
};

bool codes_read(struct codes *codes, const unsigned char *from, size_t bytes, size_t *read);
/* Exactly `size` symbols from all of the bytes. */
bool codes_decode(const struct codes *codes, unsigned char *to, size_t size, const unsigned char *from, size_t bytes);

#endif
