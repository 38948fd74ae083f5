/* What another thread changes while it is being asked by. */
#include "tenant.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

struct changing {
    CUDA_ARRAY_DESCRIPTOR flat;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC outside;
    struct cubin cubin;
    struct fat_cubin fat, large;
    struct wrapper wrapper;
    const struct fat *linked[2];
    _Alignas(8) char text[96];
    char path[32];
    int file;
    uint64_t bytes;
    _Atomic bool over;
};

static void *change_it(void *with) {
    struct changing *changing = with;
    for (uint64_t i = 0; !changing->over; i++) {
        uint64_t bytes = i % 2 ? changing->bytes : 1 << 21, word;
        char text[96];
        *(volatile size_t *)&changing->flat.height = *(volatile size_t *)&changing->shape.height = bytes / 1024;
        *(volatile unsigned long long *)&changing->outside.size = bytes;
        *(volatile uint64_t *)&changing->cubin.section[1].sh_size = bytes;
        *(volatile uint64_t *)(changing->fat.content + offsetof(struct cubin, section[1].sh_size)) = bytes;
        *(const struct fat *volatile *)&changing->wrapper.binary = i % 2 ? &changing->large.fat : &changing->fat.fat;
        *(const struct fat *volatile *)&changing->linked[0] = i % 2 ? &changing->large.fat : &changing->fat.fat;
        write_text(text, bytes);
        memcpy(&word, text + TEXT_SIZE, sizeof word);
        *(volatile uint64_t *)(changing->text + TEXT_SIZE) = word;
        if (changing->file && pwrite(changing->file, &bytes, 8, offsetof(struct cubin, section[1].sh_size)) != 8) exit(3);
    }
    return NULL;
}

/* Code that other threads change, in memory or in a file. */
static CUresult load_changing(const char *name, struct changing *it) {
    CUmodule module;
    CUlibrary library;
    CUresult result;
    bool is_library = strncmp(name, "library", 7) == 0;
    if (strcmp(name, "library") == 0)
        result = CU(cuLibraryLoadData)(&library, &it->cubin, NULL, NULL, 0, NULL, NULL, 0);
    else if (is_library)
        result = CU(cuLibraryLoadFromFile)(&library, it->path, NULL, NULL, 0, NULL, NULL, 0);
    else if (strcmp(name, "file") == 0)
        result = CU(cuModuleLoad)(&module, it->path);
    else if (strcmp(name, "text") == 0)
        result = CU(cuModuleLoadDataEx)(&module, it->text, 0, NULL, NULL);
    else if (strcmp(name, "fat") == 0)
        result = CU(cuModuleLoadFatBinary)(&module, &it->fat);
    else if (strcmp(name, "wrapped") == 0 || strcmp(name, "linked") == 0)
        result = CU(cuModuleLoadFatBinary)(&module, &it->wrapper);
    else
        result = CU(cuModuleLoadData)(&module, &it->cubin);
    if (!result) is_library ? CU(cuLibraryUnload)(library) : CU(cuModuleUnload)(module);
    return result;
}

static CUresult take_changing(const char *name, struct changing *it) {
    CUarray array;
    CUmipmappedArray mipmap;
    CUexternalMemory outside;
    CUresult result;
    if (strcmp(name, "array") == 0) {
        if (!(result = CU(cuArrayCreate_v2)(&array, &it->flat))) CU(cuArrayDestroy)(array);
    } else if (strcmp(name, "array3d") == 0) {
        if (!(result = CU(cuArray3DCreate_v2)(&array, &it->shape))) CU(cuArrayDestroy)(array);
    } else if (strcmp(name, "mipmap") == 0) {
        if (!(result = CU(cuMipmappedArrayCreate)(&mipmap, &it->shape, 1))) CU(cuMipmappedArrayDestroy)(mipmap);
    } else if (strcmp(name, "external") == 0) {
        if (!(result = CU(cuImportExternalMemory)(&outside, &it->outside))) CU(cuDestroyExternalMemory)(outside);
    } else {
        result = load_changing(name, it);
    }
    return result;
}

/* Take what another thread makes smaller and larger all the time, so many times; how often that passed. */
void take_while_changed(const char *name, uint64_t bytes, uint64_t times) {
    struct changing it = {.flat = {.width = 256, .height = 1, .format = 0x20, .channels = 1},
                          .shape = {.width = 256, .height = 1, .format = 0x20, .channels = 1},
                          .outside = {.type = 1, .size = 1 << 21},
                          .cubin = *cubin(1 << 21),
                          .fat = fat_cubin(1 << 21, 0),
                          .large = fat_cubin(bytes, 0),
                          .wrapper = {.magic = FAT_WRAPPER, .version = 1, .binary = &it.fat.fat},
                          .linked = {&it.fat.fat},
                          .bytes = bytes};
    pthread_t thread;
    int passed = 0;
    if (strcmp(name, "linked") == 0) it.wrapper.version = 2, it.wrapper.linked = it.linked;
    write_text(it.text, 1 << 21);
    if (strstr(name, "file")) it.file = cubin_file(1 << 21, it.path);
    pthread_create(&thread, NULL, change_it, &it);
    for (uint64_t i = 0; i < times; i++) passed += take_changing(name, &it) == CUDA_SUCCESS;
    it.over = true;
    pthread_join(thread, NULL);
    if (it.file) close(it.file);
    printf("%d\n", passed);
}
