#include "heap.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "world.h"

#define LARGEST_SMALL (1ULL << 20)
#define UNIT 512ULL
#define UNITS (GRANULE_BYTES / UNIT)
#define FIRST_ADDRESS 0x300000000000ULL
#define LONGEST_CHAIN 4096

struct granule {
    struct granule *next;
    uint64_t address, blocks, placed[16]; /* blocks that are on another GPU, by GPU */
    int gpu;
    unsigned char used[UNITS];
};

struct block {
    struct block *next;
    uint64_t address, bytes, shared;
    int gpu, opened; /* how often, of another process's memory */
    const void *owner; /* the context that it was made in */
    struct granule *granule; /* NULL: it has granules of its own */
    uint16_t *places;        /* of managed memory: on which GPUs each of them is, a bit for each */
    uint16_t place;          /* of managed memory that shares its granule: on which others it is, too */
    bool managed, copied;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct granule *granules;
static struct block *chains[LONGEST_CHAIN];
static uint64_t next_address = FIRST_ADDRESS;
static struct { uint64_t address, bytes; } freed[64];

static struct block **chain_of(uint64_t address) {
    return &chains[(address / UNIT * 0x9E3779B97F4A7C15ULL >> 40) % LONGEST_CHAIN];
}

static struct block *enter(uint64_t address, uint64_t bytes, int gpu, struct granule *granule) {
    struct block *block = malloc(sizeof *block), **chain = chain_of(address);
    *block = (struct block){.next = *chain, .address = address, .bytes = bytes, .gpu = gpu, .granule = granule, .owner = fake_owner()};
    return *chain = block;
}

/* The same addresses come back soon, as they do from the real driver. */
static uint64_t addresses(uint64_t bytes) {
    for (int i = 0; i < 64; i++)
        if (freed[i].bytes == bytes && bytes) {
            freed[i].bytes = 0;
            return freed[i].address;
        }
    uint64_t address = next_address;
    next_address += bytes;
    return address;
}

static void addresses_back(uint64_t address, uint64_t bytes) {
    static unsigned turn;
    freed[turn].address = address;
    freed[turn].bytes = bytes;
    turn = (turn + 1) % 64;
}

static uint64_t find_run(const struct granule *granule, uint64_t units) {
    for (uint64_t from = 0, run = 0, i = 0; i < UNITS; i++) {
        run = granule->used[i] ? 0 : run + 1;
        if (run == 1) from = i;
        if (run == units) return from;
    }
    return UNITS;
}

static uint64_t take_in(struct granule *granule, uint64_t bytes) {
    uint64_t units = (bytes + UNIT - 1) / UNIT, from = find_run(granule, units);
    if (from == UNITS) return 0;
    memset(granule->used + from, 1, units);
    granule->blocks++;
    return enter(granule->address + from * UNIT, bytes, granule->gpu, granule)->address;
}

static uint64_t take_small(int gpu, uint64_t bytes) {
    uint64_t address = 0;
    for (struct granule *granule = granules; granule && !address; granule = granule->next)
        if (granule->gpu == gpu) address = take_in(granule, bytes);
    if (address || !world_take(gpu, GRANULE_BYTES)) return address;
    struct granule *fresh = calloc(1, sizeof *fresh);
    *fresh = (struct granule){.next = granules, .gpu = gpu, .address = addresses(GRANULE_BYTES)};
    granules = fresh;
    return take_in(fresh, bytes);
}

uint64_t heap_take(int gpu, uint64_t bytes) {
    uint64_t address = 0;
    pthread_mutex_lock(&lock);
    if (bytes && bytes <= LARGEST_SMALL)
        address = take_small(gpu, bytes);
    else if (bytes && bytes < 1ULL << 46 && world_take(gpu, WHOLE(bytes)))
        address = enter(addresses(WHOLE(bytes)), bytes, gpu, NULL)->address;
    pthread_mutex_unlock(&lock);
    return address;
}

static uint64_t take_small_managed(int gpu, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    uint64_t address = bytes ? take_small(gpu, bytes) : 0;
    for (struct block *block = address ? *chain_of(address) : NULL; block; block = block->next)
        if (block->address == address) block->managed = true;
    pthread_mutex_unlock(&lock);
    return address;
}

uint64_t heap_take_managed(int gpu, uint64_t bytes) {
    if (bytes <= LARGEST_SMALL) return take_small_managed(gpu, bytes);
    if (bytes >= 1ULL << 46 || !world_take(gpu, WHOLE(bytes))) return 0;
    pthread_mutex_lock(&lock);
    struct block *block = enter(addresses(WHOLE(bytes)), bytes, gpu, NULL);
    block->places = malloc(WHOLE(bytes) / GRANULE_BYTES * sizeof *block->places);
    for (uint64_t i = 0; i < WHOLE(bytes) / GRANULE_BYTES; i++) block->places[i] = (uint16_t)(1U << gpu);
    pthread_mutex_unlock(&lock);
    return block->address;
}

static void move_granule(uint16_t *places, int gpu, uint16_t home, bool copied) {
    uint16_t there = gpu < 0 ? home : (uint16_t)(1U << gpu | home);
    if (gpu >= 0 && !(*places & 1U << gpu) && !world_take(gpu, GRANULE_BYTES)) return;
    for (int other = 0; !copied && other < 16; other++)
        if (*places & ~there & 1U << other) world_give(other, GRANULE_BYTES);
    *places = copied ? *places | there : there;
}

/* Its granule lies on a GPU for as long as one of its blocks does. */
static void move_small(struct block *block, int gpu) {
    struct granule *granule = block->granule;
    uint16_t there = gpu < 0 || gpu == granule->gpu ? 0 : (uint16_t)(1U << gpu);
    if (there && !(block->place & there)) {
        if (!granule->placed[gpu] && !world_take(gpu, GRANULE_BYTES)) return;
        granule->placed[gpu]++;
    }
    for (int other = 0; !block->copied && other < 16; other++)
        if (block->place & ~there & 1U << other && --granule->placed[other] == 0) world_give(other, GRANULE_BYTES);
    block->place = block->copied ? block->place | there : there;
}

static bool lies_in(const struct block *block, uint64_t at, uint64_t address, uint64_t bytes) {
    return block->address + at < address + bytes && block->address + at + GRANULE_BYTES > address;
}

static void move(struct block *block, uint64_t address, uint64_t bytes, int gpu) {
    uint16_t home = fake_managed_is("kept") ? (uint16_t)(1U << block->gpu) : 0;
    for (uint64_t at = 0; block->places && at < WHOLE(block->bytes); at += GRANULE_BYTES)
        if (lies_in(block, at, address, bytes)) move_granule(&block->places[at / GRANULE_BYTES], gpu, home, block->copied);
    if (block->managed && block->address < address + bytes && block->address + block->bytes > address)
        move_small(block, gpu);
}

void heap_move(uint64_t address, uint64_t bytes, int gpu) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LONGEST_CHAIN; i++)
        for (struct block *block = chains[i]; block; block = block->next) move(block, address, bytes, gpu);
    pthread_mutex_unlock(&lock);
}

