#include "entropy.h"

#include <string.h>

#define LEAST_LOG 5U
#define WEIGHTS_LOG 6U
#define MOST_WEIGHT 12U
#define DIRECT 128U /* a description of weights that begins with so much has them as they are, four bits each */

static unsigned log_of(uint32_t number) {
    return 31U - (unsigned)__builtin_clz(number);
}

bool bits_open(struct bits *bits, const unsigned char *from, size_t bytes) {
    if (!bytes || !from[bytes - 1]) return false;
    *bits = (struct bits){from, (int64_t)bytes * 8 - 8 + log_of(from[bytes - 1])};
    return true;
}

/* So many bits from there on, which may lie before the first. */
static uint64_t bits_at(const struct bits *bits, int64_t at, unsigned count) {
    uint64_t value = 0;
    int64_t end = at + count, first = at < 0 ? 0 : at / 8;
    if (end <= 0) return 0;
    for (int64_t byte = (end - 1) / 8; byte >= first; byte--) value = value << 8 | bits->from[byte];
    value = at < 0 ? value << -at : value >> (at - first * 8);
    return value & ((1ULL << count) - 1);
}

uint64_t bits_take(struct bits *bits, unsigned count) {
    bits->left -= count;
    return bits_at(bits, bits->left, count);
}

/* ------------------------------------------------------------------ finite states */

/* Each symbol is dealt as many states as it is likely, by steps that meet all of them. */
static bool deal(struct states *states, const int16_t *often, unsigned symbols, unsigned high) {
    unsigned size = 1U << states->log, step = (size >> 1) + (size >> 3) + 3, at = 0;
    for (unsigned symbol = 0; symbol < symbols; symbol++)
        for (int i = 0; i < often[symbol]; i++) {
            states->of[at].symbol = (uint8_t)symbol;
            do at = (at + step) & (size - 1);
            while (at >= high);
        }
    return at == 0;
}

bool states_build(struct states *states, const int16_t *often, unsigned symbols, unsigned log) {
    uint16_t next[MOST_SYMBOLS] = {0};
    unsigned size = 1U << log, high = size, all = 0;
    states->log = log;
    for (unsigned symbol = 0; symbol < symbols; symbol++) {
        next[symbol] = (uint16_t)(often[symbol] < 0 ? 1 : often[symbol]);
        all += next[symbol];
        if (all > size) return false;
        if (often[symbol] < 0) states->of[--high].symbol = (uint8_t)symbol;
    }
    if (all != size || !high || !deal(states, often, symbols, high)) return false;
    for (unsigned i = 0; i < size; i++) {
        unsigned number = next[states->of[i].symbol]++;
        states->of[i].bits = (uint8_t)(log - log_of(number));
        states->of[i].base = (uint16_t)((number << states->of[i].bits) - size);
    }
    return true;
}

/* Bits from the first to the last; beyond the end they are zeros, which `at` tells. */
static uint32_t forward(const unsigned char *from, size_t bytes, size_t *at, unsigned count) {
    uint32_t value = 0;
    for (unsigned i = 0; i < count; i++, ++*at)
        if (*at / 8 < bytes) value |= (uint32_t)(from[*at / 8] >> *at % 8 & 1) << i;
    return value;
}

/* How often one comes, in as few bits as what is left to give allows. */
static int often_of(const unsigned char *from, size_t bytes, size_t *at, unsigned left) {
    unsigned count = log_of(left + 1) + 1, half = 1U << (count - 1), spare = (half << 1) - 1 - (left + 1);
    uint32_t value = forward(from, bytes, at, count);
    if ((value & (half - 1)) < spare) {
        --*at;
        return (int)(value & (half - 1)) - 1;
    }
    return (int)(value >= half ? value - spare : value) - 1;
}

