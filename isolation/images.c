#include "images.h"

#include <ctype.h>
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
#define FAT_LINKED 2u           /* version of a wrapper */
#define FAT_PACKING 40          /* where an entry says how it is packed */
#define FAT_PACKED 0xa000u      /* by one method or the other */
#define PADDING 64              /* zeros behind a copy: whatever begins in it can be looked at */

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

struct fat_packing {
    uint64_t flags, unknown, unpacked;
};

/* Sections of a cubin that holds as many bytes; more than 65,279 of them are counted in the first. UINT64_MAX if their
 * table does not lie in it. */
static uint64_t sections_of(const unsigned char *image, uint64_t size, const Elf64_Ehdr *head) {
    Elf64_Shdr first;
    if (!head->e_shoff) return 0;
    if (head->e_shentsize != sizeof first || head->e_shoff > size || size - head->e_shoff < sizeof first)
        return UINT64_MAX;
    memcpy(&first, image + head->e_shoff, sizeof first);
    uint64_t count = head->e_shnum ? head->e_shnum : first.sh_size;
    return count <= (size - head->e_shoff) / sizeof first ? count : UINT64_MAX;
}

static uint64_t elf_bytes(const unsigned char *image, uint64_t size) {
    Elf64_Ehdr head;
    if (size < sizeof head) return UINT64_MAX;
    memcpy(&head, image, sizeof head);
    uint64_t all = 0, sections = sections_of(image, size, &head);
    if (sections == UINT64_MAX) return UINT64_MAX;
    for (uint64_t i = 0; i < sections; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (!(section.sh_flags & SHF_ALLOC)) continue;
        if (section.sh_size > LARGEST_SIZE) return UINT64_MAX;
        all += section.sh_size;
    }
    return all;
}

static void reach(uint64_t *end, uint64_t at, uint64_t bytes) {
    if (at > LARGEST_SIZE || bytes > LARGEST_SIZE) at = LARGEST_SIZE;
    if (at + bytes > *end) *end = at + bytes;
}

/* How long a cubin is: as far as its tables and what they name go. */
static uint64_t elf_length(const unsigned char *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    uint64_t end = sizeof head, sections = sections_of(image, LARGEST_SIZE, &head);
    reach(&end, head.e_phoff, (uint64_t)head.e_phnum * head.e_phentsize);
    if (sections > LARGEST_SIZE / sizeof(Elf64_Shdr)) return end;
    reach(&end, head.e_shoff, sections * sizeof(Elf64_Shdr));
    for (uint64_t i = 0; i < sections; i++) {
        Elf64_Shdr section;
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_type != SHT_NOBITS) reach(&end, section.sh_offset, section.sh_size);
    }
    return end;
}

/* Of one entry of a fat binary, with so many bytes behind its start. A packed one's size inside stands in its head, but
 * not what variables without content it has: what it takes beyond its size the agent sees. */
static uint64_t entry_bytes(const unsigned char *at, const struct fat_entry *entry, uint64_t left) {
    struct fat_packing packing = {0};
    uint64_t most = entry->bytes;
    if (entry->size <= left && entry->bytes <= left - entry->size && entry->bytes >= sizeof(Elf64_Ehdr) &&
        memcmp(at + entry->size, ELFMAG, SELFMAG) == 0)
        return elf_bytes(at + entry->size, entry->bytes);
    if (entry->size >= FAT_PACKING + sizeof packing && entry->size <= left)
        memcpy(&packing, at + FAT_PACKING, sizeof packing);
    return (packing.flags & FAT_PACKED) && packing.unpacked > most ? packing.unpacked : most;
}