void heap_copy(uint64_t address, uint64_t bytes) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LONGEST_CHAIN; i++)
        for (struct block *block = chains[i]; block; block = block->next)
            if (block->address < address + bytes && block->address + block->bytes > address) block->copied = true;
    pthread_mutex_unlock(&lock);
}

static void give_small(struct block *block) {
    struct granule *granule = block->granule, **at = &granules;
    memset(granule->used + (block->address - granule->address) / UNIT, 0, (block->bytes + UNIT - 1) / UNIT);
    if (--granule->blocks) return;
    while (*at != granule) at = &(*at)->next;
    *at = granule->next;
    world_give(granule->gpu, GRANULE_BYTES);
    addresses_back(granule->address, GRANULE_BYTES);
    free(granule);
}

bool heap_give(uint64_t address) {
    pthread_mutex_lock(&lock);
    struct block **at = chain_of(address);
    while (*at && (*at)->address != address) at = &(*at)->next;
    struct block *block = *at;
    if (block && block->opened > 1) {
        block->opened--;
    } else if (block) {
        *at = block->next;
        for (uint64_t i = 0; block->places && i < WHOLE(block->bytes) / GRANULE_BYTES; i++)
            move_granule(&block->places[i], -1, 0, false);
        block->copied = false;
        if (block->granule && block->managed) move_small(block, -1);
        if (block->granule)
            give_small(block);
        else if (block->places)
            free(block->places);
        else if (block->shared)
            world_leave(block->shared);
        else
            world_give(block->gpu, WHOLE(block->bytes));
        if (!block->granule) addresses_back(block->address, WHOLE(block->bytes));
        free(block);
    }
    pthread_mutex_unlock(&lock);
    return block != NULL;
}

void heap_give_all(const void *owner) {
    uint64_t address;
    do {
        address = 0;
        pthread_mutex_lock(&lock);
        for (int i = 0; i < LONGEST_CHAIN && !address; i++)
            for (struct block *block = chains[i]; block && !address; block = block->next)
                if (block->owner == owner) address = block->address;
        pthread_mutex_unlock(&lock);
    } while (address && heap_give(address));
}

bool heap_find(uint64_t address, uint64_t *base, uint64_t *bytes, int *gpu) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (struct block *block = *chain_of(address); block && !found; block = block->next)
        if (block->address == address) {
            *base = address;
            *bytes = block->bytes;
            *gpu = block->gpu;
            found = true;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

bool heap_find_managed(uint64_t address, uint64_t *base, uint64_t *bytes) {
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LONGEST_CHAIN && !found; i++)
        for (struct block *block = chains[i]; block && !found; block = block->next)
            if ((block->managed || block->places) && address >= block->address && address - block->address < block->bytes) {
                *base = block->address;
                *bytes = block->bytes;
                found = true;
            }
    pthread_mutex_unlock(&lock);
    return found;
}

uint64_t heap_share(uint64_t address) {
    uint64_t id = 0;
    pthread_mutex_lock(&lock);
    for (struct block *block = *chain_of(address); block; block = block->next)
        if (block->address == address && !block->granule) {
            if (!block->shared) block->shared = world_share(block->gpu, WHOLE(block->bytes));
            id = block->shared;
        }
    pthread_mutex_unlock(&lock);
    return id;
}

uint64_t heap_join(uint64_t id) {
    int gpu;
    uint64_t bytes = world_join(id, &gpu), address = 0;
    pthread_mutex_lock(&lock);
    if (bytes) {
        struct block *block = enter(addresses(bytes), bytes, gpu, NULL);
        block->shared = id;
        block->opened = 1;
        address = block->address;
    }
    pthread_mutex_unlock(&lock);
    return address;
}

uint64_t heap_join_again(uint64_t id) {
    uint64_t address = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < LONGEST_CHAIN && !address; i++)
        for (struct block *block = chains[i]; block && !address; block = block->next)
            if (block->shared == id && block->opened) block->opened++, address = block->address;
    pthread_mutex_unlock(&lock);
    return address;
}

uint64_t heap_reserve(uint64_t bytes) {
    pthread_mutex_lock(&lock);
    uint64_t address = addresses(WHOLE(bytes));
    pthread_mutex_unlock(&lock);
    return address;
}
