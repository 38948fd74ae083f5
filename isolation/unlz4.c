#include <string.h>

#include "unpack.h"

#define SHORTEST_MATCH 4U
#define LONG 15U /* a length of so much goes on in further bytes */

struct input {
    const unsigned char *at, *end;
};

static bool read_length(struct input *in, uint64_t *length) {
    if (*length != LONG) return true;
    for (unsigned char more = 255; more == 255; *length += more) {
        if (in->at == in->end) return false;
        more = *in->at++;
    }
    return true;
}

/* From `back` bytes ago on, which may be less than are copied. */
static bool copy_match(unsigned char *to, uint64_t *done, uint64_t size, uint64_t back, uint64_t length) {
    if (!back || back > *done || length > size - *done) return false;
    for (; length; length--, ++*done) to[*done] = to[*done - back];
    return true;
}

static bool copy_literals(unsigned char *to, uint64_t *done, uint64_t size, struct input *in, uint64_t length) {
    if (length > size - *done || length > (uint64_t)(in->end - in->at)) return false;
    memcpy(to + *done, in->at, length);
    *done += length;
    in->at += length;
    return true;
}

/* A block is literals and matches in turn, and ends with literals. */
bool unpack_lz4(unsigned char *to, uint64_t size, const unsigned char *from, uint64_t packed) {
    struct input in = {from, from + packed};
    uint64_t done = 0;
    while (in.at < in.end) {
        unsigned token = *in.at++;
        uint64_t literals = token >> 4, match = token & LONG;
        if (!read_length(&in, &literals) || !copy_literals(to, &done, size, &in, literals)) return false;
        if (done == size) return true;
        if (in.end - in.at < 2) return false;
        uint64_t back = in.at[0] | (uint64_t)in.at[1] << 8;
        in.at += 2;
        if (!read_length(&in, &match) || !copy_match(to, &done, size, back, match + SHORTEST_MATCH)) return false;
    }
    return false;
}
