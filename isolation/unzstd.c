/* One frame of zstd (RFC 8878), without a dictionary. The whole content is there at once, so windows don't matter. */
#include <stdlib.h>
#include <string.h>

#include "entropy.h"
#include "unpack.h"

#define MAGIC 0xFD2FB528u
#define MOST_LITERALS (128U << 10)

enum { BLOCK_RAW, BLOCK_RUN, BLOCK_PACKED };
enum { LITERALS_RAW, LITERALS_RUN, LITERALS_CODED, LITERALS_CODED_AS_BEFORE };
enum { STATES_KNOWN, STATES_OF_ONE, STATES_TOLD, STATES_AS_BEFORE };

struct input {
    const unsigned char *at;
    uint64_t left;
};

struct output {
    unsigned char *at; /* where all begins */
    uint64_t done, size;
};

/* One of the three codes of a sequence. */
struct kind {
    unsigned symbols, most_log, known_log;
    const int16_t *known;
};

static const int16_t known_lengths[36] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2,  2,
                                          2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t known_offsets[29] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
static const int16_t known_matches[53] = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1,  1,  1,  1,  1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,
                                          1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1};
static const struct kind lengths = {36, 9, 6, known_lengths}, offsets = {32, 8, 5, known_offsets},
                         matches = {53, 9, 6, known_matches};
static const unsigned known_symbols_of_offsets = 29;

/* Long lengths: where each code begins, and how many bits come on top. Shorter ones are their codes. */
struct length { uint32_t least, bits; };

static const struct length long_lengths[] = {
    {16, 1},   {18, 1},   {20, 1},    {22, 1},    {24, 2},    {28, 2},    {32, 3},     {40, 3},     {48, 4},     {64, 6},
    {128, 7},  {256, 8},  {512, 9},   {1024, 10}, {2048, 11}, {4096, 12}, {8192, 13},  {16384, 14}, {32768, 15}, {65536, 16}};
static const struct length long_matches[] = {
    {35, 1},   {37, 1},   {39, 1},    {41, 1},    {43, 2},    {47, 2},    {51, 3},     {59, 3},     {67, 4},     {83, 4}, {99, 5},
    {131, 7},  {259, 8},  {515, 9},   {1027, 10}, {2051, 11}, {4099, 12}, {8195, 13},  {16387, 14}, {32771, 15}, {65539, 16}};

struct frame {
    struct codes codes;
    struct states lengths, offsets, matches;
    bool known[3];
    uint64_t back[3]; /* the last offsets */
    size_t literal_count;
    unsigned char literals[MOST_LITERALS];
};

static bool take(struct input *in, uint64_t bytes, const unsigned char **at) {
    if (bytes > in->left) return false;
    *at = in->at;
    in->at += bytes;
    in->left -= bytes;
    return true;
}

static bool take_number(struct input *in, unsigned bytes, uint64_t *number) {
    const unsigned char *at;
    *number = 0;
    if (!take(in, bytes, &at)) return false;
    for (unsigned i = 0; i < bytes; i++) *number |= (uint64_t)at[i] << 8 * i;
    return true;
}

/* ------------------------------------------------------------------ literals */

static bool plain_literals(struct frame *frame, struct input *in, unsigned form, bool run) {
    static const unsigned bytes[] = {1, 2, 1, 3};
    const unsigned char *at;
    uint64_t head;
    if (!take_number(in, bytes[form], &head)) return false;
    frame->literal_count = head >> (form & 1 ? 4 : 3);
    if (frame->literal_count > MOST_LITERALS || !take(in, run ? 1 : frame->literal_count, &at)) return false;
    if (run)
        memset(frame->literals, *at, frame->literal_count);
    else
        memcpy(frame->literals, at, frame->literal_count);
    return true;
}

/* In four streams, of which the sizes of three are told. */
static bool decode_four(struct frame *frame, struct input *in) {
    uint64_t told[4], each = (frame->literal_count + 3) / 4, done = 0;
    const unsigned char *at;
    for (unsigned i = 0; i < 3; i++)
        if (!take_number(in, 2, &told[i])) return false;
    if (3 * each > frame->literal_count || told[0] + told[1] + told[2] > in->left) return false;
    told[3] = in->left - told[0] - told[1] - told[2];
    for (unsigned i = 0; i < 4; i++, done += each) {
        uint64_t count = i < 3 ? each : frame->literal_count - done;
        if (!take(in, told[i], &at) || !codes_decode(&frame->codes, frame->literals + done, count, at, told[i])) return false;
    }
    return true;
}

