/* The memory side of the fake driver's interface. */
#include <elf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "fake.h"
#include "fat.h"
#include "heap.h"
#include "world.h"

#define ROW 128ULL

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (fake_gpu() < 0) return CUDA_ERROR_INVALID_CONTEXT;
    CUdeviceptr taken = heap_take(fake_gpu(), bytes);
    if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = taken;
    return CUDA_SUCCESS;
}

/* A block that was taken by flags which are a word to wait by, and that word: it is waited by again once it is freed. Where
 * they are odd, the word before them is waited by before there is a block. */
static struct { _Atomic CUdeviceptr address; _Atomic int *come; } watched;

CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    bool before = flags > 2 && flags % 2;
    _Atomic int *come = flags > 2 && !before ? (_Atomic int *)(uintptr_t)flags : NULL;
    if (fake_gpu() < 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (before) fake_come_when_told((_Atomic int *)(uintptr_t)(flags - 1));
    bool apart = bytes && bytes < GRANULE_BYTES && fake_managed_is("apart");
    CUdeviceptr taken = heap_take_managed(fake_gpu(), apart ? GRANULE_BYTES : bytes);
    if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = taken;
    if (come) watched.come = come, watched.address = taken;
    fake_come_when_told(come);
    return CUDA_SUCCESS;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 511) & ~511ULL;
    return cuMemAlloc_v2(address, *pitch * height);
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    if (!address || fake_pool_free(address) || fake_graph_free(address)) return CUDA_SUCCESS;
    if (!heap_give(address)) return CUDA_ERROR_INVALID_VALUE;
    if (watched.address == address) {
        watched.address = 0;
        fake_come_when_told(watched.come);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    uint64_t left, all;
    if (fake_gpu() < 0) return CUDA_ERROR_INVALID_CONTEXT;
    world_free_memory(fake_gpu(), &left, &all);
    *free = left;
    *total = all;
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    uint64_t found, size;
    int gpu;
    if (!heap_find(address, &found, &size, &gpu)) return CUDA_ERROR_INVALID_VALUE;
    *base = found;
    *bytes = size;
    return CUDA_SUCCESS;
}

/* ------------------------------------------------------------------ arrays */

static uint64_t element_bytes(int format, unsigned channels) {
    return (format == 0x01 || format == 0x08 ? 1ULL : format == 0x03 || format == 0x0a || format == 0x20 ? 4 : 2) * channels;
}

static CUresult create_array(void **array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    uint64_t all = 0;
    if (fake_gpu() < 0) return CUDA_ERROR_INVALID_CONTEXT;
    for (unsigned level = 0; level < levels; level++) {
        uint64_t row = ((shape->width >> level) * element_bytes(shape->format, shape->channels) + ROW - 1) & ~(ROW - 1);
        uint64_t height = shape->height >> level, depth = shape->depth >> (shape->flags & 5 ? 0 : level);
        all += row * (height ? height : 1) * (depth ? depth : 1);
    }
    uint64_t address = heap_take(fake_gpu(), all);
    *array = (void *)(uintptr_t)address;
    return address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *flat) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .width = flat->width, .height = flat->height, .format = flat->format, .channels = flat->channels};
    return create_array((void **)array, &shape, 1);
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    return create_array((void **)array, shape, 1);
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    return create_array((void **)array, shape, levels);
}

CUresult cuArrayDestroy(CUarray array) {
    return heap_give((uintptr_t)array) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
    return heap_give((uintptr_t)array) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ------------------------------------------------------------------ of other processes and interfaces */

/* Of managed memory alone, wherever in it the address lies. */
static CUresult managed_attribute(void *value, int attribute, CUdeviceptr address) {
    uint64_t base, bytes;
    int yes = heap_find_managed(address, &base, &bytes);
    if (attribute == POINTER_IS_MANAGED) memcpy(value, &yes, sizeof yes);
    if (yes && attribute == POINTER_RANGE_START) memcpy(value, &base, sizeof base);
    if (yes && attribute == POINTER_RANGE_BYTES) memcpy(value, &bytes, sizeof bytes);
    return yes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address) {
    uint64_t base, bytes;
    int gpu;
    if (attribute != POINTER_KIND && attribute != POINTER_DEVICE) return managed_attribute(value, attribute, address);
    if (!heap_find(address, &base, &bytes, &gpu)) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == POINTER_KIND) gpu = 2;
    memcpy(value, &gpu, sizeof gpu);
    return CUDA_SUCCESS;
}

