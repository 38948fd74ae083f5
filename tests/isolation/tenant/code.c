/* Modules and libraries of cubins, as they are and in fat binaries. */
#include "tenant.h"

#include <elf.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const struct cubin *cubin(uint64_t bytes) {
    static struct cubin image;
    memcpy(image.head.e_ident, ELFMAG, SELFMAG);
    image.head.e_shoff = sizeof image.head;
    image.head.e_shentsize = sizeof image.section[0];
    image.head.e_shnum = 2;
    image.section[1].sh_type = SHT_NOBITS;
    image.section[1].sh_flags = SHF_ALLOC;
    image.section[1].sh_size = bytes;
    return &image;
}

CUresult take_module(struct held *h, uint64_t bytes) {
    return CU(cuModuleLoadData)((CUmodule *)&h->value, cubin(bytes));
}

/* As many sections as its first one says: a form for those who have very many. */
CUresult take_numbered(struct held *h, uint64_t bytes) {
    struct cubin image = *cubin(bytes);
    image.head.e_shnum = 0;
    image.section[0].sh_size = 2;
    return CU(cuModuleLoadData)((CUmodule *)&h->value, &image);
}

/* One that tells by segments alone what is loaded. */
CUresult take_segment(struct held *h, uint64_t bytes) {
    struct { Elf64_Ehdr head; Elf64_Phdr segment; } image = {
        .head = {.e_phoff = sizeof image.head, .e_phentsize = sizeof image.segment, .e_phnum = 1},
        .segment = {.p_type = PT_LOAD, .p_memsz = bytes}};
    memcpy(image.head.e_ident, ELFMAG, SELFMAG);
    return CU(cuModuleLoadData)((CUmodule *)&h->value, &image);
}

/* As a packer does that finds nothing to gain: LZ4's literals alone, or one raw block of zstd. */
static const unsigned char lz4_head[] = {0xf0, sizeof(struct cubin) - 15};
static const unsigned char zstd_head[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, sizeof(struct cubin),
                                          (sizeof(struct cubin) << 3 & 0xff) | 1, sizeof(struct cubin) >> 5, 0};

struct fat_cubin fat_cubin(uint64_t bytes, unsigned packing) {
    struct fat_cubin made = {
        .fat = {.magic = FAT_BINARY, .version = 1, .head = 16, .bytes = sizeof made - 16, .kind = FAT_CUBIN}};
    size_t head = packing == FAT_LZ4 ? sizeof lz4_head : packing == FAT_ZSTD ? sizeof zstd_head : 0;
    memcpy(made.content, packing == FAT_LZ4 ? lz4_head : zstd_head, head);
    memcpy(made.content + head, cubin(bytes), sizeof(struct cubin));
    made.fat.entry_head = FAT_ENTRY;
    made.fat.content = sizeof made.content;
    made.fat.flags = packing;
    made.fat.unpacked = packing ? sizeof(struct cubin) : 0;
    return made;
}

static CUresult take_wrapper(struct held *h, uint64_t bytes, unsigned packing) {
    struct fat_cubin fat = fat_cubin(bytes, packing);
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 1, .binary = &fat.fat};
    return CU(cuModuleLoadFatBinary)((CUmodule *)&h->value, &wrapper);
}

CUresult take_wrapped(struct held *h, uint64_t bytes) {
    return take_wrapper(h, bytes, 0);
}

CUresult take_packed(struct held *h, uint64_t bytes) {
    return take_wrapper(h, bytes, FAT_LZ4);
}

CUresult take_packed_zstd(struct held *h, uint64_t bytes) {
    return take_wrapper(h, bytes, FAT_ZSTD);
}

/* For a GPU as old as its entry says, and as new as is written inside. */
static CUresult take_for(struct held *h, uint64_t bytes, unsigned machine, unsigned flags) {
    struct fat_cubin fat = fat_cubin(bytes, 0);
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 1, .binary = &fat.fat};
    fat.fat.machine = machine;
    memcpy(fat.content + offsetof(struct cubin, head.e_flags), &flags, sizeof flags);
    return CU(cuModuleLoadFatBinary)((CUmodule *)&h->value, &wrapper);
}

CUresult take_disguised(struct held *h, uint64_t bytes) {
    return take_for(h, bytes, 75, 90 << 8);
}

CUresult take_foreign(struct held *h, uint64_t bytes) {
    return take_for(h, bytes, 75, 75 << 8);
}

CUresult take_linked(struct held *h, uint64_t bytes) {
    struct fat_cubin small = fat_cubin(4096, 0), large = fat_cubin(bytes, FAT_LZ4);
    const struct fat *const linked[] = {&small.fat, &large.fat, NULL};
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 2, .binary = &small.fat, .linked = linked};
    return CU(cuLibraryLoadData)((CUlibrary *)&h->value, &wrapper, NULL, NULL, 0, NULL, NULL, 0);
}

/* One as large as a library's, in a file that is mapped. */
#define LARGE_FAT (2UL << 20)

CUresult take_fat_mapped(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(bytes, 0);
    int file = memfd_create("library", 0), preserved = LIBRARY_PRESERVED;
    void *yes = (void *)1;
    fat.fat.bytes = LARGE_FAT - 16;
    fat.fat.content = LARGE_FAT - sizeof fat.fat;
    if (write(file, &fat, sizeof fat) != sizeof fat || ftruncate(file, LARGE_FAT)) exit(3);
    const struct fat *mapped = mmap(NULL, LARGE_FAT, PROT_READ, MAP_PRIVATE, file, 0);
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 1, .binary = mapped};
    CUresult result = CU(cuLibraryLoadData)((CUlibrary *)&h->value, &wrapper, NULL, NULL, 0, &preserved, &yes, 1);
    munmap((void *)mapped, LARGE_FAT);
    close(file);
    return result;
}

CUresult give_module(struct held *h) {
    return CU(cuModuleUnload)((CUmodule)(uintptr_t)h->value);
}

CUresult take_fat(struct held *h, uint64_t bytes) {
    return CU(cuModuleLoadFatBinary)((CUmodule *)&h->value, cubin(bytes));
}

/* The same in a file that nobody has to remove. */
int cubin_file(uint64_t bytes, char path[32]) {
    int file = memfd_create("cubin", 0);
    snprintf(path, 32, "/proc/self/fd/%d", file);
    if (write(file, cubin(bytes), sizeof(struct cubin)) != sizeof(struct cubin)) exit(3);
    return file;
}

CUresult take_file(struct held *h, uint64_t bytes) {
    char path[32];
    int file = cubin_file(bytes, path);
    CUresult result = CU(cuModuleLoad)((CUmodule *)&h->value, path);
    close(file);
    return result;
}

CUresult take_library_file(struct held *h, uint64_t bytes) {
    char path[32];
    int file = cubin_file(bytes, path);
    CUresult result = CU(cuLibraryLoadFromFile)((CUlibrary *)&h->value, path, NULL, NULL, 0, NULL, NULL, 0);
    close(file);
    return result;
}

CUresult take_library(struct held *h, uint64_t bytes) {
    return CU(cuLibraryLoadData)((CUlibrary *)&h->value, cubin(bytes), NULL, NULL, 0, NULL, NULL, 0);
}

CUresult give_library(struct held *h) {
    return CU(cuLibraryUnload)((CUlibrary)(uintptr_t)h->value);
}
