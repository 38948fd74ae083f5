#include "fat.h"

#include <string.h>

#include "granules.h"
#include "loadable.h"
#include "weights.h"

#define FAT_BINARY 0xba55ed50u

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

static struct verdict judge(const unsigned char *at, const struct entry *entry) {
    struct more more = {0};
    if (entry->size >= sizeof *entry + sizeof more) memcpy(&more, at + sizeof *entry, sizeof more);
    return judge_entry(&(struct told){
        .kind = entry->kind,
        .machine = more.machine,
        .flags = more.flags,
        .packed = more.packed,
        .unpacked = more.unpacked,
        .content = at + entry->size,
        .bytes = entry->bytes,
    });
}

/* Entries as they were found, one after the other. */
struct walk {
    const unsigned char *image;
    uint64_t at, end;
    bool broken;
};

static bool next_entry(struct walk *walk, struct entry *entry) {
    uint64_t left = walk->end - walk->at;
    if (left < sizeof *entry) return false;
    memcpy(entry, walk->image + walk->at, sizeof *entry);
    if (!entry->size && !entry->bytes) return false;
    walk->broken = entry->size < sizeof *entry || entry->size > left || entry->bytes > left - entry->size;
    return !walk->broken;
}

static bool begin(struct walk *walk, const unsigned char *image, uint64_t size) {
    struct head head;
    if (size < sizeof head) return false;
    memcpy(&head, image, sizeof head);
    *walk = (struct walk){.image = image, .at = head.size, .end = head.size + head.bytes};
    return head.bytes <= LARGEST_SIZE && walk->end <= size;
}

/* Only one of its entries is loaded: the largest is the most that it can be. */
uint64_t fat_bytes(const unsigned char *image, uint64_t size) {
    struct walk walk;
    struct entry entry;
    uint64_t most = 0;
    if (!begin(&walk, image, size)) return UNKNOWN_WEIGHT;
    for (; next_entry(&walk, &entry); walk.at += entry.size + entry.bytes) {
        uint64_t bytes = judge(image + walk.at, &entry).bytes;
        if (bytes > most) most = bytes;
    }
    return walk.broken ? UNKNOWN_WEIGHT : most;
}

/* What is behind the entries that are kept goes with those that are not. */
static void end_at(unsigned char *image, uint64_t at, const struct walk *walk) {
    struct head head;
    memcpy(&head, image, sizeof head);
    head.bytes = at - head.size;
    memcpy(image, &head, sizeof head);
    memset(image + at, 0, walk->end - at);
}

uint64_t fat_keep_known(unsigned char *image, uint64_t size) {
    struct walk walk;
    struct entry entry;
    uint64_t most = 0, kept;
    bool known = false, unknown = false;
    if (!begin(&walk, image, size)) return UNKNOWN_WEIGHT;
    for (kept = walk.at; next_entry(&walk, &entry); walk.at += entry.size + entry.bytes) {
        struct verdict verdict = judge(image + walk.at, &entry);
        bool left_out = verdict.bytes > LARGEST_SIZE;
        unknown = unknown || left_out;
        if (left_out) continue;
        known = known || verdict.may_load;
        if (verdict.bytes > most) most = verdict.bytes;
        memmove(image + kept, image + walk.at, entry.size + entry.bytes);
        kept += entry.size + entry.bytes;
    }
    if (walk.broken || (unknown && !known)) return UNKNOWN_WEIGHT;
    if (unknown) end_at(image, kept, &walk);
    return most;
}
