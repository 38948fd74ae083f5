/* A map from 64-bit keys to records of six words, for what this process holds. Not thread-safe by itself. */
#ifndef ALIQUOT_MAP_H
#define ALIQUOT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct record {
    uint64_t key; /* never 0 */
    uint64_t bytes, context, extra;
    int32_t gpu;
    uint32_t references, mappings, flags;
};

struct map {
    struct record *rows;
    size_t size, count;
};

/* The record of that key, or NULL. It moves when records are put in or taken out. */
struct record *map_find(const struct map *map, uint64_t key);

/* Put a record in; false if there is no memory for it. One of the same key is replaced. */
bool map_put(struct map *map, struct record record);

/* Take a record out, into `taken`; false if there is none. */
bool map_take(struct map *map, uint64_t key, struct record *taken);

#endif
