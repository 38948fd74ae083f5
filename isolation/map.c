#include "map.h"

#include <stdlib.h>

static size_t place(const struct map *map, uint64_t key) {
    return (size_t)((key * 0x9E3779B97F4A7C15ULL) >> 20) & (map->size - 1);
}

struct record *map_find(const struct map *map, uint64_t key) {
    if (!map->size) return NULL;
    for (size_t i = place(map, key); map->rows[i].key; i = (i + 1) & (map->size - 1))
        if (map->rows[i].key == key) return &map->rows[i];
    return NULL;
}

static void insert(struct map *map, struct record record) {
    size_t i = place(map, record.key);
    while (map->rows[i].key) i = (i + 1) & (map->size - 1);
    map->rows[i] = record;
    map->count++;
}

static bool grow(struct map *map) {
    struct map wider = {.size = map->size ? 2 * map->size : 256};
    wider.rows = calloc(wider.size, sizeof *wider.rows);
    if (!wider.rows) return false;
    for (size_t i = 0; i < map->size; i++)
        if (map->rows[i].key) insert(&wider, map->rows[i]);
    free(map->rows);
    *map = wider;
    return true;
}

bool map_put(struct map *map, struct record record) {
    struct record *old = map_find(map, record.key);
    if (old) {
        *old = record;
        return true;
    }
    if (2 * (map->count + 1) > map->size && !grow(map)) return false;
    insert(map, record);
    return true;
}

bool map_take(struct map *map, uint64_t key, struct record *taken) {
    struct record *found = map_find(map, key);
    if (!found) return false;
    *taken = *found;
    size_t hole = (size_t)(found - map->rows), mask = map->size - 1;
    for (size_t i = (hole + 1) & mask; map->rows[i].key; i = (i + 1) & mask) {
        /* Move back whatever could no longer be found across the hole. */
        if (((i - place(map, map->rows[i].key)) & mask) < ((i - hole) & mask)) continue;
        map->rows[hole] = map->rows[i];
        hole = i;
    }
    map->rows[hole] = (struct record){0};
    map->count--;
    return true;
}
