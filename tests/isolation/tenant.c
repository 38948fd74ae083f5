/* A tenant: takes memory and GPU time in every way that the driver offers, as it is told on standard input, and answers
 * each line with one line. It finds the driver as any program does: by dlopen("libcuda.so.1"). */
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "copies.h"
#include "fake_cuda/fat.h"

#define MOST_HELD 65536
#include "../gpu/calling.h"

/* ------------------------------------------------------------------ ways to take memory */

static CUresult take_managed(struct held *h, uint64_t bytes) {
    return CU(cuMemAllocManaged)((CUdeviceptr *)&h->value, bytes, 1);
}

static CUresult take_pitched(struct held *h, uint64_t bytes) {
    size_t pitch;
    return CU(cuMemAllocPitch_v2)((CUdeviceptr *)&h->value, &pitch, 100, bytes / 100 + 1, 4);
}

static CUresult give_linear(struct held *h) {
    return CU(cuMemFree_v2)(h->value);
}

static CUresult take_async(struct held *h, uint64_t bytes) {
    return CU(cuMemAllocAsync)((CUdeviceptr *)&h->value, bytes, NULL);
}

static CUresult take_async_thread(struct held *h, uint64_t bytes) {
    return CU(cuMemAllocAsync_ptsz)((CUdeviceptr *)&h->value, bytes, NULL);
}

static CUresult give_async(struct held *h) {
    return CU(cuMemFreeAsync)(h->value, NULL);
}

static CUresult take_of_pool(struct held *h, uint64_t bytes, __typeof__(&cuMemAllocFromPoolAsync) allocate) {
    CUmemPoolProps properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    uint64_t keep = UINT64_MAX;
    CUmemoryPool pool;
    CUresult result = CU(cuMemPoolCreate)(&pool, &properties);
    if (result) return result;
    CU(cuMemPoolSetAttribute)(pool, 4, &keep);
    result = allocate((CUdeviceptr *)&h->value, bytes, pool, NULL);
    h->more = (uintptr_t)pool;
    if (result) CU(cuMemPoolDestroy)(pool);
    return result;
}

static CUresult take_pool(struct held *h, uint64_t bytes) {
    return take_of_pool(h, bytes, CU(cuMemAllocFromPoolAsync));
}

static CUresult take_pool_thread(struct held *h, uint64_t bytes) {
    return take_of_pool(h, bytes, CU(cuMemAllocFromPoolAsync_ptsz));
}

static CUresult give_pool_thread(struct held *h) {
    CU(cuMemFreeAsync_ptsz)(h->value, NULL);
    return CU(cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)h->more);
}

static CUresult give_pool(struct held *h) {
    CU(cuMemFreeAsync)(h->value, NULL);
    return CU(cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)h->more);
}

/* The pool is destroyed while its block is in use. */
static CUresult take_orphan(struct held *h, uint64_t bytes) {
    CUresult result = take_pool(h, bytes);
    if (!result) CU(cuMemPoolDestroy)((CUmemoryPool)(uintptr_t)h->more);
    return result;
}

static CUresult take_array(struct held *h, uint64_t bytes) {
    CUDA_ARRAY_DESCRIPTOR shape = {.width = 256, .height = bytes / 1024 + 1, .format = 0x20, .channels = 1};
    return CU(cuArrayCreate_v2)((CUarray *)&h->value, &shape);
}

static CUresult take_array3d(struct held *h, uint64_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {
        .width = 64, .height = 16, .depth = bytes / 4096 + 1, .format = 0x20, .channels = 1};
    return CU(cuArray3DCreate_v2)((CUarray *)&h->value, &shape);
}

static CUresult give_array(struct held *h) {
    return CU(cuArrayDestroy)((CUarray)(uintptr_t)h->value);
}

static CUresult take_mipmap(struct held *h, uint64_t bytes) {
    CUDA_ARRAY3D_DESCRIPTOR shape = {.width = 256, .height = bytes / 1024 + 1, .format = 0x20, .channels = 1};
    return CU(cuMipmappedArrayCreate)((CUmipmappedArray *)&h->value, &shape, 4);
}

static CUresult give_mipmap(struct held *h) {
    return CU(cuMipmappedArrayDestroy)((CUmipmappedArray)(uintptr_t)h->value);
}

static uint64_t whole(uint64_t bytes) {
    return (bytes + (2 << 20) - 1) >> 21 << 21;
}

static CUresult take_handle(struct held *h, uint64_t bytes) {
    CUmemAllocationProp properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    return CU(cuMemCreate)((CUhandle *)&h->value, whole(bytes), &properties, 0);
}

static CUresult give_handle(struct held *h) {
    return CU(cuMemRelease)(h->value);
}

/* Mapped and then released: only the mapping holds it. */
static CUresult take_mapped(struct held *h, uint64_t bytes) {
    CUhandle handle;
    CUmemAllocationProp properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    CUresult result = CU(cuMemCreate)(&handle, whole(bytes), &properties, 0);
    if (result) return result;
    CU(cuMemAddressReserve)((CUdeviceptr *)&h->value, whole(bytes), 0, 0, 0);
    result = CU(cuMemMap)(h->value, whole(bytes), 0, handle, 0);
    h->more = whole(bytes);
    CU(cuMemRelease)(handle);
    return result;
}

static CUresult give_mapped(struct held *h) {
    return CU(cuMemUnmap)(h->value, h->more);
}

/* Held by nothing but a descriptor. */
static CUresult take_exported(struct held *h, uint64_t bytes) {
    struct held handle;
    int file = -1;
    CUresult result = take_handle(&handle, bytes);
    if (result) return result;
    CU(cuMemExportToShareableHandle)(&file, handle.value, 1, 0);
    h->value = (uint64_t)file;
    return give_handle(&handle);
}

