/* Fat binaries as tenants make them: a head and one entry, behind which its cubin or text lies. What is packed is packed
 * as it is, whichever packing: it lies in there whole. */
#ifndef FAKE_CUDA_FAT_H
#define FAKE_CUDA_FAT_H

#include <stdint.h>

#define FAT_WRAPPER 0x466243b1u
#define FAT_BINARY 0xba55ed50u
#define FAT_ENTRY 64 /* bytes of an entry's head */
#define FAT_TEXT 1
#define FAT_CUBIN 2
#define FAT_LZ4 0x2000
#define FAT_ZSTD 0x8000

struct fat {
    uint32_t magic;
    uint16_t version, head;
    uint64_t bytes; /* of all that follows */
    uint16_t kind, entry_version;
    uint32_t entry_head;
    uint64_t content;
    uint32_t packed, unknown, text_version, machine;
    uint64_t name, flags, unknown_too, unpacked;
};

struct wrapper {
    uint32_t magic, version;
    const struct fat *binary;
    const struct fat *const *linked; /* of version 2, up to a NULL */
};

#endif