/* Only one of a fat binary's entries is loaded: the largest is the most that it can be. */
static uint64_t fat_bytes(const unsigned char *image, uint64_t size) {
    struct fat_header head;
    if (size < sizeof head) return UINT64_MAX;
    memcpy(&head, image, sizeof head);
    if (head.bytes > LARGEST_SIZE || head.size + head.bytes > size) return UINT64_MAX;
    uint64_t most = 0, at = head.size, end = head.size + head.bytes;
    while (at + sizeof(struct fat_entry) <= end) {
        struct fat_entry entry;
        memcpy(&entry, image + at, sizeof entry);
        uint64_t bytes = entry_bytes(image + at, &entry, end - at);
        if (bytes > most) most = bytes;
        if (entry.size + entry.bytes == 0 || entry.bytes > end) break;
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

static bool is_elf(const void *image) {
    return memcmp(image, ELFMAG, SELFMAG) == 0;
}

static uint32_t magic_of(const void *image) {
    uint32_t magic;
    memcpy(&magic, image, sizeof magic);
    return magic;
}

/* The fat binaries that a wrapper names: one, and in its second version a list of what it was linked from. */
static uint64_t wrapped_bytes(const void *image) {
    struct fat_wrapper wrapper;
    memcpy(&wrapper, image, sizeof wrapper);
    uint64_t all = wrapper.binary ? fat_bytes(wrapper.binary, UINT64_MAX) : 0;
    if (wrapper.version != FAT_LINKED) return all;
    for (const void *const *linked = wrapper.linked; linked && *linked && all <= LARGEST_SIZE; linked++) {
        uint64_t bytes = fat_bytes(*linked, UINT64_MAX);
        all = bytes > LARGEST_SIZE ? bytes : all + bytes;
    }
    return all;
}

/* A copy with a zero behind it, so that text ends; weighed, it is what the driver gets. */
static CUresult weigh_copy(struct image *image, void *copy, uint64_t size) {
    *image = (struct image){.content = copy, .copy = copy};
    if (is_elf(copy))
        image->bytes = elf_bytes(copy, size);
    else
        image->bytes = magic_of(copy) == FAT_BINARY ? fat_bytes(copy, size) : ptx_bytes(copy);
    if (image->bytes != UINT64_MAX && magic_of(copy) != FAT_WRAPPER) return CUDA_SUCCESS;
    free(copy);
    return CUDA_ERROR_INVALID_IMAGE;
}

static CUresult copy_of(struct image *image, const void *content, uint64_t size) {
    char *copy = size > LARGEST_SIZE ? NULL : malloc(size + PADDING);
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, content, size);
    memset(copy + size, 0, PADDING);
    return weigh_copy(image, copy, size);
}

/* Text ends with a zero; of what is no text nobody knows where it ends. */
static bool is_text(const unsigned char *content) {
    return isprint(*content) || isspace(*content);
}

CUresult image_in_memory(struct image *image, const void *content) {
    *image = (struct image){.content = content};
    if (!content) return CUDA_SUCCESS;
    if (strncmp(content, ELFMAG, SELFMAG) == 0) return copy_of(image, content, elf_length(content));
    if (is_text(content)) return copy_of(image, content, strlen(content));
    uint32_t magic = magic_of(content);
    if (magic == FAT_WRAPPER)
        image->bytes = wrapped_bytes(content);
    else
        image->bytes = magic == FAT_BINARY ? fat_bytes(content, UINT64_MAX) : ptx_bytes(content);
    return CUDA_SUCCESS;
}

/* As much of the file as there is, by then, of what it had. */
static CUresult read_image(struct image *image, int file, uint64_t size) {
    char *copy = calloc(1, size + PADDING);
    uint64_t done = 0;
    if (!copy) return CUDA_ERROR_OUT_OF_MEMORY;
    for (ssize_t got = 1; got > 0 && done < size; done += got > 0 ? (uint64_t)got : 0)
        got = read(file, copy + done, size - done);
    return weigh_copy(image, copy, done);
}

CUresult image_in_file(struct image *image, const char *path) {
    struct stat seen;
    if (!path) return CUDA_ERROR_INVALID_VALUE;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return CUDA_ERROR_FILE_NOT_FOUND;
    CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
    if (status_of_file(file, &seen) == 0) result = read_image(image, file, (uint64_t)seen.st_size);
    close(file);
    return result;
}

void image_free(const struct image *image) {
    free(image->copy);
}
