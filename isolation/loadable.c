#include "loadable.h"

#include <stdlib.h>

#include "devices.h"
#include "ptx.h"
#include "unpack.h"
#include "weights.h"

#define PACKED_LZ4 0x2000u
#define PACKED_ZSTD 0x8000u
#define TEXT 1
#define CUBIN 2
#define LZ4_GROWS 8   /* by so many bits at the most: a byte more of a length is 255 bytes */
#define ZSTD_GROWS 16 /* a block of 4 bytes is 128 KiB */
#define BEGINNING (128U << 10) /* of what is packed: a block of zstd is unpacked whole or not at all */

/* ------------------------------------------------------------------ which GPUs it is for */

static bool may_load_as_told(const struct told *entry) {
    if (entry->kind == TEXT) return gpus_may_compile(entry->machine);
    return entry->kind != CUBIN || gpus_may_load(entry->machine);
}

/* By what is inside; where that does not say it, they may. */
static bool may_load_as_written(const unsigned char *content, uint64_t size, unsigned kind) {
    if (kind == TEXT) return gpus_may_compile(text_target((const char *)content, size));
    unsigned first = 0, second = 0;
    if (!cubin_machines(content, size, &first, &second)) return true;
    return (first && gpus_may_load(first)) || (second && gpus_may_load(second));
}

/* ------------------------------------------------------------------ what is packed */

static bool is_packed(const struct told *entry) {
    return entry->flags & (PACKED_LZ4 | PACKED_ZSTD);
}

static bool unpack(const struct told *entry, unsigned char *to, uint64_t size) {
    uint64_t packed = entry->packed && entry->packed < entry->bytes ? entry->packed : entry->bytes;
    return (entry->flags & PACKED_LZ4 ? unpack_lz4 : unpack_zstd)(to, size, entry->content, packed);
}

/* Of a large library all generations but one are for other GPUs, and would take seconds to unpack: their beginning says
 * so. Where it could not be unpacked so far zeros stand, which say nothing. */
static bool packed_may_load(const struct told *entry) {
    uint64_t size = entry->unpacked < BEGINNING ? entry->unpacked : BEGINNING;
    unsigned char *content = calloc(1, size + sizeof(uint32_t));
    if (!content) return true;
    unpack(entry, content, size);
    bool may = may_load_as_written(content, size, entry->kind);
    free(content);
    return may;
}

/* Of both a driver goes by one, nobody tells by which: only where both say so it is not loaded. */
static bool may_load(const struct told *entry) {
    if (may_load_as_told(entry)) return true;
    return is_packed(entry) ? packed_may_load(entry) : may_load_as_written(entry->content, entry->bytes, entry->kind);
}

/* ------------------------------------------------------------------ what it weighs */

/* Other kinds are code on its way to be compiled, whose variables nobody here can read. */
static uint64_t content_bytes(const unsigned char *content, uint64_t size, unsigned kind) {
    if (kind == CUBIN) return size >= sizeof(uint32_t) && is_cubin(content) ? cubin_bytes(content, size) : UNKNOWN_WEIGHT;
    uint64_t variables = kind == TEXT ? text_variables((const char *)content, size) : UNKNOWN_WEIGHT;
    return variables == UNKNOWN_WEIGHT ? variables : size + variables;
}

/* Code and variables of what is packed; variables without content are seen in nothing but what is inside. */
static uint64_t packed_bytes(const struct told *entry) {
    uint64_t weight = UNKNOWN_WEIGHT;
    bool lz4 = entry->flags & PACKED_LZ4;
    if (lz4 && (entry->flags & PACKED_ZSTD)) return weight;
    if (entry->unpacked >> (lz4 ? LZ4_GROWS : ZSTD_GROWS) > entry->bytes) return weight;
    unsigned char *content = malloc(entry->unpacked + sizeof(uint32_t));
    if (!content) return weight;
    if (unpack(entry, content, entry->unpacked)) weight = content_bytes(content, entry->unpacked, entry->kind);
    free(content);
    return weight;
}

struct verdict judge_entry(const struct told *entry) {
    if (!may_load(entry)) return (struct verdict){0};
    return (struct verdict){
        .may_load = true,
        .bytes = is_packed(entry) ? packed_bytes(entry) : content_bytes(entry->content, entry->bytes, entry->kind),
    };
}