static bool coded_literals(struct frame *frame, struct input *in, unsigned form, bool as_before) {
    static const unsigned bytes[] = {3, 3, 4, 5}, bits[] = {10, 10, 14, 18};
    uint64_t head;
    struct input packed;
    size_t read = 0;
    if (!take_number(in, bytes[form], &head)) return false;
    uint64_t mask = (1ULL << bits[form]) - 1;
    frame->literal_count = head >> 4 & mask;
    packed.left = head >> (4 + bits[form]) & mask;
    if (frame->literal_count > MOST_LITERALS || !take(in, packed.left, &packed.at)) return false;
    if (!as_before && !codes_read(&frame->codes, packed.at, packed.left, &read)) return false;
    packed.at += read, packed.left -= read;
    if (form) return decode_four(frame, &packed);
    return codes_decode(&frame->codes, frame->literals, frame->literal_count, packed.at, packed.left);
}

static bool read_literals(struct frame *frame, struct input *in) {
    if (!in->left) return false;
    unsigned how = *in->at & 3, form = *in->at >> 2 & 3;
    if (how == LITERALS_RAW || how == LITERALS_RUN) return plain_literals(frame, in, form, how == LITERALS_RUN);
    return coded_literals(frame, in, form, how == LITERALS_CODED_AS_BEFORE);
}

/* ------------------------------------------------------------------ sequences */

static bool read_states(struct states *states, const struct kind *kind, bool *known, unsigned how, struct input *in) {
    const unsigned char *at;
    size_t read;
    bool before = *known;
    *known = true;
    if (how == STATES_AS_BEFORE) return before;
    if (how == STATES_KNOWN)
        return states_build(states, kind->known, kind == &offsets ? known_symbols_of_offsets : kind->symbols,
                            kind->known_log);
    if (how == STATES_OF_ONE) {
        if (!take(in, 1, &at) || *at >= kind->symbols) return false;
        states->log = 0;
        states->of[0] = (struct state){.symbol = *at};
        return true;
    }
    return states_read(states, kind->symbols, kind->most_log, in->at, in->left, &read) && take(in, read, &at);
}

static uint64_t literals_of(unsigned code, struct bits *bits) {
    if (code < 16) return code;
    return long_lengths[code - 16].least + bits_take(bits, long_lengths[code - 16].bits);
}

static uint64_t match_of(unsigned code, struct bits *bits) {
    if (code < 32) return code + 3;
    return long_matches[code - 32].least + bits_take(bits, long_matches[code - 32].bits);
}

/* An offset, or one of the last three: which, goes by whether literals came before. */
static uint64_t offset_of(uint64_t back[3], uint64_t value, bool literals) {
    uint64_t which = value + (literals ? 0 : 1), offset;
    if (value > 3)
        offset = value - 3;
    else
        offset = which == 4 ? back[0] - 1 : back[which - 1];
    if (value > 3 || which > 2) back[2] = back[1];
    if (value > 3 || which > 1) back[1] = back[0];
    return back[0] = offset;
}

static bool put_literals(struct frame *frame, struct output *out, uint64_t *used, uint64_t count) {
    if (count > frame->literal_count - *used || count > out->size - out->done) return false;
    memcpy(out->at + out->done, frame->literals + *used, count);
    *used += count;
    out->done += count;
    return true;
}

static bool put_match(struct output *out, uint64_t back, uint64_t count) {
    if (!back || back > out->done || count > out->size - out->done) return false;
    for (unsigned char *to = out->at + out->done, *end = to + count; to < end; to++) *to = *(to - back);
    out->done += count;
    return true;
}

static unsigned next(const struct states *states, unsigned state, struct bits *bits) {
    return states->of[state].base + (unsigned)bits_take(bits, states->of[state].bits);
}

