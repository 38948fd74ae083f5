#include "fat.h"

#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "granules.h"
#include "ptx.h"
#include "unpack.h"
#include "weights.h"

#define FAT_BINARY 0xba55ed50u
#define PACKED_LZ4 0x2000u
#define PACKED_ZSTD 0x8000u
#define TEXT 1
#define CUBIN 2
#define LZ4_GROWS 8   /* by so many bits at the most: a byte more of a length is 255 bytes */
#define ZSTD_GROWS 16 /* a block of 4 bytes is 128 KiB */

struct head {
    uint32_t magic;
    uint16_t version, size;
    uint64_t bytes;
};

/* What every entry begins with; those of `size` up to its end have the rest, too. */
struct entry {
    uint16_t kind, unknown;
    uint32_t size;
    uint64_t bytes;
};

struct more {
    uint32_t packed, unknown, version, machine;
    uint64_t name, flags, unknown_too, unpacked;
};

bool is_fat(const void *content) {
    const uint32_t magic = FAT_BINARY;
    return strncmp(content, (const char *)&magic, sizeof magic) == 0; /* text may be shorter */
}

uint64_t fat_length(const unsigned char *image) {
    struct head head;
    memcpy(&head, image, sizeof head);
    return head.bytes > LARGEST_SIZE ? UINT64_MAX : head.size + head.bytes;
}

/* Other kinds are code on its way to be compiled, whose variables nobody here can read: the driver compiles and loads it
 * where nothing else fits. */
static uint64_t content_bytes(const unsigned char *content, uint64_t size, unsigned kind) {
    if (kind == CUBIN) return size >= sizeof(uint32_t) && is_cubin(content) ? cubin_bytes(content, size) : UNKNOWN_WEIGHT;
    uint64_t variables = kind == TEXT ? text_variables((const char *)content, size) : UNKNOWN_WEIGHT;
    return variables == UNKNOWN_WEIGHT ? variables : size + variables;
}

/* Code and variables of what is packed; variables without content are seen in nothing but what is inside. */
static uint64_t packed_bytes(const unsigned char *from, uint64_t bytes, const struct more *more, unsigned kind) {
    uint64_t weight = UNKNOWN_WEIGHT, packed = more->packed && more->packed < bytes ? more->packed : bytes;
    bool lz4 = more->flags & PACKED_LZ4;
    if (lz4 && (more->flags & PACKED_ZSTD)) return weight;
    if (more->unpacked >> (lz4 ? LZ4_GROWS : ZSTD_GROWS) > packed) return weight;
    unsigned char *content = malloc(more->unpacked + sizeof(uint32_t));
    if (!content) return weight;
    if ((lz4 ? unpack_lz4 : unpack_zstd)(content, more->unpacked, from, packed))
        weight = content_bytes(content, more->unpacked, kind);
    free(content);
    return weight;
}

/* A cubin runs on GPUs of its own generation. Of others as many bytes as it has inside are charged, without a look: half
 * a dozen generations of a large library would take seconds to unpack. */
static uint64_t entry_bytes(const unsigned char *at, const struct entry *entry) {
    struct more more = {0};
    const unsigned char *content = at + entry->size;
    if (entry->size >= sizeof *entry + sizeof more) memcpy(&more, at + sizeof *entry, sizeof more);
    if (!(more.flags & (PACKED_LZ4 | PACKED_ZSTD))) return content_bytes(content, entry->bytes, entry->kind);
    if (entry->kind == CUBIN && !gpus_may_run(more.machine)) return more.unpacked;
    return packed_bytes(content, entry->bytes, &more, entry->kind);
}

/* Only one of its entries is loaded: the largest is the most that it can be. */
uint64_t fat_bytes(const unsigned char *image, uint64_t size) {
    struct head head;
    if (size < sizeof head) return UNKNOWN_WEIGHT;
    memcpy(&head, image, sizeof head);
    if (head.bytes > LARGEST_SIZE || head.size + head.bytes > size) return UNKNOWN_WEIGHT;
    uint64_t most = 0, at = head.size, end = head.size + head.bytes;
    while (end - at >= sizeof(struct entry)) {
        struct entry entry;
        memcpy(&entry, image + at, sizeof entry);
        if (!entry.size && !entry.bytes) break;
        if (entry.size < sizeof entry || entry.size > end - at || entry.bytes > end - at - entry.size) return UNKNOWN_WEIGHT;
        uint64_t bytes = entry_bytes(image + at, &entry);
        if (bytes > most) most = bytes;
        at += entry.size + entry.bytes;
    }
    return most;
}