bool states_read(struct states *states, unsigned symbols, unsigned most_log, const unsigned char *from, size_t bytes,
                 size_t *read) {
    int16_t often[MOST_SYMBOLS] = {0};
    size_t at = 0;
    unsigned log = forward(from, bytes, &at, 4) + LEAST_LOG, symbol = 0;
    if (log > most_log) return false;
    for (unsigned left = 1U << log; left;) {
        if (symbol == symbols || at > bytes * 8) return false;
        int one = often_of(from, bytes, &at, left);
        unsigned takes = (unsigned)(one < 0 ? 1 : one);
        if (takes > left) return false;
        often[symbol++] = (int16_t)one;
        left -= takes;
        for (unsigned more = one ? 0 : 3; more == 3; symbol += more) {
            more = forward(from, bytes, &at, 2);
            if (at > bytes * 8 || symbol + more > symbols) return false;
        }
    }
    *read = (at + 7) / 8;
    return *read <= bytes && states_build(states, often, symbol, log);
}

/* ------------------------------------------------------------------ Huffman's */

static unsigned step(const struct states *states, unsigned state, struct bits *bits) {
    return states->of[state].base + (unsigned)bits_take(bits, states->of[state].bits);
}

/* Two states take turns; who finds no more bits is the last but one. */
static unsigned packed_weights(uint8_t *weights, const unsigned char *from, size_t bytes) {
    struct states states;
    struct bits bits;
    size_t read;
    unsigned count = 0;
    if (!states_read(&states, MOST_WEIGHT + 1, WEIGHTS_LOG, from, bytes, &read)) return 0;
    if (!bits_open(&bits, from + read, bytes - read)) return 0;
    unsigned one = (unsigned)bits_take(&bits, states.log), other = (unsigned)bits_take(&bits, states.log);
    if (bits.left < 0) return 0;
    while (bits.left >= 0) {
        if (count > MOST_SYMBOLS - 3) return 0;
        weights[count++] = states.of[one].symbol;
        unsigned next = step(&states, one, &bits);
        one = other;
        other = next;
    }
    weights[count++] = states.of[one].symbol;
    return count;
}

static unsigned direct_weights(uint8_t *weights, const unsigned char *from, unsigned count) {
    for (unsigned i = 0; i < count; i++) weights[i] = from[i / 2] >> (i % 2 ? 0 : 4) & 15;
    return count;
}

/* The last weight is what is missing to a power of two. */
static bool build(struct codes *codes, uint8_t *weights, unsigned count) {
    unsigned all = 0, at = 0;
    for (unsigned i = 0; i < count; i++) {
        if (weights[i] > MOST_WEIGHT) return false;
        all += weights[i] ? 1U << (weights[i] - 1) : 0;
    }
    if (!all) return false;
    unsigned log = log_of(all) + 1, missing = (1U << log) - all;
    if (1U << log > MOST_CODES || missing & (missing - 1)) return false;
    weights[count++] = (uint8_t)(log_of(missing) + 1);
    for (unsigned weight = 1; weight <= log; weight++)
        for (unsigned symbol = 0; symbol < count; symbol++)
            for (unsigned i = 0; weights[symbol] == weight && i < 1U << (weight - 1); i++)
                codes->of[at++] = (struct code){(uint8_t)symbol, (uint8_t)(log + 1 - weight)};
    codes->log = log;
    return at == 1U << log;
}

bool codes_read(struct codes *codes, const unsigned char *from, size_t bytes, size_t *read) {
    uint8_t weights[MOST_SYMBOLS];
    if (!bytes) return false;
    bool direct = from[0] >= DIRECT;
    unsigned count = direct ? from[0] - DIRECT + 1 : 0;
    size_t size = direct ? (count + 1) / 2 : from[0];
    if (size > bytes - 1) return false;
    *read = size + 1;
    count = direct ? direct_weights(weights, from + 1, count) : packed_weights(weights, from + 1, size);
    codes->log = 0;
    return count && build(codes, weights, count);
}

bool codes_decode(const struct codes *codes, unsigned char *to, size_t size, const unsigned char *from, size_t bytes) {
    struct bits bits;
    if (!codes->log || !bits_open(&bits, from, bytes)) return false;
    for (size_t i = 0; i < size && bits.left >= 0; i++) {
        const struct code *code = &codes->of[bits_at(&bits, bits.left - codes->log, codes->log)];
        to[i] = code->symbol;
        bits.left -= code->bits;
    }
    return bits.left == 0;
}