/* Memory of another interface is taken here as if that interface had taken it for this process. */
CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description) {
    uint64_t address = heap_take(fake_gpu(), description->size);
    *memory = (CUexternalMemory)(uintptr_t)address;
    return address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    return heap_give((uintptr_t)memory) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
    uint64_t id = heap_share(address);
    memset(handle, 0, sizeof *handle);
    memcpy(handle->bytes, &id, sizeof id);
    return id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags) {
    uint64_t id;
    (void)flags;
    memcpy(&id, handle.bytes, sizeof id);
    *address = heap_join_again(id);
    if (!*address) *address = heap_join(id);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    return heap_give(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ------------------------------------------------------------------ code */

/* A cubin takes what its sections say and its segments, text what it declares, a fat binary what its one entry is, and a wrapper all
 * fat binaries that it names. */
static uint64_t cubin_bytes(const Elf64_Ehdr *head) {
    const Elf64_Shdr *sections = (const void *)((const char *)head + head->e_shoff);
    uint64_t bytes = 0, count = head->e_shnum || !head->e_shoff ? head->e_shnum : sections[0].sh_size;
    for (uint64_t i = 0; i < count; i++) bytes += sections[i].sh_flags & SHF_ALLOC ? sections[i].sh_size : 0;
    const Elf64_Phdr *segments = (const void *)((const char *)head + head->e_phoff);
    for (int i = 0; i < head->e_phnum; i++) bytes += segments[i].p_memsz;
    return bytes;
}

static uint64_t text_bytes(const char *text) {
    const char *held = strstr(text, "held[");
    return held ? strtoull(held + 5, NULL, 0) * (strstr(text, ".v4 .f32") ? 16 : 1) : 0;
}

static uint64_t fat_bytes(const struct fat *fat) {
    const char *content = (const char *)(fat + 1), *cubin = memmem(content, fat->content, ELFMAG, SELFMAG);
    if (fat->kind == FAT_TEXT) return text_bytes(strstr(content, ".visible"));
    _Alignas(8) char image[256] = {0};
    memcpy(image, cubin, sizeof image < fat->content ? sizeof image : fat->content);
    return cubin_bytes((const void *)image);
}

/* By its entry or by what is inside: whichever a driver goes by, it may load this one. Of compute capability 9.0. */
static bool runs_here(const struct fat *fat) {
    const char *content = (const char *)(fat + 1), *cubin = memmem(content, fat->content, ELFMAG, SELFMAG);
    Elf64_Ehdr head;
    if (fat->kind == FAT_TEXT || !fat->machine || fat->machine == 10 * GENERATION) return true;
    memcpy(&head, cubin, sizeof head);
    return !head.e_flags || (head.e_flags >> 8 & 0xff) == 10 * GENERATION;
}

static uint64_t wrapped_bytes(const struct wrapper *wrapper) {
    uint64_t bytes = fat_bytes(wrapper->binary);
    for (const struct fat *const *linked = wrapper->linked; wrapper->version == 2 && *linked; linked++)
        bytes += fat_bytes(*linked);
    return bytes;
}

static CUresult load(void **code, const void *image) {
    uint64_t bytes = 4096;
    if (*(const uint32_t *)image == FAT_WRAPPER && !runs_here(((const struct wrapper *)image)->binary))
        return NO_BINARY_FOR_GPU;
    if (memcmp(image, ELFMAG, SELFMAG) == 0)
        bytes += cubin_bytes(image);
    else if (*(const uint32_t *)image == FAT_WRAPPER)
        bytes += wrapped_bytes(image);
    else if (*(const uint32_t *)image == FAT_BINARY)
        bytes += fat_bytes(image);
    else
        bytes += text_bytes(image);
    bool managed = *(const char *)image == '.' && strstr(image, ".attribute(.managed)");
    uint64_t address = (managed ? heap_take_managed : heap_take)(fake_gpu() < 0 ? 0 : fake_gpu(), bytes);
    *code = (void *)(uintptr_t)address;
    return address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
    return load((void **)module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    return load((void **)module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) {
    return load((void **)module, image);
}

static CUresult load_file(void **code, const char *path) {
    char image[4096] = {0};
    FILE *file = fopen(path, "re");
    if (!file) return CUDA_ERROR_NOT_FOUND;
    bool read = fread(image, 1, sizeof image - 1, file);
    fclose(file);
    return read ? load(code, image) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    return load_file((void **)module, file);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, int *jit, void **jit_values, unsigned jit_count,
                               int *options, void **values, unsigned count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return load_file((void **)library, file);
}

CUresult cuModuleUnload(CUmodule module) {
    return heap_give((uintptr_t)module) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Whatever its name: a module's variable is where its code is. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    uint64_t base, size;
    int gpu;
    (void)name;
    if (!heap_find((uintptr_t)module, &base, &size, &gpu)) return CUDA_ERROR_INVALID_HANDLE;
    if (address) *address = base;
    if (bytes) *bytes = size;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *jit, void **jit_values, unsigned jit_count,
                           int *options, void **values, unsigned count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return load((void **)library, image);
}

CUresult cuLibraryUnload(CUlibrary library) {
    return heap_give((uintptr_t)library) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