/* By two, which are closed before the handle is let go of. */
static CUresult take_exported_closed(struct held *h, uint64_t bytes) {
    int one = -1, two = -1;
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CU(cuMemExportToShareableHandle)(&one, h->value, 1, 0);
    CU(cuMemExportToShareableHandle)(&two, h->value, 1, 0);
    return close(one) || close(two) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult give_exported(struct held *h) {
    return close((int)h->value) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

/* Held by nothing but a sparse array, or by a multicast object that is never unbound. */
static CUresult take_sparse(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CUarrayMapInfo map = {.operation = MEMORY_MAP, .handle = h->value, .devices = 1};
    CU(cuMemMapArrayAsync)(&map, 1, NULL);
    return CU(cuMemRelease)(h->value);
}

static CUresult take_multicast(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CU(cuMulticastBindMem)(0, 0, h->value, 0, whole(bytes), 0);
    return CU(cuMemRelease)(h->value);
}

static CUresult take_multicast_address(struct held *h, uint64_t bytes) {
    CUresult result = take_mapped(h, bytes);
    if (result) return result;
    CU(cuMulticastBindAddr)(0, 0, h->value, h->more, 0);
    return CU(cuMemUnmap)(h->value, h->more);
}

static CUresult take_sparse_thread(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CUarrayMapInfo map = {.operation = MEMORY_MAP, .handle = h->value, .devices = 1};
    CU(cuMemMapArrayAsync_ptsz)(&map, 1, NULL);
    return CU(cuMemRelease)(h->value);
}

static CUresult take_multicast_two(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    CU(cuMulticastBindMem_v2)(0, 0, 0, h->value, 0, whole(bytes), 0);
    return CU(cuMemRelease)(h->value);
}

static CUresult take_multicast_address_two(struct held *h, uint64_t bytes) {
    CUresult result = take_mapped(h, bytes);
    if (result) return result;
    CU(cuMulticastBindAddr_v2)(0, 0, 0, h->value, h->more, 0);
    return CU(cuMemUnmap)(h->value, h->more);
}

/* By the handle's number, so that each has a place of its own. */
static CUresult take_unbindable(struct held *h, uint64_t bytes) {
    CUresult result = take_handle(h, bytes);
    if (result) return result;
    h->more = whole(bytes);
    if (!CU(cuMulticastBindMem)(0, h->value, h->value, 0, 0, 0)) exit(3); /* none at all: refused, and holds nothing */
    CU(cuMulticastBindMem)(0, h->value, h->value, 0, h->more, 0);
    return CU(cuMemRelease)(h->value);
}

static CUresult take_unbindable_address(struct held *h, uint64_t bytes) {
    CUresult result = take_mapped(h, bytes);
    if (result) return result;
    CU(cuMulticastBindAddr_v2)(0, 0, h->value, h->value, h->more, 0);
    return CU(cuMemUnmap)(h->value, h->more);
}

static CUresult give_unbound(struct held *h) {
    return CU(cuMulticastUnbind)(0, 0, h->value, h->more);
}

/* The object is let go of before it is unbound: by then its number may be another one's. */
static void unbind_too_late(uint64_t bytes) {
    CUmemAllocationProp elsewhere = {.type = 1, .location = {.type = LOCATION_DEVICE + 1}};
    CUhandle object;
    struct held h = {0};
    CUresult result = CU(cuMemCreate)(&object, 1 << 21, &elsewhere, 0);
    if (!result) result = take_handle(&h, bytes);
    if (!result) result = CU(cuMulticastBindMem)(object, 0, h.value, 0, bytes, 0);
    CU(cuMemRelease)(object);
    CU(cuMulticastUnbind)(object, 0, 0, bytes);
    CU(cuMemRelease)(h.value);
    printf("%d\n", result);
}

static CUresult give_nothing(struct held *h) {
    (void)h;
    return CUDA_SUCCESS;
}

static CUresult take_external(struct held *h, uint64_t bytes) {
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {.type = 1, .size = bytes};
    return CU(cuImportExternalMemory)((CUexternalMemory *)&h->value, &description);
}

static CUresult give_external(struct held *h) {
    return CU(cuDestroyExternalMemory)((CUexternalMemory)(uintptr_t)h->value);
}

static CUresult take_context(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUresult take_context_three(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v3)((CUcontext *)&h->value, NULL, 0, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUresult take_context_four(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v4)((CUcontext *)&h->value, NULL, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUresult give_context(struct held *h) {
    return CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)h->value);
}

/* It ends with the second detaching. */
static CUresult take_context_attached(struct held *h, uint64_t bytes) {
    CUcontext attached;
    (void)bytes;
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    if (!result) result = CU(cuCtxAttach)(&attached, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUresult give_context_attached(struct held *h) {
    CUresult result = CU(cuCtxDetach)((CUcontext)(uintptr_t)h->value);
    return result ? result : CU(cuCtxDetach)((CUcontext)(uintptr_t)h->value);
}

/* A cubin whose variables have no content in the file: small to carry, large to load. */
struct cubin { Elf64_Ehdr head; Elf64_Shdr section[2]; };

static const struct cubin *cubin(uint64_t bytes) {
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

static CUresult take_module(struct held *h, uint64_t bytes) {
    return CU(cuModuleLoadData)((CUmodule *)&h->value, cubin(bytes));
}

/* As many sections as its first one says: a form for those who have very many. */
static CUresult take_numbered(struct held *h, uint64_t bytes) {
    struct cubin image = *cubin(bytes);
    image.head.e_shnum = 0;
    image.section[0].sh_size = 2;
    return CU(cuModuleLoadData)((CUmodule *)&h->value, &image);
}

/* One that tells by segments alone what is loaded. */
static CUresult take_segment(struct held *h, uint64_t bytes) {
    struct { Elf64_Ehdr head; Elf64_Phdr segment; } image = {
        .head = {.e_phoff = sizeof image.head, .e_phentsize = sizeof image.segment, .e_phnum = 1},
        .segment = {.p_type = PT_LOAD, .p_memsz = bytes}};
    memcpy(image.head.e_ident, ELFMAG, SELFMAG);
    return CU(cuModuleLoadData)((CUmodule *)&h->value, &image);
}

/* A fat binary around a cubin, as it is or packed. */
struct fat_cubin {
    struct fat fat;
    _Alignas(8) unsigned char content[256];
};

/* As a packer does that finds nothing to gain: LZ4's literals alone, or one raw block of zstd. */
static const unsigned char lz4_head[] = {0xf0, sizeof(struct cubin) - 15};
static const unsigned char zstd_head[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, sizeof(struct cubin),
                                          (sizeof(struct cubin) << 3 & 0xff) | 1, sizeof(struct cubin) >> 5, 0};

static struct fat_cubin fat_cubin(uint64_t bytes, unsigned packing) {
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

static CUresult take_wrapped(struct held *h, uint64_t bytes) {
    return take_wrapper(h, bytes, 0);
}

static CUresult take_packed(struct held *h, uint64_t bytes) {
    return take_wrapper(h, bytes, FAT_LZ4);
}

static CUresult take_packed_zstd(struct held *h, uint64_t bytes) {
    return take_wrapper(h, bytes, FAT_ZSTD);
}

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

static CUresult take_private(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(bytes, FAT_LZ4);
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 1, .binary = &fat.fat};
    CUresult (*load)(uint64_t *module, const void *wrapper) = private_function(&runtime_table, 1);
    return load(&h->value, &wrapper);
}

static CUresult take_private_with(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(bytes, 0);
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 1, .binary = &fat.fat};
    CUresult (*load)(uint64_t *module, const void *wrapper, void *one, void *two, unsigned three) =
        private_function(&runtime_table, 6);
    return load(&h->value, &wrapper, NULL, NULL, 0);
}

static CUresult take_private_bare(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(bytes, FAT_ZSTD);
    CUresult (*load)(const void *binary, uint64_t *module, void *one, void *two, unsigned three) =
        private_function(&runtime_table, 8);
    return load(&fat, &h->value, NULL, NULL, 7);
}

static CUresult take_context_private(struct held *h, uint64_t bytes) {
    (void)bytes;
    CUresult (*create)(CUcontext *made, unsigned flags, CUdevice device) = private_function(&context_table, 1);
    CUresult result = create((CUcontext *)&h->value, 0, 0);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUresult take_linked(struct held *h, uint64_t bytes) {
    struct fat_cubin small = fat_cubin(4096, 0), large = fat_cubin(bytes, FAT_LZ4);
    const struct fat *const linked[] = {&small.fat, &large.fat, NULL};
    struct wrapper wrapper = {.magic = FAT_WRAPPER, .version = 2, .binary = &small.fat, .linked = linked};
    return CU(cuLibraryLoadData)((CUlibrary *)&h->value, &wrapper, NULL, NULL, 0, NULL, NULL, 0);
}

/* One as large as a library's, in a file that is mapped. */
#define LARGE_FAT (2UL << 20)

static CUresult take_fat_mapped(struct held *h, uint64_t bytes) {
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

/* What it takes stands in one word, so that a thread can change it at once. */
#define TEXT_FORMAT "//     \n.version 8.0\n.visible .global .align 4 .b8 held[%8llu00];\n"
#define TEXT_SIZE 56

static void write_text(char text[96], uint64_t bytes) {
    snprintf(text, 96, TEXT_FORMAT, (unsigned long long)(bytes + 99) / 100);
}

static CUresult take_declared(struct held *h, const char *format, uint64_t size) {
    char text[160];
    snprintf(text, sizeof text, format, (unsigned long long)size);
    return CU(cuModuleLoadDataEx)((CUmodule *)&h->value, text, 0, NULL, NULL);
}

static CUresult take_text(struct held *h, uint64_t bytes) {
    return take_declared(h, TEXT_FORMAT, (bytes + 99) / 100);
}

static CUresult take_text_hex(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global .b8 held[0x%llx];", bytes);
}

static CUresult take_text_vectors(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global .v4 .f32 held[%llu];", (bytes + 15) / 16);
}

static CUresult take_text_remark(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global /* ; = 0 */ .b8 small = 1, held[%llu];", bytes);
}

static CUresult take_text_dots(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0 .visible.global.align 4.b8 held[%llu];", bytes);
}

static CUresult take_text_percent(struct held *h, uint64_t bytes) {
    return take_declared(h, ".version 8.0\n.visible .global .b8 small, %%held[%llu];", bytes);
}

/* In a fat binary, where no cubin fits the GPU. */
static CUresult take_text_fat(struct held *h, uint64_t bytes) {
    struct fat_cubin fat = fat_cubin(0, 0);
    memset(fat.content, 0, sizeof fat.content);
    write_text((char *)fat.content, bytes);
    fat.fat.kind = FAT_TEXT;
    return CU(cuModuleLoadData)((CUmodule *)&h->value, &fat);
}

static CUresult give_module(struct held *h) {
    return CU(cuModuleUnload)((CUmodule)(uintptr_t)h->value);
}

static CUresult take_fat(struct held *h, uint64_t bytes) {
    return CU(cuModuleLoadFatBinary)((CUmodule *)&h->value, cubin(bytes));
}

/* The same in a file that nobody has to remove. */
static int cubin_file(uint64_t bytes, char path[32]) {
    int file = memfd_create("cubin", 0);
    snprintf(path, 32, "/proc/self/fd/%d", file);
    if (write(file, cubin(bytes), sizeof(struct cubin)) != sizeof(struct cubin)) exit(3);
    return file;
}

static CUresult take_file(struct held *h, uint64_t bytes) {
    char path[32];
    int file = cubin_file(bytes, path);
    CUresult result = CU(cuModuleLoad)((CUmodule *)&h->value, path);
    close(file);
    return result;
}

static CUresult take_library_file(struct held *h, uint64_t bytes) {
    char path[32];
    int file = cubin_file(bytes, path);
    CUresult result = CU(cuLibraryLoadFromFile)((CUlibrary *)&h->value, path, NULL, NULL, 0, NULL, NULL, 0);
    close(file);
    return result;
}

static CUresult take_library(struct held *h, uint64_t bytes) {
    return CU(cuLibraryLoadData)((CUlibrary *)&h->value, cubin(bytes), NULL, NULL, 0, NULL, NULL, 0);
}

static CUresult give_library(struct held *h) {
    return CU(cuLibraryUnload)((CUlibrary)(uintptr_t)h->value);
}

static CUgraph allocating(uint64_t bytes) {
    CUgraph graph;
    CUgraphNode node;
    CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
        .properties = {.type = 1, .location = {.type = LOCATION_DEVICE}}, .bytes = bytes};
    CU(cuGraphCreate)(&graph, 0);
    CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &parameters);
    return graph;
}

/* What a launch or an upload said of it: without that it takes nothing. */
static CUresult begun(struct held *h, CUresult result) {
    if (result) CU(cuGraphExecDestroy)((CUgraphExec)(uintptr_t)h->value);
    return result;
}

static CUresult take_graph(struct held *h, uint64_t bytes) {
    CUresult result = CU(cuGraphInstantiateWithFlags)((CUgraphExec *)&h->value, allocating(bytes), 0);
    return result ? result : begun(h, CU(cuGraphLaunch)((CUgraphExec)(uintptr_t)h->value, NULL));
}

static CUresult take_graph_thread(struct held *h, uint64_t bytes) {
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
    CUresult result = CU(cuGraphInstantiateWithParams_ptsz)((CUgraphExec *)&h->value, allocating(bytes), &how);
    return result ? result : begun(h, CU(cuGraphLaunch_ptsz)((CUgraphExec)(uintptr_t)h->value, NULL));
}

static CUresult take_graph_upload(struct held *h, uint64_t bytes) {
    CUresult result = CU(cuGraphInstantiate)((CUgraphExec *)&h->value, allocating(bytes), NULL, NULL, 0);
    return result ? result : begun(h, CU(cuGraphUpload)((CUgraphExec)(uintptr_t)h->value, NULL));
}

static CUresult take_graph_upload_thread(struct held *h, uint64_t bytes) {
    CUresult result = CU(cuGraphInstantiate_v2)((CUgraphExec *)&h->value, allocating(bytes), NULL, NULL, 0);
    return result ? result : begun(h, CU(cuGraphUpload_ptsz)((CUgraphExec)(uintptr_t)h->value, NULL));
}

/* Uploaded as it is made, and never launched. */
static CUresult take_graph_made(struct held *h, uint64_t bytes) {
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = INSTANTIATE_UPLOAD};
    return CU(cuGraphInstantiateWithParams)((CUgraphExec *)&h->value, allocating(bytes), &how);
}

static CUresult take_graph_made_thread(struct held *h, uint64_t bytes) {
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = INSTANTIATE_UPLOAD};
    return CU(cuGraphInstantiateWithParams_ptsz)((CUgraphExec *)&h->value, allocating(bytes), &how);
}

static CUresult give_graph(struct held *h) {
    CU(cuGraphExecDestroy)((CUgraphExec)(uintptr_t)h->value);
    return CU(cuDeviceGraphMemTrim)(0);
}

static CUresult take_heap(struct held *h, uint64_t bytes) {
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    if (result) return result;
    result = CU(cuCtxSetLimit)(LIMIT_HEAP, bytes);
    if (!result) result = CU(cuCtxSetLimit)(LIMIT_PRINTF, bytes);
    if (result) CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)h->value);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static CUresult take_stack(struct held *h, uint64_t bytes) {
    int multiprocessors, threads;
    CUresult result = CU(cuCtxCreate_v2)((CUcontext *)&h->value, 0, 0);
    if (result) return result;
    CU(cuDeviceGetAttribute)(&multiprocessors, DEVICE_MULTIPROCESSORS, 0);
    CU(cuDeviceGetAttribute)(&threads, DEVICE_THREADS_A_MULTIPROCESSOR, 0);
    result = CU(cuCtxSetLimit)(LIMIT_STACK, 1024 + bytes / (size_t)(multiprocessors * threads));
    if (result) CU(cuCtxDestroy_v2)((CUcontext)(uintptr_t)h->value);
    CU(cuCtxSetCurrent)(context);
    return result;
}

static const struct way {
    const char *name;
    CUresult (*take)(struct held *h, uint64_t bytes), (*give)(struct held *h);
} ways[] = {
    {"linear", take_linear, give_linear},
    {"managed", take_managed, give_linear},
    {"pitched", take_pitched, give_linear},
    {"async", take_async, give_async},
    {"async-thread", take_async_thread, give_async},
    {"pool", take_pool, give_pool},
    {"pool-thread", take_pool_thread, give_pool_thread},
    {"array", take_array, give_array},
    {"array3d", take_array3d, give_array},
    {"mipmap", take_mipmap, give_mipmap},
    {"handle", take_handle, give_handle},
    {"mapped", take_mapped, give_mapped},
    {"unbindable", take_unbindable, give_unbound},
    {"unbindable-address", take_unbindable_address, give_unbound},
    {"exported", take_exported, give_exported},
    {"exported-closed", take_exported_closed, give_handle},
    {"external", take_external, give_external},
    {"context", take_context, give_context},
    {"context-three", take_context_three, give_context},
    {"context-four", take_context_four, give_context},
    {"context-attached", take_context_attached, give_context_attached},
    {"module", take_module, give_module},
    {"fat", take_fat, give_module},
    {"file", take_file, give_module},
    {"text", take_text, give_module},
    {"numbered", take_numbered, give_module},
    {"segment", take_segment, give_module},
    {"wrapped", take_wrapped, give_module},
    {"packed", take_packed, give_module},
    {"packed-zstd", take_packed_zstd, give_module},
    {"linked", take_linked, give_library},
    {"fat-mapped", take_fat_mapped, give_library},
    {"private", take_private, give_module},
    {"private-with", take_private_with, give_module},
    {"private-bare", take_private_bare, give_module},
    {"context-private", take_context_private, give_context},
    {"text-hex", take_text_hex, give_module},
    {"text-dots", take_text_dots, give_module},
    {"text-percent", take_text_percent, give_module},
    {"text-vectors", take_text_vectors, give_module},
    {"text-remark", take_text_remark, give_module},
    {"text-fat", take_text_fat, give_module},
    {"library", take_library, give_library},
    {"library-file", take_library_file, give_library},
    {"graph", take_graph, give_graph},
    {"graph-thread", take_graph_thread, give_graph},
    {"graph-upload", take_graph_upload, give_graph},
    {"graph-upload-thread", take_graph_upload_thread, give_graph},
    {"graph-made", take_graph_made, give_graph},
    {"graph-made-thread", take_graph_made_thread, give_graph},
    {"heap", take_heap, give_context},
    {"stack", take_stack, give_context},
    {"orphan", take_orphan, give_async},
    {"sparse", take_sparse, give_nothing},
    {"multicast", take_multicast, give_nothing},
    {"multicast-address", take_multicast_address, give_nothing},
    {"sparse-thread", take_sparse_thread, give_nothing},
    {"multicast-two", take_multicast_two, give_nothing},
    {"multicast-address-two", take_multicast_address_two, give_nothing},
};
#define WAYS ((int)(sizeof ways / sizeof *ways))
#define WAYS_BACK (WAYS - 6) /* the last ones lead nowhere back */

static CUresult take(int way, uint64_t bytes) {
    if (held_count == MOST_HELD) return -1;
    struct held *h = &held[held_count];
    *h = (struct held){.way = way};
    CUresult result = ways[way].take(h, bytes);
    if (result == CUDA_SUCCESS) held_count++;
    return result;
}

static CUresult give(int index) {
    struct held gone = held[index];
    held[index] = held[--held_count];
    return ways[gone.way].give(&gone);
}

static int way_of(const char *name) {
    for (int way = 0; way < WAYS; way++)
        if (strcmp(ways[way].name, name) == 0) return way;
    return -1;
}

/* ------------------------------------------------------------------ ways to use the GPU */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static CUgraphExec graph_of(unsigned microseconds) {
    CUgraph graph;
    CUgraphNode node;
    CUgraphExec exec;
    struct { void *function; unsigned shape[6], shared; void **parameters, **extra, *more[2]; } kernel = {0};
    kernel.shape[0] = microseconds;
    CU(cuGraphCreate)(&graph, 0);
    CU(cuGraphAddKernelNode)(&node, graph, NULL, 0, &kernel);
    CU(cuGraphInstantiateWithFlags)(&exec, graph, 0);
    return exec;
}

/* To the block that was taken first, or from it to itself; each byte takes the fake GPU a nanosecond. */
static void fill_or_copy(const char *how, size_t bytes) {
    CUdeviceptr block = held[0].value, host = (uintptr_t)&host;
    struct flat_copy flat = {.to = {.kind = 4, .device = block}, .from = {.kind = 2, .device = block}, .width = bytes, .height = 1};
    if (strcmp(how, "fill") == 0)
        CU(cuMemsetD8_v2)(block, 0, bytes);
    else if (strcmp(how, "fill-later") == 0)
        CU(cuMemsetD32Async)(block, 0, bytes / 4, NULL);
    else if (strcmp(how, "copy") == 0)
        CU(cuMemcpyDtoDAsync_v2)(block, block, bytes, NULL);
    else if (strcmp(how, "copy-any") == 0)
        CU(cuMemcpyAsync)(block, block, bytes, NULL);
    else if (strcmp(how, "copy-flat") == 0)
        CU(cuMemcpy2DAsync_v2)(&flat, NULL);
    else if (strcmp(how, "copy-batch") == 0)
        CU(cuMemcpyBatchAsync_v2)(&block, &block, &bytes, 1, NULL, NULL, 0, NULL);
    else if (strcmp(how, "copy-host") == 0)
        CU(cuMemcpyAsync)(block, host, bytes, NULL);
    else
        exit(4);
}

/* As few programs do. */
static void launch_seldom(const char *how, unsigned microseconds, CUgraphExec graph) {
    CUlaunchConfig config = {.grid_x = microseconds, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
    CUDA_LAUNCH_PARAMS each = {.grid_x = microseconds, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
    if (strcmp(how, "config-thread") == 0)
        CU(cuLaunchKernelEx_ptsz)(&config, NULL, NULL, NULL);
    else if (strcmp(how, "cooperative-thread") == 0)
        CU(cuLaunchCooperativeKernel_ptsz)(NULL, microseconds, 1, 1, 1, 1, 1, 0, NULL, NULL);
    else if (strcmp(how, "cooperative-several") == 0)
        CU(cuLaunchCooperativeKernelMultiDevice)(&each, 1, 0);
    else if (strcmp(how, "graph-thread") == 0)
        CU(cuGraphLaunch_ptsz)(graph, NULL);
    else if (strcmp(how, "plain") == 0)
        CU(cuLaunch)(NULL);
    else if (strcmp(how, "grid") == 0)
        CU(cuLaunchGrid)(NULL, (int)microseconds, 1);
    else if (strcmp(how, "grid-later") == 0)
        CU(cuLaunchGridAsync)(NULL, (int)microseconds, 1, NULL);
    else
        fill_or_copy(how, 1000ULL * microseconds);
}

static void launch(const char *how, unsigned microseconds, CUgraphExec graph) {
    CUlaunchConfig config = {.grid_x = microseconds, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
    if (strcmp(how, "kernel") == 0)
        CU(cuLaunchKernel)(NULL, microseconds, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    else if (strcmp(how, "thread") == 0)
        CU(cuLaunchKernel_ptsz)(NULL, microseconds, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    else if (strcmp(how, "config") == 0)
        CU(cuLaunchKernelEx)(&config, NULL, NULL, NULL);
    else if (strcmp(how, "cooperative") == 0)
        CU(cuLaunchCooperativeKernel)(NULL, microseconds, 1, 1, 1, 1, 1, 0, NULL, NULL);
    else if (strcmp(how, "graph") == 0)
        CU(cuGraphLaunch)(graph, NULL);
    else
        launch_seldom(how, microseconds, graph);
}

/* Launch for so long, waiting for the GPU after every `batch` launches as a training step does; `idle` microseconds of
 * the host's own work after each wait. */
static void use(double seconds, const char *how, unsigned microseconds, int batch, unsigned idle) {
    CUgraphExec graph = strncmp(how, "graph", 5) == 0 ? graph_of(microseconds) : NULL;
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9), launches = 0, slowest = 0;
    while (now_ns() < end) {
        uint64_t start = now_ns();
        for (int i = 0; i < batch; i++, launches++) launch(how, microseconds, graph);
        CU(cuCtxSynchronize)();
        if (now_ns() - start > slowest) slowest = now_ns() - start;
        if (idle) nanosleep(&(struct timespec){.tv_nsec = idle * 1000L}, NULL);
    }
    printf("%llu %llu\n", (unsigned long long)launches, (unsigned long long)slowest);
}

struct user {
    pthread_t thread;
    double seconds;
    unsigned micros;
};

static void *use_alone(void *with) {
    struct user *user = with;
    uint64_t end = now_ns() + (uint64_t)(user->seconds * 1e9);
    CU(cuCtxSetCurrent)(context);
    while (now_ns() < end) launch("kernel", user->micros, NULL);
    return NULL;
}

/* Many threads launch at once, for so long. */
static void crowd(int count, double seconds, unsigned micros) {
    struct user users[64];
    for (int i = 0; i < count && i < 64; i++) {
        users[i] = (struct user){.seconds = seconds, .micros = micros};
        pthread_create(&users[i].thread, NULL, use_alone, &users[i]);
    }
    for (int i = 0; i < count && i < 64; i++) pthread_join(users[i].thread, NULL);
    puts("0");
}

/* What is given to a stream of the second GPU while the first one's context is current: kernels as of a library. */
static void astray(const char *how, double seconds, unsigned micros) {
    CUgraphExec graph = strcmp(how, "graph") == 0 ? graph_of(micros) : NULL;
    CUcontext other;
    CUstream stream;
    if (CU(cuDevicePrimaryCtxRetain)(&other, 1) != CUDA_SUCCESS) exit(5);
    CU(cuCtxSetCurrent)(other);
    CU(cuStreamCreate)(&stream, 0);
    CU(cuCtxSetCurrent)(context);
    for (uint64_t end = now_ns() + (uint64_t)(seconds * 1e9); now_ns() < end;) {
        for (int i = 0; i < 20; i++) {
            if (graph)
                CU(cuGraphLaunch)(graph, stream);
            else if (strcmp(how, "fill") == 0)
                CU(cuMemsetD32Async)(held[0].value, 0, 250 * micros, stream);
            else
                CU(cuLaunchKernel)(NULL, micros, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
        }
        CU(cuStreamSynchronize)(stream);
    }
    puts("0");
}

/* Many short kernels teach how long a launch takes; then a long one follows each short one at once, and nothing is asked
 * for until it is over. On streams of their own, they end at once. */
static void sneak(const char *how, double seconds, unsigned milliseconds) {
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < 2000; i++) launch("kernel", 1, NULL);
    CU(cuCtxSynchronize)();
    while (now_ns() < end) {
        CUstream stream = NULL;
        if (strcmp(how, "stream") == 0) {
            launch("kernel", 1, NULL);
            CU(cuStreamCreate)(&stream, 0);
            CU(cuLaunchKernel)(NULL, 1000 * milliseconds, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
            CU(cuStreamDestroy_v2)(stream);
        } else {
            launch(how, 1, NULL);
            launch(how, 1000 * milliseconds, NULL);
        }
        nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL);
    }
    puts("0");
}

/* Launches that a capture takes up. */
static void capture(int count) {
    CUstream stream;
    CUgraph graph;
    CU(cuStreamCreate)(&stream, 0);
    CU(cuStreamBeginCapture_v2)(stream, 0);
    for (int i = 0; i < count; i++) CU(cuLaunchKernel)(NULL, 1000, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    CU(cuStreamEndCapture)(stream, &graph);
    CU(cuStreamDestroy_v2)(stream);
    puts("0");
}

static int by_size(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* Answer requests for so long, each a batch of kernels, with `idle` microseconds in between; how many there were, and how
 * many microseconds half of them, 99 of 100 and all took at most. */
static void serve(double seconds, unsigned microseconds, int batch, unsigned idle) {
    static uint64_t took[1 << 16];
    uint64_t end = now_ns() + (uint64_t)(seconds * 1e9);
    size_t count = 0;
    while (now_ns() < end && count < sizeof took / sizeof *took) {
        uint64_t start = now_ns();
        for (int i = 0; i < batch; i++) launch("kernel", microseconds, NULL);
        CU(cuCtxSynchronize)();
        took[count++] = (now_ns() - start) / 1000;
        nanosleep(&(struct timespec){.tv_nsec = idle * 1000L}, NULL);
    }
    qsort(took, count, sizeof *took, by_size);
    printf("%zu %llu %llu %llu\n", count, (unsigned long long)took[count / 2],
           (unsigned long long)took[count * 99 / 100], (unsigned long long)took[count - 1]);
}

/* ------------------------------------------------------------------ what it is told */

/* Go on with another copy of the library, which is loaded beside the first one: what is held stays held. */
static void load_again(const char *path) {
    driver = dlopen(path, RTLD_NOW);
    printf("%d\n", driver ? 0 : 1);
}

/* The same in a namespace of the linker's own, where even the driver is another copy. */
static void load_apart(const char *path) {
    driver = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
    printf("%d\n", driver ? 0 : 1);
}

static uint64_t seed;

static uint64_t random_below(uint64_t most) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % most;
}

static uint64_t random_size(void) {
    return 1 + (random_below(1ULL << 24) >> random_below(20));
}

static void fill(const char *name, uint64_t bytes) {
    int count = 0, way = way_of(name);
    CUresult result;
    while ((result = take(way, bytes)) == CUDA_SUCCESS) count++;
    printf("%d %d\n", count, result);
}

static CUresult start(void) {
    CUresult result = CU(cuInit)(0);
    if (!result) result = CU(cuDevicePrimaryCtxRetain)(&context, 0);
    if (result) context = NULL;
    if (!result) result = CU(cuCtxSetCurrent)(context);
    return result;
}

static void churn(unsigned long long steps) {
    unsigned long long refused = 0;
    while (!context && start() != CUDA_SUCCESS) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (unsigned long long i = 0; i < steps; i++) {
        if (held_count && random_below(100) < 45)
            give((int)random_below((uint64_t)held_count));
        else if (take((int)random_below(WAYS_BACK), random_size()) != CUDA_SUCCESS)
            refused++;
    }
    printf("%d %llu\n", held_count, refused);
}

static void empty(void) {
    while (held_count) give(held_count - 1);
    CU(cuCtxSynchronize)();
    puts("0");
}

static void info(void) {
    size_t left = 0, total = 0, device = 0;
    CUresult result = CU(cuMemGetInfo_v2)(&left, &total);
    CU(cuDeviceTotalMem_v2)(&device, 0);
    printf("%d %zu %zu %zu\n", result, left, total, device);
}

static void export_first(bool of_pool) {
    CUipcMemHandle handle = {0};
    CUresult result = of_pool ? CU(cuMemPoolExportPointer)(&handle, held[0].value)
                              : CU(cuIpcGetMemHandle)(&handle, held[0].value);
    printf("%d ", result);
    for (int i = 0; i < 64; i++) printf("%02x", handle.bytes[i]);
    puts("");
}

static void import(const char *text, bool of_pool, bool old) {
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    for (int i = 0; i < 64; i++) sscanf(text + 2 * i, "%2hhx", &handle.bytes[i]);
    CUresult result = of_pool ? CU(cuMemPoolImportPointer)(&address, NULL, &handle)
                    : old   ? CU(cuIpcOpenMemHandle)(&address, handle, 1)
                            : CU(cuIpcOpenMemHandle_v2)(&address, handle, 1);
    printf("%d %llu\n", result, address);
}

/* Twice, what nobody can weigh. */
static void load_unread(void) {
    CUmodule module;
    int first = CU(cuModuleLoadData)(&module, ".version 8.0\n.newspace .b8 held[100];");
    printf("%d %d\n", first, CU(cuModuleLoadData)(&module, "\177Tile"));
}

/* By the private function that the runtime asks for it. */
static void get_primary(void) {
    CUresult (*get)(CUcontext *primary, CUdevice device) = private_function(&runtime_table, 2);
    CUcontext primary = NULL;
    CUresult result = CU(cuInit)(0) + get(&primary, 0);
    printf("%d\n", result + CU(cuCtxSetCurrent)(primary));
}

static CUgreenCtx green;

static void make_green(void) {
    printf("%d\n", CU(cuInit)(0) + CU(cuGreenCtxCreate)(&green, NULL, 0, 0));
}

/* Take what a stream of another GPU gives, with the first GPU's context current. */
static void fill_elsewhere(uint64_t bytes) {
    CUcontext other;
    CUstream stream;
    CUdeviceptr address;
    int count = 0;
    if (CU(cuDevicePrimaryCtxRetain)(&other, 1) != CUDA_SUCCESS) exit(5);
    CU(cuCtxSetCurrent)(other);
    CU(cuStreamCreate)(&stream, 0);
    CU(cuCtxSetCurrent)(context);
    CUresult result;
    while ((result = CU(cuMemAllocAsync)(&address, bytes, stream)) == CUDA_SUCCESS) count++;
    printf("%d %d\n", count, result);
}

static void export_handle(void) {
    int file = -1;
    CUresult result = CU(cuMemExportToShareableHandle)(&file, held[0].value, 1, 0);
    printf("%d /proc/%d/fd/%d\n", result, getpid(), file);
}

static int way_through[2] = {-1, -1};

/* Close the first one's descriptor while a copy of it is on its way to somebody who may never read it. */
static void send_descriptor(void) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec content = {&byte, 1};
    struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    *(int *)(void *)CMSG_DATA(head) = (int)held[0].value;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, way_through) || sendmsg(way_through[0], &message, 0) != 1) exit(3);
    printf("%d\n", give(0));
}

static void close_way(void) {
    printf("%d\n", close(way_through[0]) + close(way_through[1]));
}

static void import_handle(const char *path) {
    CUhandle handle = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    printf("%d\n", CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)file, 1));
}

struct thief {
    pthread_t thread;
    const struct way *way;
    uint64_t bytes;
    int taken;
};

static void *steal(void *with) {
    struct thief *thief = with;
    struct held h = {0};
    CU(cuCtxSetCurrent)(context);
    while (thief->way->take(&h, thief->bytes) == CUDA_SUCCESS) thief->taken++;
    return NULL;
}

/* Many threads take at once, until each is refused. */
static void race(const char *name, uint64_t bytes) {
    struct thief thieves[16];
    int taken = 0;
    for (int i = 0; i < 16; i++) {
        thieves[i] = (struct thief){.way = &ways[way_of(name)], .bytes = bytes};
        pthread_create(&thieves[i].thread, NULL, steal, &thieves[i]);
    }
    for (int i = 0; i < 16; i++) pthread_join(thieves[i].thread, NULL), taken += thieves[i].taken;
    printf("%d\n", taken);
}

struct mapper {
    CUdeviceptr address;
    CUhandle handle;
    uint64_t bytes;
    _Atomic int *come; /* what a map of it waits for, or NULL */
};

static void *map_it(void *with) {
    struct mapper *mapper = with;
    CU(cuCtxSetCurrent)(context);
    CU(cuMemMap)(mapper->address, mapper->bytes, 0, mapper->handle, (uintptr_t)mapper->come);
    return NULL;
}

/* Release a handle as soon as another thread's mapping of it can be seen, be that call over or not. */
static void release_while_mapped(uint64_t bytes) {
    struct mapper mapper = {.bytes = whole(bytes)};
    CUmemAllocationProp properties = {.type = 1, .location = {.type = LOCATION_DEVICE}};
    CUhandle again;
    pthread_t thread;
    CUresult result = CU(cuMemCreate)(&mapper.handle, mapper.bytes, &properties, 0);
    CU(cuMemAddressReserve)(&mapper.address, mapper.bytes, 0, 0, 0);
    pthread_create(&thread, NULL, map_it, &mapper);
    while (CU(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)mapper.address) != CUDA_SUCCESS) {}
    CU(cuMemRelease)(again);
    CU(cuMemRelease)(mapper.handle);
    pthread_join(thread, NULL);
    printf("%d\n", result);
}

/* Take a handle while another thread's mapping of what nobody is charged for waits until that is done. */
static void take_while_mapping_waits(uint64_t bytes) {
    _Atomic int come = 0;
    struct mapper mapper = {.bytes = 1 << 21, .come = &come};
    CUmemAllocationProp elsewhere = {.type = 1, .location = {.type = LOCATION_DEVICE + 1}};
    struct held taken;
    pthread_t thread;
    CU(cuMemCreate)(&mapper.handle, mapper.bytes, &elsewhere, 0);
    CU(cuMemAddressReserve)(&mapper.address, mapper.bytes, 0, 0, 0);
    pthread_create(&thread, NULL, map_it, &mapper);
    while (!come) {}
    CUresult result = take_handle(&taken, bytes);
    come = 2;
    pthread_join(thread, NULL);
    if (!result) result = CU(cuMemUnmap)(mapper.address, mapper.bytes);
    if (!result) result = CU(cuMemRelease)(mapper.handle);
    printf("%d\n", result ? result : give_handle(&taken));
}

static void *destroy_it(void *with) {
    CU(cuCtxDestroy_v2)(*(CUcontext *)with);
    return NULL;
}

/* Make a context where another thread's was, as soon as that is seen to be gone, be that call over or not. */
static void replace_context(uint64_t bytes) {
    CUcontext first, next;
    CUdeviceptr address;
    pthread_t thread;
    CU(cuCtxCreate_v2)(&first, 0, 0);
    pthread_create(&thread, NULL, destroy_it, &first);
    while (CU(cuCtxSetCurrent)(first) == CUDA_SUCCESS) {}
    CUresult result = CU(cuCtxCreate_v2)(&next, 0, 0);
    if (!result) result = CU(cuMemAlloc_v2)(&address, bytes);
    pthread_join(thread, NULL);
    printf("%d %d\n", result, first == next);
}

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
static void take_while_changed(const char *name, uint64_t bytes, uint64_t times) {
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

/* A page where an answer is expected. It is closed whenever nobody may have touched it but once: who writes there is let
 * through for one instruction, and whoever comes next finds the answer of before in its place. What the program itself
 * finds there is what was written. */
static struct swapping_page {
    struct held *held;
    uint64_t other, answer;
    unsigned touched;
} page;

#define PAGE 4096

static void open_page(bool open) {
    mprotect(page.held, PAGE, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

#if defined(__x86_64__)
extern const char __executable_start, etext;

static void touched(int signal, siginfo_t *at, void *with) {
    greg_t *registers = ((ucontext_t *)with)->uc_mcontext.gregs;
    const char *who = (const char *)registers[REG_RIP];
    (void)signal, (void)at;
    open_page(true);
    if (who >= &__executable_start && who < &etext) {
        if (page.answer) page.held->value = page.answer;
        return;
    }
    if (page.touched++ == 1) page.answer = page.held->value, page.held->value = page.other;
    if (page.touched == 1) registers[REG_EFL] |= 0x100; /* a trap behind the next instruction */
}

static void stepped(int signal, siginfo_t *at, void *with) {
    (void)signal, (void)at;
    ((ucontext_t *)with)->uc_mcontext.gregs[REG_EFL] &= ~0x100LL;
    open_page(false);
}

static void watch_page(void) {
    struct sigaction how = {.sa_flags = SA_SIGINFO, .sa_sigaction = touched};
    sigaction(SIGSEGV, &how, NULL);
    how.sa_sigaction = stepped;
    sigaction(SIGTRAP, &how, NULL);
}
#else
static void watch_page(void) {
    puts("no single steps on this machine");
    exit(6);
}
#endif

/* Take a small one and then a large one, whose answer is changed into the small one's if anybody reads it before us; and
 * give the small one. How many large ones passed, and how often the place of an answer was touched by others at most. */
static void take_with_answer_swapped(const char *name, uint64_t bytes, int times) {
    const struct way *way = &ways[way_of(name)];
    int passed = 0;
    unsigned most = 0;
    page.held = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    watch_page();
    for (int i = 0; i < times; i++) {
        struct held small = {0};
        if (way->take(&small, 1 << 21) != CUDA_SUCCESS) break;
        *page.held = (struct held){0};
        page.other = small.value, page.answer = 0, page.touched = 0;
        open_page(false);
        passed += way->take(page.held, bytes) == CUDA_SUCCESS;
        open_page(true);
        way->give(&small);
        if (page.touched > most) most = page.touched;
    }
    printf("%d %u\n", passed, most);
}

#define LONG_LIST 512 /* takes a while to read */

struct swapping {
    CUarrayMapInfo maps[LONG_LIST];
    CUhandle handles[2];
    _Atomic bool over;
};

static void *swap_it(void *with) {
    struct swapping *swapping = with;
    for (uint64_t i = 0; !swapping->over; i++) *(volatile CUhandle *)&swapping->maps[0].handle = swapping->handles[i % 2];
    return NULL;
}

/* Map a small handle or a large one to an array, whichever another thread has put into the list by then. */
static void map_swapped(CUhandle small, CUhandle large, __typeof__(&cuMemMapArrayAsync) map) {
    struct swapping it = {.handles = {small, large}};
    pthread_t thread;
    for (int i = 0; i < LONG_LIST; i++)
        it.maps[i] = (CUarrayMapInfo){.operation = MEMORY_MAP, .handle = small, .devices = 1};
    pthread_create(&thread, NULL, swap_it, &it);
    while (*(volatile CUhandle *)&it.maps[0].handle != large) {}
    while (*(volatile CUhandle *)&it.maps[0].handle != small) {}
    map(it.maps, LONG_LIST, NULL);
    it.over = true;
    pthread_join(thread, NULL);
}

/* Both are released each time, until another small one or large one is refused. */
static void swap_while_mapped(bool threads, uint64_t bytes) {
    struct held small, large;
    int count = 0;
    for (bool fits = true; fits && take_handle(&small, 1 << 21) == CUDA_SUCCESS; give_handle(&small)) {
        fits = take_handle(&large, bytes) == CUDA_SUCCESS;
        if (!fits) continue;
        map_swapped(small.value, large.value, threads ? CU(cuMemMapArrayAsync_ptsz) : CU(cuMemMapArrayAsync));
        give_handle(&large);
        count++;
    }
    printf("%d\n", count);
}

struct binding {
    _Atomic int asked; /* the fake driver's object: how many it was asked to bind */
    CUdeviceptr address;
    CUhandle handle;
    const char *how;
    CUresult result;
};

static void *bind_it(void *with) {
    struct binding *it = with;
    CUhandle object = (uintptr_t)&it->asked;
    CU(cuCtxSetCurrent)(context);
    if (strcmp(it->how, "multicast") == 0)
        it->result = CU(cuMulticastBindMem)(object, 0, it->handle, 0, 1 << 21, 0);
    else if (strcmp(it->how, "multicast-two") == 0)
        it->result = CU(cuMulticastBindMem_v2)(object, 0, 0, it->handle, 0, 1 << 21, 0);
    else if (strcmp(it->how, "multicast-address") == 0)
        it->result = CU(cuMulticastBindAddr)(object, 0, it->address, 1 << 21, 0);
    else
        it->result = CU(cuMulticastBindAddr_v2)(object, 0, 0, it->address, 1 << 21, 0);
    return NULL;
}

/* Put a large handle in the place of the small one that another thread is binding: at its address and, where the driver
 * gives out the same number again, by that number. Nothing else holds either afterwards. */
static void bind_while_replaced(const char *how, uint64_t bytes) {
    struct held small, large;
    struct binding it = {.how = how};
    bool mapped = strstr(how, "address");
    pthread_t thread;
    take_handle(&small, 1 << 21);
    it.handle = small.value;
    CU(cuMemAddressReserve)(&it.address, 1 << 21, 0, 0, 0);
    if (mapped) CU(cuMemMap)(it.address, 1 << 21, 0, small.value, 0);
    pthread_create(&thread, NULL, bind_it, &it);
    while (!it.asked) {}
    if (mapped) CU(cuMemUnmap)(it.address, 1 << 21);
    give_handle(&small);
    take_handle(&large, bytes);
    if (mapped) CU(cuMemMap)(it.address, 1 << 21, 0, large.value, 0);
    pthread_join(thread, NULL);
    if (mapped) CU(cuMemUnmap)(it.address, 1 << 21);
    give_handle(&large);
    printf("%d\n", it.result);
}

static void *lower_it(void *with) {
    CU(cuCtxSetCurrent)(context);
    CU(cuCtxSetLimit)(LIMIT_HEAP, *(size_t *)with);
    return NULL;
}

/* Raise a limit as soon as another thread's lowering of it can be seen, be that call over or not. */
static void raise_while_lowered(uint64_t bytes) {
    size_t low = 4096, now = 0;
    pthread_t thread;
    CU(cuCtxSetLimit)(LIMIT_HEAP, bytes);
    pthread_create(&thread, NULL, lower_it, &low);
    while (CU(cuCtxGetLimit)(&now, LIMIT_HEAP) != CUDA_SUCCESS || now != low) {}
    CUresult result = CU(cuCtxSetLimit)(LIMIT_HEAP, bytes);
    pthread_join(thread, NULL);
    printf("%d\n", result);
}

/* Launch graphs that allocate on two GPUs until one is refused. */
static void fill_two(uint64_t first, uint64_t second) {
    const uint64_t sizes[] = {first, second};
    CUresult result = CUDA_SUCCESS;
    int count = -1;
    for (; result == CUDA_SUCCESS; count++) {
        CUgraph graph;
        CUgraphNode node;
        CUgraphExec exec;
        CU(cuGraphCreate)(&graph, 0);
        for (int gpu = 0; gpu < 2; gpu++) {
            CUDA_MEM_ALLOC_NODE_PARAMS parameters = {
                .properties = {.type = 1, .location = {.type = LOCATION_DEVICE, .id = gpu}}, .bytes = sizes[gpu]};
            CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &parameters);
        }
        result = CU(cuGraphInstantiateWithFlags)(&exec, graph, 0);
        if (!result) result = CU(cuGraphLaunch)(exec, NULL);
    }
    printf("%d %d\n", count, result);
}

static void do_fork(const char *name, uint64_t bytes) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        held_count = 0;
        printf("%d ", start());
        fill(name, bytes);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static void look_up(const char *name, int version, unsigned long long flags) {
    void *found = NULL;
    int status = -1;
    Dl_info where = {0};
    CUresult result = CU(cuGetProcAddress_v2)(name, &found, version, flags, &status);
    if (found) dladdr(found, &where);
    printf("%d %d %s %s\n", result, status, where.dli_sname ? where.dli_sname : "-", where.dli_fname ? where.dli_fname : "-");
}

/* Put aside or brought back, with one byte set of how that is to be done. */
static void checkpoint(bool restore, unsigned at) {
    union {
        char bytes[64];
        CUcheckpointCheckpointArgs aside;
        CUcheckpointRestoreArgs back;
    } how = {{0}};
    if (at < sizeof how.bytes) how.bytes[at] = 1;
    printf("%d\n", restore ? CU(cuCheckpointProcessRestore)(getpid(), &how.back)
                           : CU(cuCheckpointProcessCheckpoint)(getpid(), &how.aside));
}

static bool is_in(const void *function, const char *folder) {
    Dl_info found;
    return dladdr(function, &found) && strstr(found.dli_fname, folder);
}

/* Whether the runtime's table is the same each time, a table that nobody has described is the driver's own, and what is
 * answered to who asks for none. */
static void ask_for_tables(void) {
    const CUuuid unknown = {{1}};
    const void *once, *again, *other;
    CU(cuGetExportTable)(&once, &runtime_table);
    CU(cuGetExportTable)(&again, &runtime_table);
    CU(cuGetExportTable)(&other, &unknown);
    printf("%d %d %d\n", once == again, is_in(((void *const *)other)[0], "/real/"), CU(cuGetExportTable)(NULL, &unknown));
}

static void call(const char *name) {
    typedef void *nothing;
    int (*called)(nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing) = find(name);
    printf("%d\n", called(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
}

static bool obey(const char *line) {
    char word[64], name[256];
    unsigned long long number = 0, other = 0, third = 0;
    double seconds;
    unsigned micros, idle = 0;
    int batch = 1;
    if (sscanf(line, "%63s", word) != 1) return true;
    if (strcmp(word, "start") == 0) printf("%d\n", start());
    else if (sscanf(line, "take %63s %llu", name, &number) == 2) printf("%d\n", take(way_of(name), number));
    else if (sscanf(line, "fill %63s %llu", name, &number) == 2) fill(name, number);
    else if (sscanf(line, "race %63s %llu", name, &number) == 2) race(name, number);
    else if (sscanf(line, "give %llu", &number) == 1) printf("%d\n", give((int)number));
    else if (sscanf(line, "churn %llu %llu", &number, &other) == 2) seed = number | 1, churn(other);
    else if (strcmp(word, "empty") == 0) empty();
    else if (strcmp(word, "forget") == 0) printf("%d\n", held_count = 0);
    else if (strcmp(word, "info") == 0) info();
    else if (sscanf(line, "release-while-mapped %llu", &number) == 1) release_while_mapped(number);
    else if (sscanf(line, "take-while-changed %63s %llu %llu", name, &number, &other) == 3)
        take_while_changed(name, number, other);
    else if (sscanf(line, "swap-while-mapped %63s %llu", name, &number) == 2)
        swap_while_mapped(strcmp(name, "sparse-thread") == 0, number);
    else if (sscanf(line, "take-with-answer-swapped %63s %llu %llu", name, &number, &other) == 3)
        take_with_answer_swapped(name, number, (int)other);
    else if (strcmp(word, "detach") == 0) printf("%d\n", CU(cuCtxDetach)((CUcontext)(uintptr_t)held[0].value));
    else if (strcmp(word, "tables") == 0) ask_for_tables();
    else if (sscanf(line, "mapping-waits %llu", &number) == 1)
        take_while_mapping_waits(number);
    else if (sscanf(line, "bind-while-replaced %63s %llu", name, &number) == 2)
        bind_while_replaced(name, number);
    else if (sscanf(line, "raise-while-lowered %llu", &number) == 1) raise_while_lowered(number);
    else if (sscanf(line, "replace-context %llu", &number) == 1) replace_context(number);
    else if (sscanf(line, "two-gpus %llu %llu", &number, &other) == 2) fill_two(number, other);
    else if (sscanf(line, "unbind-too-late %llu", &number) == 1) unbind_too_late(number);
    else if (strcmp(word, "send-descriptor") == 0) send_descriptor();
    else if (strcmp(word, "close-way") == 0) close_way();
    else if (strcmp(word, "export") == 0) export_first(false);
    else if (strcmp(word, "export-pool") == 0) export_first(true);
    else if (strcmp(word, "export-handle") == 0) export_handle();
    else if (sscanf(line, "import-handle %255s", name) == 1) import_handle(name);
    else if (sscanf(line, "import-pool %255s", name) == 1) import(name, true, false);
    else if (sscanf(line, "import-old %255s", name) == 1) import(name, false, true);
    else if (sscanf(line, "import %255s", name) == 1) import(name, false, false);
    else if (sscanf(line, "close %llu", &number) == 1) printf("%d\n", CU(cuIpcCloseMemHandle)(number));
    else if (sscanf(line, "free %llu", &number) == 1) printf("%d\n", CU(cuMemFreeAsync)(number, NULL));
    else if (strcmp(word, "primary") == 0) get_primary();
    else if (strcmp(word, "unread") == 0) load_unread();
    else if (strcmp(word, "green") == 0) make_green();
    else if (strcmp(word, "green-end") == 0) printf("%d\n", CU(cuGreenCtxDestroy)(green));
    else if (sscanf(line, "elsewhere %llu", &number) == 1) fill_elsewhere(number);
    else if (sscanf(line, "fork %63s %llu", name, &number) == 2) do_fork(name, number);
    else if (sscanf(line, "use %lf %63s %u %d %u", &seconds, name, &micros, &batch, &idle) >= 3)
        use(seconds, name, micros, batch, idle);
    else if (sscanf(line, "crowd %d %lf %u", &batch, &seconds, &micros) == 3) crowd(batch, seconds, micros);
    else if (sscanf(line, "sneak %63s %lf %u", name, &seconds, &micros) == 3) sneak(name, seconds, micros);
    else if (sscanf(line, "astray %63s %lf %u", name, &seconds, &micros) == 3) astray(name, seconds, micros);
    else if (sscanf(line, "capture %d", &batch) == 1) capture(batch);
    else if (sscanf(line, "serve %lf %u %d %u", &seconds, &micros, &batch, &idle) == 4)
        serve(seconds, micros, batch, idle);
    else if (sscanf(line, "lookup %255s %llu %llu", name, &number, &third) == 3) look_up(name, (int)number, third);
    else if (sscanf(line, "aside %llu", &number) == 1) checkpoint(false, (unsigned)number);
    else if (sscanf(line, "restore %llu", &number) == 1) checkpoint(true, (unsigned)number);
    else if (sscanf(line, "call %255s", name) == 1) call(name);
    else if (sscanf(line, "load-again %255s", name) == 1) load_again(name);
    else if (sscanf(line, "load-apart %255s", name) == 1) load_apart(name);
    else if (strcmp(word, "become") == 0) execl("/bin/cat", "cat", NULL);
    else if (strcmp(word, "renew") == 0) execl("/proc/self/exe", "tenant", NULL);
    else if (strcmp(word, "release") == 0) printf("%d\n", CU(cuDevicePrimaryCtxRelease_v2)(0));
    else if (strcmp(word, "quit") == 0) return false;
    else printf("? %s\n", line);
    return true;
}

int main(void) {
    char line[512];
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* a program that this becomes is to find the rest */
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "tenant: %s\n", dlerror());
        return 2;
    }
    while (fgets(line, sizeof line, stdin) && obey(line)) {}
    return 0;
}
