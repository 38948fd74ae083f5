/* The driver's private tables. */
#include "tenant.h"

#include <string.h>

static const CUuuid runtime_table = {
    {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}};
static const CUuuid context_table = {
    {0x0c, 0xa5, 0x0b, 0x8c, 0x10, 0x04, 0x92, 0x9a, 0x89, 0xa7, 0xd0, 0xdf, 0x10, 0xe7, 0x72, 0x86}};

/* By a private function, as CUDA's runtime asks for them. */
static void *private_function(const CUuuid *id, int at) {
    const void *table;
    if (CU(cuGetExportTable)(&table, id)) exit(3);
    return ((void *const *)table)[at];
}

CUresult take_private(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(bytes, FAT_LZ4);
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 1, .binary = &fat.fat};
    CUresult (*load)(uint64_t *module, const void *wrapper) = private_function(&runtime_table, 1);
    return load(&h->value, &wrapper);
}

CUresult take_private_with(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(bytes, 0);
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 1, .binary = &fat.fat};
    CUresult (*load)(uint64_t *module, const void *wrapper, void *one, void *two, unsigned three) =
        private_function(&runtime_table, 6);
    return load(&h->value, &wrapper, NULL, NULL, 0);
}

CUresult take_private_bare(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(bytes, FAT_ZSTD);
    CUresult (*load)(const void *binary, uint64_t *module, void *one, void *two, unsigned three) =
        private_function(&runtime_table, 8);
    return load(&fat, &h->value, NULL, NULL, 7);
}

CUresult take_context_private(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult (*create)(CUcontext *made, unsigned flags, CUdevice device) = private_function(&context_table, 1);
    CUresult result = create((CUcontext *)&h->value, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

/* By the private function that the runtime asks for it. */
void get_primary(void) {
    CUresult (*get)(CUcontext *primary, CUdevice device) = private_function(&runtime_table, 2);
    CUcontext primary = NULL;
    CUresult result = CU(cuInit)(0) + get(&primary, 0);
    printf("%d\n", result + CU(cuCtxSetCurrent)(primary));
}

static bool is_in(const void *function, const char *folder) {
    Dl_info found;
    return dladdr(function, &found) && strstr(found.dli_fname, folder);
}

/* Whether the runtime's table is the same each time, a table that nobody has described is the driver's own, and what is
 * answered to who asks for none. */
void ask_for_tables(void) {
    const CUuuid unknown = {{1}};
    const void *once, *again, *other;
    CU(cuGetExportTable)(&once, &runtime_table);
    CU(cuGetExportTable)(&again, &runtime_table);
    CU(cuGetExportTable)(&other, &unknown);
    printf("%d %d %d\n", once == again, is_in(((void *const *)other)[0], "/real/"), CU(cuGetExportTable)(NULL, &unknown));
}