static bool put_sequences(struct frame *frame, struct output *out, uint64_t count, const struct input *in) {
    struct bits bits;
    uint64_t used = 0;
    if (count && !bits_open(&bits, in->at, in->left)) return false;
    if (!count) return in->left == 0 && put_literals(frame, out, &used, frame->literal_count);
    unsigned length = (unsigned)bits_take(&bits, frame->lengths.log);
    unsigned offset = (unsigned)bits_take(&bits, frame->offsets.log);
    unsigned match = (unsigned)bits_take(&bits, frame->matches.log);
    for (; count && bits.left >= 0; count--) {
        unsigned far = frame->offsets.of[offset].symbol;
        uint64_t value = (1ULL << far) + bits_take(&bits, far);
        uint64_t matched = match_of(frame->matches.of[match].symbol, &bits);
        uint64_t literals = literals_of(frame->lengths.of[length].symbol, &bits);
        if (!put_literals(frame, out, &used, literals)) return false;
        if (!put_match(out, offset_of(frame->back, value, literals), matched)) return false;
        if (count == 1) break;
        length = next(&frame->lengths, length, &bits);
        match = next(&frame->matches, match, &bits);
        offset = next(&frame->offsets, offset, &bits);
    }
    return bits.left == 0 && put_literals(frame, out, &used, frame->literal_count - used);
}

static bool read_count(struct input *in, uint64_t *count) {
    uint64_t more;
    if (!take_number(in, 1, count)) return false;
    if (*count < 128) return true;
    if (!take_number(in, *count == 255 ? 2 : 1, &more)) return false;
    *count = *count == 255 ? more + 0x7F00 : (*count - 128) << 8 | more;
    return true;
}

static bool packed_block(struct frame *frame, struct output *out, struct input *in) {
    uint64_t count, how = 0;
    if (!read_literals(frame, in) || !read_count(in, &count)) return false;
    if (count && (!take_number(in, 1, &how) || how & 3)) return false;
    if (count && !(read_states(&frame->lengths, &lengths, &frame->known[0], how >> 6, in) &&
                   read_states(&frame->offsets, &offsets, &frame->known[1], how >> 4 & 3, in) &&
                   read_states(&frame->matches, &matches, &frame->known[2], how >> 2 & 3, in)))
        return false;
    return put_sequences(frame, out, count, in);
}

/* ------------------------------------------------------------------ blocks and frames */

static bool put_block(struct frame *frame, struct output *out, struct input *in, unsigned kind, uint64_t size) {
    struct input block = {.left = size};
    if (!take(in, kind == BLOCK_RUN ? 1 : size, &block.at)) return false;
    if (kind == BLOCK_PACKED) return packed_block(frame, out, &block);
    if (kind > BLOCK_PACKED || size > out->size - out->done) return false;
    if (kind == BLOCK_RUN)
        memset(out->at + out->done, *block.at, size);
    else
        memcpy(out->at + out->done, block.at, size);
    out->done += size;
    return true;
}

/* What its head says of sizes is passed over: how large it is, the fat binary says. */
static bool take_head(struct input *in) {
    static const unsigned dictionary_bytes[] = {0, 1, 2, 4}, size_bytes[] = {0, 2, 4, 8};
    const unsigned char *passed;
    uint64_t magic, how;
    if (!take_number(in, 4, &magic) || magic != MAGIC || !take_number(in, 1, &how) || how & 8) return false;
    bool single = how & 32;
    unsigned sizes = how < 64 ? single : size_bytes[how >> 6];
    return take(in, !single + dictionary_bytes[how & 3] + sizes, &passed);
}

bool unpack_zstd(unsigned char *to, uint64_t size, const unsigned char *from, uint64_t packed) {
    struct input in = {from, packed};
    struct output out = {.at = to, .size = size};
    struct frame *frame = calloc(1, sizeof *frame);
    uint64_t head = 0;
    bool good = frame && take_head(&in);
    if (good) frame->back[0] = 1, frame->back[1] = 4, frame->back[2] = 8;
    while (good && !(head & 1))
        good = take_number(&in, 3, &head) && put_block(frame, &out, &in, head >> 1 & 3, head >> 3);
    free(frame);
    return good && out.done == size;
}
