#include "weights.h"

#include <elf.h>
#include <string.h>

#include "granules.h"

#define LARGEST_SHARED (256U << 10) /* of a multiprocessor: 228 KiB at the most, by now */

bool is_cubin(const void *content) {
    return strncmp(content, ELFMAG, SELFMAG) == 0;
}

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

static bool begins(const char *names, uint64_t size, uint32_t at, const char *with) {
    return at < size && size - at > strlen(with) && !strncmp(names + at, with, strlen(with));
}

/* Tables of a debugger are the one content that is known to stay out, and may be large. */
static bool is_for_debuggers(const char *names, uint64_t size, uint32_t at) {
    return begins(names, size, at, ".debug_") || begins(names, size, at, ".nv_debug_");
}

/* A function's shared memory is on the chip; it can have no more than there is. */
static bool is_on_chip(const Elf64_Shdr *section, const char *names, uint64_t size) {
    bool fits = section->sh_type == SHT_NOBITS && section->sh_size <= LARGEST_SHARED;
    return fits && begins(names, size, section->sh_name, ".nv.shared.");
}

/* What is told to be loaded; and content and room that is not, for whether the driver goes by that or by names nobody
 * tells. */
static bool is_loaded(const Elf64_Shdr *section, const char *names, uint64_t size) {
    if (section->sh_flags & SHF_ALLOC || section->sh_type == SHT_NOBITS) return true;
    return section->sh_type == SHT_PROGBITS && !is_for_debuggers(names, size, section->sh_name);
}

static Elf64_Shdr section_at(const unsigned char *image, const Elf64_Ehdr *head, uint64_t number) {
    Elf64_Shdr section;
    memcpy(&section, image + head->e_shoff + number * sizeof section, sizeof section);
    return section;
}

/* Where the names of its sections lie; nowhere if they don't lie in it. */
static const char *names_of(const unsigned char *image, uint64_t size, const Elf64_Ehdr *head, uint64_t sections,
                            uint64_t *length) {
    *length = 0;
    if (head->e_shstrndx >= sections) return NULL;
    Elf64_Shdr names = section_at(image, head, head->e_shstrndx);
    if (names.sh_type == SHT_NOBITS || names.sh_offset > size || names.sh_size > size - names.sh_offset) return NULL;
    *length = names.sh_size;
    return (const char *)image + names.sh_offset;
}

static uint64_t add(uint64_t all, uint64_t bytes) {
    return bytes > LARGEST_SIZE || all > LARGEST_SIZE ? UNKNOWN_WEIGHT : all + bytes;
}

static uint64_t bytes_of_sections(const unsigned char *image, uint64_t size, const Elf64_Ehdr *head, uint64_t *on_chip) {
    uint64_t all = 0, length, sections = sections_of(image, size, head);
    if (sections == UINT64_MAX) return UNKNOWN_WEIGHT;
    const char *names = names_of(image, size, head, sections, &length);
    for (uint64_t i = 0; i < sections; i++) {
        Elf64_Shdr section = section_at(image, head, i);
        if (is_loaded(&section, names, length)) all = add(all, section.sh_size);
        if (is_on_chip(&section, names, length)) *on_chip += section.sh_size;
    }
    return all;
}

static uint64_t bytes_of_segments(const unsigned char *image, uint64_t size, const Elf64_Ehdr *head) {
    uint64_t all = 0;
    Elf64_Phdr segment;
    if (!head->e_phnum) return 0;
    if (head->e_phentsize != sizeof segment || head->e_phoff > size) return UNKNOWN_WEIGHT;
    if (head->e_phnum > (size - head->e_phoff) / sizeof segment) return UNKNOWN_WEIGHT;
    for (uint64_t i = 0; i < head->e_phnum; i++) {
        memcpy(&segment, image + head->e_phoff + i * sizeof segment, sizeof segment);
        uint64_t bytes = segment.p_memsz > segment.p_filesz ? segment.p_memsz : segment.p_filesz;
        if (segment.p_type == PT_LOAD) all = add(all, bytes);
    }
    return all;
}

/* The larger of what sections and what segments say: both tell of the same, shared memory too. */
uint64_t cubin_bytes(const unsigned char *image, uint64_t size) {
    Elf64_Ehdr head;
    uint64_t on_chip = 0;
    if (size < sizeof head) return UNKNOWN_WEIGHT;
    memcpy(&head, image, sizeof head);
    if (head.e_ident[EI_CLASS] == ELFCLASS32) return UNKNOWN_WEIGHT; /* its tables stand elsewhere */
    uint64_t sections = bytes_of_sections(image, size, &head, &on_chip), segments = bytes_of_segments(image, size, &head);
    uint64_t larger = sections > segments ? sections : segments;
    return larger > LARGEST_SIZE ? UNKNOWN_WEIGHT : larger - on_chip;
}

bool cubin_machines(const unsigned char *image, uint64_t size, unsigned *first, unsigned *second) {
    Elf64_Ehdr head;
    if (size < sizeof head || !is_cubin(image)) return false;
    memcpy(&head, image, sizeof head);
    *first = head.e_flags & 0xff;
    *second = head.e_flags >> 8 & 0xff;
    return *first || *second;
}

static void reach(uint64_t *end, uint64_t at, uint64_t bytes) {
    if (at > LARGEST_SIZE || bytes > LARGEST_SIZE) at = LARGEST_SIZE;
    if (at + bytes > *end) *end = at + bytes;
}

static void reach_segments(uint64_t *end, const unsigned char *image, const Elf64_Ehdr *head) {
    Elf64_Phdr segment;
    reach(end, head->e_phoff, (uint64_t)head->e_phnum * head->e_phentsize);
    for (uint64_t i = 0; head->e_phentsize == sizeof segment && i < head->e_phnum; i++) {
        memcpy(&segment, image + head->e_phoff + i * sizeof segment, sizeof segment);
        reach(end, segment.p_offset, segment.p_filesz);
    }
}

uint64_t cubin_length(const unsigned char *image) {
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof head);
    uint64_t end = sizeof head, sections = sections_of(image, LARGEST_SIZE, &head);
    reach_segments(&end, image, &head);
    if (sections > LARGEST_SIZE / sizeof(Elf64_Shdr)) return end;
    reach(&end, head.e_shoff, sections * sizeof(Elf64_Shdr));
    for (uint64_t i = 0; i < sections; i++) {
        Elf64_Shdr section = section_at(image, &head, i);
        if (section.sh_type != SHT_NOBITS) reach(&end, section.sh_offset, section.sh_size);
    }
    return end;
}
