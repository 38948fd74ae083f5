#include "images.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "holdings.h"
#include "processes.h"

#define FAT_WRAPPER 0x466243b1u
#define FAT_BINARY 0xba55ed50u

struct fat_wrapper {
    uint32_t magic, version;
    const void *binary;
    const void *linked;
};

struct fat_header {
    uint32_t magic;
    uint16_t version, size;
    uint64_t bytes;
};

struct fat_entry {
    uint16_t kind, unknown;
    uint32_t size;
    uint64_t bytes;
};

static uint64_t elf_bytes(const unsigned char *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    uint64_t all = 0;
    for (unsigned i = 0; i < head.e_shnum && head.e_shentsize == sizeof(Elf64_Shdr); i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (!(section.sh_flags & SHF_ALLOC)) continue;
        if (section.sh_size > LARGEST_SIZE) return UINT64_MAX;
        all += section.sh_size;
    }
    return all;
}

/* Only one of a fat binary's entries is loaded: the largest is the most that it can be. A packed entry's size inside
 * is not known; what it takes beyond its own size the agent sees. */
static uint64_t fat_bytes(const unsigned char *image) {
    struct fat_header head;
    memcpy(&head, image, sizeof head);
    uint64_t most = 0, at = head.size, end = head.size + head.bytes;
    while (at + sizeof(struct fat_entry) <= end) {
        struct fat_entry entry;
        memcpy(&entry, image + at, sizeof entry);
        const unsigned char *content = image + at + entry.size;
        uint64_t bytes = entry.bytes >= sizeof(Elf64_Ehdr) && memcmp(content, ELFMAG, SELFMAG) == 0
                             ? elf_bytes(content)
                             : entry.bytes;
        if (bytes > most) most = bytes;
        if (entry.size + entry.bytes == 0) break;
        at += entry.size + entry.bytes;
    }
    return most;
}

/* The bytes of `.b8 name[12][34]` and the like: width times all lengths. */
static uint64_t declared(const char *at, const char *end) {
    uint64_t bytes = 0;
    for (const char *c = at; c + 2 < end; c++)
        if (*c == '.' && strchr("bsuf", c[1]) && c[2] >= '1' && c[2] <= '9') {
            bytes = strtoull(c + 2, NULL, 10) / 8;
            break;
        }
    for (const char *c = at; bytes && c < end; c++)
        if (*c == '[' && c[1] != ']' && __builtin_mul_overflow(bytes, strtoull(c + 1, NULL, 10), &bytes))
            return UINT64_MAX;
    return bytes;
}

static uint64_t ptx_bytes(const char *text) {
    uint64_t all = 2 * strlen(text); /* machine code is about as long as its text, often shorter */
    for (const char *at = text; (at = strpbrk(at, ".")); at++) {
        if (strncmp(at, ".global", 7) != 0 && strncmp(at, ".const", 6) != 0) continue;
        size_t length = strcspn(at, ";=");
        uint64_t bytes = declared(at + 6, at + length);
        if (bytes > LARGEST_SIZE) return UINT64_MAX;
        all += bytes;
    }
    return all;
}

uint64_t image_bytes(const void *image) {
    uint32_t magic;
    if (!image) return 0;
    if (strncmp(image, ELFMAG, SELFMAG) == 0) return elf_bytes(image);
    memcpy(&magic, image, sizeof magic);
    if (magic == FAT_BINARY) return fat_bytes(image);
    if (magic != FAT_WRAPPER) return ptx_bytes(image);
    struct fat_wrapper wrapper;
    memcpy(&wrapper, image, sizeof wrapper);
    return wrapper.binary ? fat_bytes(wrapper.binary) : 0;
}

uint64_t image_file_bytes(const char *path) {
    struct stat seen;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    uint64_t bytes = 0;
    if (status_of_file(file, &seen) == 0 && seen.st_size >= 16) {
        /* A page more than the file has, so that text ends with a zero. */
        size_t size = (size_t)seen.st_size + 1;
        char *image = calloc(1, size);
        if (image && read(file, image, (size_t)seen.st_size) == seen.st_size) bytes = image_bytes(image);
        free(image);
    }
    close(file);
    return bytes;
}
