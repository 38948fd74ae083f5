/* Modules of text (PTX), whose variables are written in more than one way. */
#include "tenant.h"

#include <string.h>

void write_text(char text[96], uint64_t bytes) {
    snprintf(text, 96, TEXT_FORMAT, (unsigned long long)(bytes + 99) / 100);
}

static CUresult take_declared(struct held *h, const char *format, uint64_t size) {
    char text[160];
    snprintf(text, sizeof text, format, (unsigned long long)size);
    return CU(cuModuleLoadDataEx)((CUmodule *)&h->value, text, 0, NULL, NULL);
}

CUresult take_text(struct held *h, uint64_t bytes) {
    return take_declared(h, TEXT_FORMAT, (bytes + 99) / 100);
}

CUresult take_text_hex(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global .b8 held[0x%llx];", bytes);
}

CUresult take_text_vectors(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global .v4 .f32 held[%llu];", (bytes + 15) / 16);
}

CUresult take_text_managed(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global .attribute(.managed) .align 8 .b8 held[%llu];", bytes);
}

CUresult take_text_remark(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global /* ; = 0 */ .b8 small = 1, held[%llu];", bytes);
}

CUresult take_text_dots(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0 .visible.global.align 4.b8 held[%llu];", bytes);
}

CUresult take_text_percent(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global .b8 small, %%held[%llu];", bytes);
}

/* In a fat binary, where no cubin fits the GPU. */
CUresult take_text_fat(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(0, 0);
    memset(fat.content, 0, sizeof fat.content);
    write_text((char *)fat.content, bytes);
    fat.fat.kind = FAT_TEXT;
    return CU(cuModuleLoadData)((CUmodule *)&h->value, &fat);
}

/* Twice, what nobody can weigh. */
void load_unread(void) {
    CUmodule module;
    int first = CU(cuModuleLoadData)(&module, ".version 8.0\n.newspace .b8 held[100];");
    printf("%d %d\n", first, CU(cuModuleLoadData)(&module, "\177Tile"));
}
